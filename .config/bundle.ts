/**
 * Bundles a program into one file. What a worker thread runs travels along as a string, `__WORKER_SOURCE__`, since there is no second
 * file to start it from. `__COMMIT__` is the commit that is built, with a `+` where files differ from it; empty outside of a repository.
 * Large packages that few runs need travel as compressed strings: what is not code is not read at every start.
 */
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build, type BuildOptions, type Plugin } from 'esbuild';

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

/** Imported dynamically, and by no default export, which would be lost on the way. */
const large = /^(?:@kubernetes\/client-node|@peculiar\/x509|openpgp|ws)$/;

/** Puts the large packages into the bundle as compressed strings, read on first use; their files are added to `inputs`. */
function asStrings(inputs: Set<string>): Plugin {
  return {
    name: 'as-strings',
    setup(bundling) {
      bundling.onResolve({ filter: large }, ({ path }) => ({ path, namespace: 'string' }));
      bundling.onLoad({ filter: /.*/, namespace: 'string' }, async ({ path }) => {
        const stdin = { contents: `export * from '${path}'`, resolveDir: root };
        const form = {
          banner: {},
          legalComments: 'external',
          outfile: 'package.js',
          write: false,
        } as const;
        const { outputFiles, metafile } = await build({ ...common, ...form, metafile: true, stdin });
        for (const input of Object.keys(metafile.inputs)) inputs.add(input);
        const { code = '', legal = '' } = Object.fromEntries(
          outputFiles.map((file) => [file.path.endsWith('.js') ? 'code' : 'legal', file.text]),
        );
        const source = `require('node:zlib').gunzipSync(Buffer.from('${gzipSync(code).toString('base64')}', 'base64'))`;
        const names = 'module, exports, require, __moduleUrl';
        const contents = `new Function('${names}', ${source}.toString())(${names});`;
        return { contents: `/*! ${path}: ${legal.replaceAll('*/', '* /')} */\n${contents}` };
      });
    },
  };
}

/** Writes the bundle of a program to `outfile`, and gives the paths of the files that are in it, from the project’s root. */
export async function bundle(entryPoint: string, outfile: string): Promise<string[]> {
  worker ??= bundleWorker();
  const define = { ...common.define, __WORKER_SOURCE__: JSON.stringify(await worker) };
  const inputs = new Set<string>();
  const form = { define, plugins: [asStrings(inputs)] };
  const { metafile } = await build({ ...common, ...form, metafile: true, entryPoints: [entryPoint], outfile });
  for (const input of Object.keys(metafile.inputs)) if (!input.startsWith('string:')) inputs.add(input);
  return [...inputs].filter((input) => input !== '<stdin>');
}
