/**
 * Builds the executables once for each state of their sources: for the tests, and for `npm run build`. Prints the
 * folder, if it is run.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join, matchesGlob } from 'node:path';
import { fileURLToPath } from 'node:url';
import { explainingPages } from '../cmd/cli/explanations.ts';
import { plugins } from '../cmd/cli/programChoice.ts';
import { bundlePrograms, bundleWorkers, findCommit } from './bundle.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/** All that executables are made of. The last file has the digests of the installed packages. */
const sources = [
  '{cmd,lib}/**/*.ts',
  'cmd/**/*.{sh,bash,zsh,fish,ps1}',
  '.config/{bundle,clientIndex,executables}.ts',
  ...explainingPages.map((path) => `docs/${path}`),
  'package.json',
  'tsconfig.json',
  'node_modules/.package-lock.json',
];

/** A folder that was not used for so long is removed, in milliseconds. */
const lifetime = 24 * 3_600_000;

/** The sources of a build, the commit that it tells, and the folder of all builds. */
interface Place {
  readonly top: string;
  readonly commit: () => string;
  readonly cache: string;
}

/** Returns the folder with `bin` and `lib`, and with `workers.json`, from which tests start worker threads. */
export function buildExecutables(): Promise<string> {
  return makeOnce({ top: root, commit: findCommit, cache: join(root, 'node_modules/.cache/executables') }, build);
}

/**
 * Returns a folder that `make` filled from the sources as they are, now or earlier. A folder gets its name when it is
 * complete, so several runs may do this at once.
 */
export async function makeOnce(place: Place, make: (folder: string) => Promise<void>): Promise<string> {
  const { cache } = place;
  const digest = await digestOf(place);
  const made = join(cache, digest);
  await mkdir(cache, { recursive: true });
  if (await touch(made)) return made;
  await removeUnused(cache);
  const folder = await mkdtemp(join(cache, 'new-'));
  try {
    await make(folder);
    // The sources may have changed meanwhile.
    if ((await digestOf(place)) !== digest) return await makeOnce(place, make);
    // Tests run the executables as other users too.
    await chmod(folder, 0o755);
    await rename(folder, made);
  } catch (error) {
    // Another run may have been first.
    if (!(await touch(made))) throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return made;
}

/** Returns a digest of the sources and of the commit. */
async function digestOf({ top, commit }: Place): Promise<string> {
  const hash = createHash('sha256').update(commit());
  for (const path of globSync(sources, { cwd: top }).sort()) {
    const content = createHash('sha256').update(await readFile(join(top, path)));
    hash.update(`\n${path} ${content.digest('hex')}`);
  }
  return hash.digest('hex').slice(0, 16);
}

/** Notes that a folder is used, if this user may. Returns whether it exists. */
async function touch(folder: string): Promise<boolean> {
  const now = new Date();
  await utimes(folder, now, now).catch(() => undefined);
  return existsSync(folder);
}

async function removeUnused(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    const { mtimeMs } = await stat(join(cache, name)).catch(() => ({ mtimeMs: Infinity }));
    if (mtimeMs < Date.now() - lifetime) await rm(join(cache, name), { recursive: true, force: true });
  }
}

async function build(folder: string): Promise<void> {
  const names = Object.values(plugins).map((plugin) => `oc-${plugin}`);
  const other = (await bundlePrograms(names, folder)).find(
    (path) => !/(?:^|\/)node_modules\/|:/.test(path) && !sources.some((each) => matchesGlob(path, each)),
  );
  if (other !== undefined) throw new Error(`${other} is part of the programs, and no source of executables.ts`);
  await writeFile(join(folder, 'workers.json'), JSON.stringify(await bundleWorkers()));
}

if (import.meta.main) console.log(await buildExecutables());
