/**
 * Builds the executables into dist/bin, or into bin of the folder that is the argument: each one file that runs anywhere.
 * What a worker thread runs travels along as a string, `__WORKER_SOURCE__`, since there is no second file to start it from.
 */
import { chmod, mkdir, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { build, type BuildOptions } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const worker = 'lib/store/worker.ts';
const executables = ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config'];
const folder = process.argv[2] ?? `${root}/dist`;

// Packages in CommonJS call require(), which a module does not have; they only ask for what Node brings along, so
// that any place will do, and a worker's has none of its own.
const createRequire = `import { createRequire as __createRequire } from 'node:module';
const require = __createRequire(process.execPath);`;

const common = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  minify: true,
  // Names of classes and functions are part of what -v shows.
  keepNames: true,
  legalComments: 'linked',
  logLevel: 'warning',
  banner: { js: createRequire },
} as const satisfies BuildOptions;

async function bundleWorker(): Promise<string | undefined> {
  if (!existsSync(`${root}/${worker}`)) {
    return undefined;
  }
  // CommonJS, because a module that imports node:http makes Node load its fetch, for nothing, in every thread.
  const form = { format: 'cjs', banner: {}, legalComments: 'none', write: false } as const;
  const result = await build({ ...common, ...form, entryPoints: [worker] });
  return result.outputFiles[0]?.text;
}

await rm(folder, { recursive: true, force: true });
await mkdir(`${folder}/bin`, { recursive: true });
const workerSource = await bundleWorker();
for (const name of executables) {
  const outfile = `${folder}/bin/${name}`;
  await build({
    ...common,
    entryPoints: [`cmd/${name}.ts`],
    outfile,
    define: workerSource === undefined ? {} : { __WORKER_SOURCE__: JSON.stringify(workerSource) },
  });
  await chmod(outfile, 0o755);
}
