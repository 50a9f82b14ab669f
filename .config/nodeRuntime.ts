/** Downloads packages with Node.js, each of them once for all runs. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { extract } from 'tar';

const cache = fileURLToPath(new URL('../node_modules/.cache/node', import.meta.url));

/**
 * Returns a folder with `bin`, and with LICENSE if the package has it. npm downloads the package, whose `integrity` is
 * the one of a lock file. A folder gets its name when it is complete, so several runs may do this at once. Throws an
 * Error if npm fails, and for another digest.
 */
export async function fetchRuntime(name: string, version: string, integrity?: string): Promise<string> {
  const home = join(cache, `${name}-${version}`);
  if (existsSync(home)) return home;
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'new-'));
  try {
    const words = ['pack', '--silent', '--pack-destination', folder, `${name}@${version}`];
    // If npm is a script that only a shell can start, npm_execpath is the path of its program.
    const npm = process.env['npm_execpath'];
    const [program, args] = npm === undefined ? ['npm', words] : [process.execPath, [npm, ...words]];
    const { stdout } = await promisify(execFile)(program, args);
    const archive = join(folder, stdout.trim());
    const digest = createHash('sha512').update(await readFile(archive));
    if (integrity !== undefined && `sha512-${digest.digest('base64')}` !== integrity) {
      throw new Error(`${name} ${version} has another digest`);
    }
    const runtime = join(folder, 'runtime');
    await mkdir(runtime);
    const filter = (path: string): boolean => /^package\/(?:bin\/|LICENSE$)/.test(path);
    await extract({ file: archive, cwd: runtime, strip: 1, filter });
    await rename(runtime, home);
  } catch (error) {
    // Another run may have been first.
    if (!existsSync(home)) throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return home;
}
