import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from 'mocha';
import { run, runSuccessfully } from '../peers.ts';

/** A store for podman: the store that it writes to, or an additional one beside an empty one. */
export interface ReadStore {
  readonly kind: 'main' | 'additional';
  readonly path: string;
}

/** Skips a test, with a line on standard error, if this process may not mount or create a network. */
export async function requireRoot(context: Context): Promise<void> {
  if ((await run('unshare', ['-nm', 'true'])).code === 0) return;
  const { test } = context as { test?: { fullTitle(): string } };
  console.error(`SKIPPED “${test?.fullTitle() ?? 'a suite'}”: it needs root`);
  context.skip();
}

/**
 * Makes a folder the place of a main store, `main` in it. Returns the environment in which programs use that store.
 */
export async function storageIn(folder: string): Promise<NodeJS.ProcessEnv> {
  const config = join(folder, 'storage.conf');
  const place = `driver = "overlay"\ngraphroot = "${folder}/main"\nrunroot = "${folder}/reader/run"\n`;
  await mkdir(folder, { recursive: true });
  await writeFile(config, `[storage]\n${place}[storage.options.overlay]\nskip_mount_home = "true"\n`);
  return { CONTAINERS_STORAGE_CONF: config };
}

/** Runs podman on a store in a network namespace that has only loopback. `folder` is for its other files. */
export async function podmanOffline(store: ReadStore, folder: string, args: readonly string[]): Promise<string> {
  await mkdir(folder, { recursive: true });
  const isMain = store.kind === 'main';
  const place = ['--root', isMain ? store.path : join(folder, 'root'), '--runroot', join(folder, 'run')];
  const option = ['--storage-driver=overlay', '--storage-opt', 'overlay.skip_mount_home=true'];
  const more = isMain ? [] : ['--storage-opt', `additionalimagestore=${store.path}`];
  return runSuccessfully('unshare', ['-n', 'podman', ...place, ...option, ...more, ...args]);
}

/** Lists the images of a store by the names with a digest, as podman shows them without a network. */
export async function listImages(store: ReadStore, folder: string): Promise<string[]> {
  const list = JSON.parse(await podmanOffline(store, folder, ['images', '--format=json'])) as {
    Names?: string[];
    RepoDigests?: string[];
  }[];
  return [...new Set(list.flatMap(({ Names = [], RepoDigests = [] }) => [...Names, ...RepoDigests]))].sort();
}

/** Creates a container of each image by its name and digest, without a network, and removes them. */
export async function createContainers(store: ReadStore, folder: string, images: readonly string[]): Promise<void> {
  const ids: string[] = [];
  for (const image of images)
    ids.push((await podmanOffline(store, folder, ['create', '--quiet', '--network=none', image, '/true'])).trim());
  await podmanOffline(store, folder, ['rm', ...ids]);
}
