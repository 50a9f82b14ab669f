/**
 * Bundles programs into plain CommonJS modules. The code of worker threads is included as strings
 * (`__WORKER_SOURCE__`), because a single executable application has no second file to start them from. `__COMMIT__` is
 * the commit of the build, with a `+` if files differ from it; empty outside of a repository. `__EXPLAINING_PAGES__`
 * are the pages that `explain` reads, and `__SHELL_SCRIPTS__` the scripts that commands print, both as JSON.
 */
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from 'node:child_process';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform, type BuildOptions, type Metafile, type OutputFile, type Plugin } from 'esbuild';
import { explainingPages } from '../cmd/cli/explanations.ts';
import { shellScripts } from '../cmd/cli/shellScript.ts';
import manifest from '../package.json' with { type: 'json' };

const root = fileURLToPath(new URL('..', import.meta.url));

/** The oldest Node.js that runs the programs. */
const leastNode = /\d+/.exec(manifest.engines.node)?.[0] ?? '';

/** The form of written code. Names of classes and functions stay, because -v shows them. */
const written = {
  platform: 'node',
  target: `node${leastNode}`,
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'inline',
  logLevel: 'warning',
} as const satisfies BuildOptions;

/** Begins a module that uses `__moduleUrl`, which stands for `import.meta.url`. */
const moduleUrl = `"use strict"; const __moduleUrl = require('node:url').pathToFileURL(__filename).href;`;

/** Returns the commit of the sources, with a `+` if files differ from it; empty outside of a repository. */
export function findCommit(): string {
  try {
    const options: ExecFileSyncOptionsWithStringEncoding = {
      ...{ cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
    };
    return execFileSync('git', ['describe', '--always', '--abbrev=12', '--exclude=*', '--dirty=+'], options).trim();
  } catch {
    return '';
  }
}

const workerModules = {
  __WORKER_SOURCE__: 'lib/content/registry/worker.ts',
  __DIGEST_WORKER_SOURCE__: 'lib/content/archive/digestWorker.ts',
};

/** Returns the code of each worker thread, as a literal. */
export async function bundleWorkers(): Promise<Record<string, string>> {
  const form = { absWorkingDir: root, bundle: true, format: 'cjs', legalComments: 'none', write: false } as const;
  const sources = Object.entries(workerModules).map(async ([name, module]) => {
    const { outputFiles } = await build({ ...written, ...form, entryPoints: [module] });
    return [name, JSON.stringify(outputFiles.map(({ text }) => text).join(''))];
  });
  return Object.fromEntries(await Promise.all(sources)) as Record<string, string>;
}

/**
 * Includes only the used modules of @kubernetes/client-node. Its requests by undici are replaced by nothing, because no
 * command sends them.
 */
const usedClientModules: Plugin = {
  name: 'used client modules',
  setup(bundling) {
    bundling.onResolve({ filter: /^\.\/gen\/index\.js$/ }, () => ({ path: `${root}.config/clientIndex.ts` }));
    bundling.onResolve({ filter: /^undici$/ }, ({ path }) => ({ path, namespace: 'absent', sideEffects: false }));
    bundling.onLoad({ filter: /.*/, namespace: 'absent' }, () => ({ contents: 'module.exports = {};' }));
  },
};

async function optionsOf(entryPoints: string[]) {
  const readAll = (folder: string, paths: readonly string[]): Promise<string[]> =>
    Promise.all(paths.map((path) => readFile(`${root}/${folder}/${path}`, 'utf8')));
  const define = {
    'import.meta.url': '__moduleUrl',
    __COMMIT__: JSON.stringify(findCommit()),
    __EXPLAINING_PAGES__: JSON.stringify(JSON.stringify(await readAll('docs', explainingPages))),
    __SHELL_SCRIPTS__: JSON.stringify(JSON.stringify(await readAll('cmd', shellScripts))),
    ...(await bundleWorkers()),
  };
  const form = { bundle: true, metafile: true as const, absWorkingDir: root, plugins: [usedClientModules] };
  return { ...written, ...form, define, entryPoints };
}

/** Writes a program to one file. Returns the paths of its source files, relative to the project’s root. */
export async function bundle(entryPoint: string, outfile: string): Promise<string[]> {
  const options = await optionsOf([entryPoint]);
  const { metafile } = await build({ ...options, format: 'cjs', banner: { js: moduleUrl }, outfile });
  return Object.keys(metafile.inputs);
}

/**
 * Writes programs of `cmd` into a folder, by their names: `bin` has a launcher of each, `lib` their modules, which they
 * share. Returns the paths of their source files, relative to the project’s root.
 */
export async function bundlePrograms(names: readonly string[], folder: string): Promise<string[]> {
  const options = await optionsOf(names.map((name) => `cmd/${name}.ts`));
  // esbuild splits ES modules only. CommonJS starts faster.
  const form = { format: 'esm', splitting: true, write: false, outdir: join(folder, 'lib') } as const;
  const { outputFiles, metafile } = await build({ ...options, ...form });
  await mkdir(join(folder, 'lib'));
  for (const file of outputFiles) await writeFile(file.path, await toCommonJs(file, metafile));
  // Names without an extension, and .js, are CommonJS only with this.
  await writeFile(join(folder, 'package.json'), '{ "type": "commonjs" }\n');
  const launchers = names.map((name) => writeLauncher(name, folder));
  return [...Object.keys(metafile.inputs), ...(await Promise.all(launchers)).flat()];
}

async function toCommonJs({ path, text }: OutputFile, { inputs, outputs }: Metafile): Promise<string> {
  const { code } = await transform(text, { ...written, format: 'cjs', supported: { 'dynamic-import': false } });
  const [, output] = Object.entries(outputs).find(([name]) => join(root, name) === path) ?? [];
  const isCommonJs = inputs[output?.entryPoint ?? '']?.format === 'cjs';
  return [
    code.includes('__moduleUrl') ? `${moduleUrl}\n` : '',
    code,
    // A package of CommonJS is the default export of its module here.
    isCommonJs ? 'module.exports = module.exports.default;\n' : '',
  ].join('');
}

/** Writes the launcher of a program. An older Node.js can run it, and then reports which one is needed. */
async function writeLauncher(name: string, folder: string): Promise<string[]> {
  const outfile = join(folder, 'bin', name);
  const define = {
    'import.meta.url': '__moduleUrl',
    __LEAST_NODE__: leastNode,
    __PROGRAM__: JSON.stringify(`../lib/${name}.js`),
  };
  const form = { bundle: true, metafile: true, format: 'cjs', target: 'node18', absWorkingDir: root } as const;
  const options = { ...written, ...form, define, banner: { js: moduleUrl }, outfile };
  const { metafile } = await build({ ...options, entryPoints: ['cmd/launcher.ts'] });
  await chmod(outfile, 0o755);
  return Object.keys(metafile.inputs);
}
