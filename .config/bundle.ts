/**
 * Bundles a program into one file. The code of worker threads is included as strings (`__WORKER_SOURCE__`), because
 * there is no second file to start them from. `__COMMIT__` is the commit of the build, with a `+` if files differ from
 * it; empty outside of a repository. `__EXPLAINING_PAGES__` are the
 * pages that `explain` reads. Modules of an `import()` are included as comments, so a run compiles only the code that it uses.
 */
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform, type BuildOptions, type Metafile, type Plugin } from 'esbuild';
import { explainingPages } from '../cmd/cli/explanations.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

const common = {
  platform: 'node',
  // An older Node.js can parse this syntax, and then report the version that the program needs.
  target: 'node18',
  logLevel: 'warning',
} as const satisfies BuildOptions;

const written = {
  ...common,
  // CommonJS starts 25 % faster. Also, an ES module that imports a name that an older Node.js lacks
  // fails before it can report the version that it needs.
  format: 'cjs',
  minifySyntax: true,
  minifyWhitespace: true,
  // -v shows the names of classes and functions. `keepNames` calls a function for each of them.
  minifyIdentifiers: false,
} as const satisfies BuildOptions;

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

let workers: Promise<Record<string, string>> | undefined;

/** Returns the code of each worker thread, as a literal. */
export async function bundleWorkers(): Promise<Record<string, string>> {
  const form = { absWorkingDir: root, bundle: true, legalComments: 'none', write: false } as const;
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

/** A part of a program: a module that imports other parts by their names. */
interface Part {
  readonly source: string;
  readonly legal: string;
  readonly imports: Metafile['outputs'][string]['imports'];
  /** Whether all its modules are of installed packages. */
  readonly isPackage: boolean;
  /** Whether its only export is the default export. */
  readonly isCommonJs: boolean;
}

/** Splits a program at each `import()`. The first part has the entry point. `inputs` are the source files. */
async function split(entryPoint: string): Promise<{ parts: Map<string, Part>; inputs: string[] }> {
  workers ??= bundleWorkers();
  const define = {
    'import.meta.url': '__moduleUrl',
    __COMMIT__: JSON.stringify(findCommit()),
    __EXPLAINING_PAGES__: JSON.stringify(
      await Promise.all(explainingPages.map((path) => readFile(`${root}/docs/${path}`, 'utf8'))),
    ),
    ...(await workers),
  };
  const form = { format: 'esm', splitting: true, outdir: root, write: false, legalComments: 'external' } as const;
  const { outputFiles, metafile } = await build({
    ...common,
    ...form,
    ...{ absWorkingDir: root, bundle: true, metafile: true, define, entryPoints: [entryPoint] },
    plugins: [usedClientModules],
  });
  const texts = new Map(outputFiles.map(({ path, text }) => [basename(path), text]));
  const parts = new Map<string, Part>();
  for (const [name, { imports, inputs, entryPoint = '' }] of Object.entries(metafile.outputs)) {
    const [source, legal = ''] = [texts.get(name), texts.get(`${name}.LEGAL.txt`)];
    const isCommonJs = metafile.inputs[entryPoint]?.format === 'cjs';
    const isPackage = Object.keys(inputs).every((path) => path.startsWith('node_modules/'));
    if (source !== undefined && name.endsWith('.js'))
      parts.set(name, { source, legal, imports, isPackage, isCommonJs });
  }
  return { parts, inputs: Object.keys(metafile.inputs) };
}

/** Returns the names of the parts that a part needs for its start, with its own name. */
function findNeeded(name: string, parts: ReadonlyMap<string, Part>, needed = new Set<string>()): Set<string> {
  needed.add(name);
  for (const { path, kind } of parts.get(name)?.imports ?? []) {
    if (kind === 'import-statement' && parts.has(path) && !needed.has(path)) findNeeded(path, parts, needed);
  }
  return needed;
}

/** Stands for the end of a comment within a comment. */
const commentEnd = String.raw`*\u002f`;

/** What all parts use: the URL of the file, and a function that runs the code in the comment of a function. */
const shared = `const __moduleUrl = require('node:url').pathToFileURL(__filename).href;
const __runPart = (holder, parts, module, exports) => {
  const code = holder.toString().slice('()=>{/*'.length, -'*/}'.length).replaceAll(${JSON.stringify(commentEnd)}, '*/');
  const load = (name) => parts[name]?.() ?? require(name);
  new Function('module, exports, require, __moduleUrl', code)(module, exports, load, __moduleUrl);
};`;

/** Returns a module that runs a part when it is first imported. Its code gets its place by `insertCode`. */
function wrap(name: string, { imports, isCommonJs }: Part): string {
  const names = new Set(imports.filter(({ external }) => external !== true).map(({ path }) => `'./${path}'`));
  const others = [...names].map((other) => `${other}: () => require(${other})`);
  return `__runPart(() => 'code of ${name}', { ${others.join(', ')} }, module, exports);
    ${isCommonJs ? 'module.exports = module.exports.default;' : ''}`;
}

/** Puts the code of the wrapped parts into comments, which Node.js skips when it reads the file. */
async function insertCode(text: string, parts: ReadonlyMap<string, Part>): Promise<string> {
  const mark = /"code of ([\w.-]+)"/g;
  const comments = new Map<string, string>();
  for (const [, name = ''] of text.matchAll(mark)) {
    const part = parts.get(name);
    if (part) comments.set(name, `{/*${await minifyPart(name, part)}*/}`);
  }
  return text.replaceAll(mark, (whole, name: string) => comments.get(name) ?? whole);
}

async function minifyPart(name: string, { source, isPackage }: Part): Promise<string> {
  const options = { ...written, minifyIdentifiers: isPackage, supported: { 'dynamic-import': false } };
  const { code } = await transform(source, { ...options, legalComments: 'none' });
  if (code.includes(commentEnd)) throw new Error(`${name} has ${commentEnd}, which stands for the end of a comment`);
  return code.trimEnd().replaceAll('*/', commentEnd);
}

function joinParts(parts: ReadonlyMap<string, Part>, needed: ReadonlySet<string>): Plugin {
  return {
    name: 'parts',
    setup(bundling) {
      bundling.onResolve({ filter: /^\.\// }, ({ path }) => ({ path: basename(path), namespace: 'part' }));
      bundling.onLoad({ filter: /.*/, namespace: 'part' }, ({ path }) => {
        const part = parts.get(path);
        if (part === undefined) throw new Error(`there is no part ${path}`);
        const contents = needed.has(path) ? part.source : wrap(path, part);
        return { contents: `${contents}\n/*! ${part.legal.replaceAll('*/', '* /')} */` };
      });
    },
  };
}

/**
 * Writes the bundle of a program to `outfile`. Returns the paths of its source files, relative to the project’s root.
 */
export async function bundle(entryPoint: string, outfile: string): Promise<string[]> {
  const { parts, inputs } = await split(entryPoint);
  const entry = basename(entryPoint).replace(/\.ts$/, '.js');
  await build({
    ...written,
    bundle: true,
    plugins: [joinParts(parts, findNeeded(entry, parts))],
    entryPoints: [`./${entry}`],
    banner: { js: shared },
    legalComments: 'linked',
    outfile,
  });
  await writeFile(outfile, await insertCode(await readFile(outfile, 'utf8'), parts));
  return inputs;
}
