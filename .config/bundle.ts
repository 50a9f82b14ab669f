/**
 * Bundles a program into one file. The code of worker threads is in it as strings (`__WORKER_SOURCE__`), because there is no second
 * file to start them from. `__COMMIT__` is the commit that is built, with a `+` where files differ from it; empty outside of a repository.
 * What is behind an `import()` travels as compressed strings: a run compiles only what it comes to need.
 */
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from 'node:child_process';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build, transform, type BuildOptions, type Metafile, type Plugin } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

const common = {
  platform: 'node',
  // Of what the program needs to run nothing is syntax: any of these can read it, and say what it needs.
  target: 'node18',
  logLevel: 'warning',
} as const satisfies BuildOptions;

const written = {
  ...common,
  // CommonJS, because a module that names an export which an older Node.js lacks dies before it can say that it needs
  // a newer one; and because it starts in three quarters of the time.
  format: 'cjs',
  minify: true,
  // Names of classes and functions are part of what -v shows.
  keepNames: true,
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

const workerModules = {
  __WORKER_SOURCE__: 'lib/registry/worker.ts',
  __DIGEST_WORKER_SOURCE__: 'lib/archive/digestWorker.ts',
};

let workers: Promise<Record<string, string>> | undefined;

/** The code of each worker thread, as a literal. */
async function bundleWorkers(): Promise<Record<string, string>> {
  const form = { absWorkingDir: root, bundle: true, legalComments: 'none', write: false } as const;
  const sources = Object.entries(workerModules).map(async ([name, module]) => {
    const { outputFiles } = await build({ ...written, ...form, entryPoints: [module] });
    return [name, JSON.stringify(outputFiles.map(({ text }) => text).join(''))];
  });
  return Object.fromEntries(await Promise.all(sources)) as Record<string, string>;
}

/** A part of a program: a module that imports others by their names. */
interface Part {
  readonly source: string;
  readonly legal: string;
  readonly imports: Metafile['outputs'][string]['imports'];
  /** All that it exports is its default export. */
  readonly isCommonJs: boolean;
}

/** Splits a program at each `import()`; the first part is that of the entry point. `inputs` are the files it is made of. */
async function split(entryPoint: string): Promise<{ parts: Map<string, Part>; inputs: string[] }> {
  workers ??= bundleWorkers();
  const define = {
    'import.meta.url': '__moduleUrl',
    __COMMIT__: JSON.stringify(findCommit()),
    ...(await workers),
  };
  const form = { format: 'esm', splitting: true, outdir: root, write: false, legalComments: 'external' } as const;
  const { outputFiles, metafile } = await build({
    ...common,
    ...form,
    ...{ absWorkingDir: root, bundle: true, metafile: true, define, entryPoints: [entryPoint] },
  });
  const texts = new Map(outputFiles.map(({ path, text }) => [basename(path), text]));
  const parts = new Map<string, Part>();
  for (const [name, { imports, entryPoint = '' }] of Object.entries(metafile.outputs)) {
    const [source, legal = ''] = [texts.get(name), texts.get(`${name}.LEGAL.txt`)];
    const isCommonJs = metafile.inputs[entryPoint]?.format === 'cjs';
    if (source !== undefined && name.endsWith('.js')) parts.set(name, { source, legal, imports, isCommonJs });
  }
  return { parts, inputs: Object.keys(metafile.inputs) };
}

/** The names of the parts that a part cannot start without, with its own. */
function findNeeded(name: string, parts: ReadonlyMap<string, Part>, needed = new Set<string>()): Set<string> {
  needed.add(name);
  for (const { path, kind } of parts.get(name)?.imports ?? []) {
    if (kind === 'import-statement' && parts.has(path) && !needed.has(path)) findNeeded(path, parts, needed);
  }
  return needed;
}

/** A module that reads a part from a compressed string, when it is first asked for. */
async function compress({ source, imports, isCommonJs }: Part): Promise<string> {
  const supported = { 'dynamic-import': false };
  const { code } = await transform(source, { ...written, supported, legalComments: 'none' });
  const bytes = `Buffer.from('${gzipSync(code, { level: 9 }).toString('base64')}', 'base64')`;
  const names = new Set(imports.filter(({ external }) => external !== true).map(({ path }) => `'./${path}'`));
  const others = [...names].map((name) => `${name}: () => require(${name})`);
  return `const parts = { ${others.join(', ')} };
    const load = (name) => parts[name]?.() ?? require(name);
    const run = new Function('module, exports, require, __moduleUrl', require('node:zlib').gunzipSync(${bytes}).toString());
    run(module, exports, load, __moduleUrl);${isCommonJs ? 'module.exports = module.exports.default;' : ''}`;
}

function joinParts(parts: ReadonlyMap<string, Part>, needed: ReadonlySet<string>): Plugin {
  return {
    name: 'parts',
    setup(bundling) {
      bundling.onResolve({ filter: /^\.\// }, ({ path }) => ({ path: basename(path), namespace: 'part' }));
      bundling.onLoad({ filter: /.*/, namespace: 'part' }, async ({ path }) => {
        const part = parts.get(path);
        if (part === undefined) throw new Error(`there is no part ${path}`);
        const contents = needed.has(path) ? part.source : await compress(part);
        return { contents: `${contents}\n/*! ${part.legal.replaceAll('*/', '* /')} */` };
      });
    },
  };
}

/** Writes the bundle of a program to `outfile`, and gives the paths of the files that are in it, from the project’s root. */
export async function bundle(entryPoint: string, outfile: string): Promise<string[]> {
  const { parts, inputs } = await split(entryPoint);
  const entry = basename(entryPoint).replace(/\.ts$/, '.js');
  await build({
    ...written,
    bundle: true,
    plugins: [joinParts(parts, findNeeded(entry, parts))],
    entryPoints: [`./${entry}`],
    banner: { js: "const __moduleUrl = require('node:url').pathToFileURL(__filename).href;" },
    legalComments: 'linked',
    outfile,
  });
  return inputs;
}
