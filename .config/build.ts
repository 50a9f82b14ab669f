/**
 * Builds the executables into dist/bin, or into bin of the folder that is the argument: each one file that runs anywhere.
 * What a worker thread runs travels along as a string, `__WORKER_SOURCE__`, since there is no second file to start it from.
 * `__COMMIT__` is the commit that is built, with a `+` where files differ from it; empty outside of a repository.
 */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build, type BuildOptions } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const executables = ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config', 'oc-adm_mirror_registry'];
const folder = process.argv[2] ?? `${root}/dist`;

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
    const options = { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] } as const;
    return execFileSync('git', ['describe', '--always', '--abbrev=12', '--exclude=*', '--dirty=+'], options).trim();
  } catch {
    return '';
  }
}

async function bundleWorker(): Promise<string> {
  const form = { define: {}, banner: {}, legalComments: 'none', write: false } as const;
  const { outputFiles } = await build({ ...common, ...form, entryPoints: ['lib/store/worker.ts'] });
  return outputFiles.map(({ text }) => text).join('');
}

await rm(folder, { recursive: true, force: true });
await mkdir(`${folder}/bin`, { recursive: true });
// The package around it says that files without an extension are modules.
await writeFile(`${folder}/package.json`, '{ "type": "commonjs" }\n');
const workerSource = await bundleWorker();
for (const name of executables) {
  const outfile = `${folder}/bin/${name}`;
  await build({
    ...common,
    entryPoints: [`cmd/${name}.ts`],
    outfile,
    define: { ...common.define, __WORKER_SOURCE__: JSON.stringify(workerSource) },
  });
  await chmod(outfile, 0o755);
}
