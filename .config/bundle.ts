/**
 * Bundles a program into one file. What a worker thread runs travels along as a string, `__WORKER_SOURCE__`, since there is no second
 * file to start it from. `__COMMIT__` is the commit that is built, with a `+` where files differ from it; empty outside of a repository.
 */
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { build, type BuildOptions } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

const common = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  // CommonJS, because a module that names an export which an older Node.js lacks dies before it can say that it needs
  // a newer one; and because it starts in three quarters of the time.
  format: 'cjs',
  // Of what the program needs to run nothing is syntax: any of these can read it, and say what it needs.
  target: 'node18',
  minify: true,
  // Names of classes and functions are part of what -v shows.
  keepNames: true,
  legalComments: 'linked',
  logLevel: 'warning',
  define: { 'import.meta.url': '__moduleUrl', __COMMIT__: JSON.stringify(findCommit()) },
  banner: { js: "const __moduleUrl = require('node:url').pathToFileURL(__filename).href;" },
} as const satisfies BuildOptions;

function findCommit(): string {
  try {
    const options: ExecFileSyncOptionsWithStringEncoding = {
      ...{ cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
    };
    return execFileSync('git', ['describe', '--always', '--abbrev=12', '--exclude=*', '--dirty=+'], options).trim();
  } catch {
    return '';
  }
}

let worker: Promise<string> | undefined;

async function bundleWorker(): Promise<string> {
  const form = { define: {}, banner: {}, legalComments: 'none', write: false } as const;
  const { outputFiles } = await build({ ...common, ...form, entryPoints: ['lib/store/worker.ts'] });
  return outputFiles.map(({ text }) => text).join('');
}

/** Writes the bundle of a program to `outfile`, and gives the paths of the files that are in it, from the project’s root. */
export async function bundle(entryPoint: string, outfile: string): Promise<string[]> {
  worker ??= bundleWorker();
  const define = { ...common.define, __WORKER_SOURCE__: JSON.stringify(await worker) };
  const { metafile } = await build({ ...common, entryPoints: [entryPoint], outfile, define, metafile: true });
  return Object.keys(metafile.inputs);
}
