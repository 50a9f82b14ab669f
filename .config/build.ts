/**
 * Builds the executables into dist/bin, or into bin of the folder in the first argument. Each is one file that runs on
 * every machine with Node.js. With a folder, also writes workers.json, from which tests start worker threads.
 */
import { chmod, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { plugins } from '../cmd/cli/programChoice.ts';
import { bundle, bundleWorkers } from './bundle.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const executables = Object.values(plugins).map((name) => `oc-${name}`);
const folder = process.argv[2] ?? `${root}/dist`;

await rm(folder, { recursive: true, force: true });
await mkdir(`${folder}/bin`, { recursive: true });
// The package.json of the project makes files without an extension ES modules.
await writeFile(`${folder}/package.json`, '{ "type": "commonjs" }\n');
for (const name of executables) {
  const outfile = `${folder}/bin/${name}`;
  await bundle(`cmd/${name}.ts`, outfile);
  await chmod(outfile, 0o755);
  // On the path there are executables only.
  await rename(`${outfile}.LEGAL.txt`, `${folder}/${name}.LEGAL.txt`);
}
if (process.argv[2] !== undefined) await writeFile(`${folder}/workers.json`, JSON.stringify(await bundleWorkers()));
