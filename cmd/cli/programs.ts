import { execFile } from 'node:child_process';
import { access, constants, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';

/** The path of a program as a shell finds it on $PATH; undefined where it is not. */
export async function findOnPath(name: string, environment: NodeJS.ProcessEnv): Promise<string | undefined> {
  const suffix = process.platform === 'win32' ? '.exe' : '';
  for (const folder of (environment['PATH'] ?? '').split(delimiter)) {
    const path = join(folder || '.', name + suffix);
    try {
      await access(path, constants.X_OK);
      if ((await stat(path)).isFile()) return path;
    } catch {
      // Not there: the next folder may have it.
    }
  }
  return undefined;
}

/** What a program prints on stdout; undefined when it fails, or is not done within five seconds. */
export function askProgram(
  path: string,
  args: readonly string[],
  { environment, signal }: { readonly environment: NodeJS.ProcessEnv; readonly signal: AbortSignal },
): Promise<string | undefined> {
  return new Promise((resolve) => {
    const options = { env: environment, signal, timeout: 5000, maxBuffer: 2 ** 20 };
    execFile(path, args, options, (error, stdout) => {
      resolve(error ? undefined : stdout);
    });
  });
}
