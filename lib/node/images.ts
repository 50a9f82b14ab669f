/** The image store of a node: loading, checking and repairing it. */

import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { finished } from 'node:stream/promises';
import type { BlobRecord } from '#bundle/metadata';
import { completeBundle, listMissingBlobs, type Bundle, descriptorOf } from '#bundle/open';
import { serveBundle } from '#bundle/serve';
import { describeWriteError, makeFolders, ignoreMissing, takeLock, readBoot } from '#content/files';
import { digestOf, hexOf, type Digest } from '#content/oci';
import type { Context } from '#context';
import { ignoring, PluginError, asFailure, isPluginError } from '#errors';
import { findCopyProgram, type CopyProgram, copyImage, prepareWork, type CopySetting } from './images/copyImage.ts';
import { type CopyLimits, copyAll, type CopySteps } from './images/copyQueue.ts';
import { checkStoreSpace } from './images/diskFloor.ts';
import { requireRuntimeStore, runPodman, type HostStorage } from './images/hostStorage.ts';
import type { ImageStore, StoreImage } from './images/imageStore.ts';
import { findDamagedImages, type DamagedImage } from './images/layerCheck.ts';
import { blobsOfImage, planImages, type PlannedImage, sizeOf } from './images/loadPlan.ts';
import { StoreChecks } from './images/storeChecks.ts';
import { removalHint, removeDamagedImages, removeBrokenImages } from './images/storeRepair.ts';
import { pathOnHost, type Host, loadFolder } from './machine/host.ts';
import { findProgram, runProgram } from './machine/programs.ts';
import { countPinned } from './runtime/pins.ts';

export { stayAboveFloor } from './images/diskFloor.ts';
export { HostStorage } from './images/hostStorage.ts';
export { StoreIndex, type StoreImage } from './images/imageStore.ts';
export { LayerCheck, type DamagedImage } from './images/layerCheck.ts';
export { storeImagesOf } from './images/loadPlan.ts';
export { removeDamagedImages } from './images/storeRepair.ts';

/** The images to load, the store that gets them, and the limits of the load. */
export interface LoadOptions {
  readonly storage: HostStorage;
  /** Components, pullspecs or digests to load; all images if empty. */
  readonly images: readonly string[];
  readonly limits: CopyLimits;
  /** Whether to read all files of the images at the end, and to compare them with the digests of the layers. */
  readonly verify?: boolean;
  /** The program that copies; by default the first that the host has. */
  readonly program?: CopyProgram;
}

/** The number of loaded images, and where they are. */
export interface LoadResult {
  readonly store: ImageStore;
  /** The names of all requested images. */
  readonly images: readonly string[];
  readonly loaded: number;
  /** The number of images that were complete before. */
  readonly skipped: number;
  /** Bytes of blobs that were read from the bundle. */
  readonly bytes: number;
  /** The program that counted the images at the end; undefined if there was none. */
  readonly countedBy: string | undefined;
  /** The number of images that CRI-O keeps even if no pod uses them; undefined without CRI-O. */
  readonly pinned?: number;
}

/**
 * Loads the images of a bundle into the main store of a host, each by its own name and digest. Serves the bundle on the
 * loopback interface, has skopeo or podman copy the missing images with low priority, and checks each image. Counts all
 * images again at the end, and makes the store durable. With `verify`, and after a load
 * that a restart of the machine ended, it reads all layers, loads damaged ones again, and `incomplete` names them too.
 * A failed image does not stop the others. Throws `usage`, `busy`, `disk-full`, `incomplete`, `unsupported`, `partial`,
 * `command-failed` for a store that cannot be synced, `interrupted`, and the errors of the server and the store.
 */
export async function loadBundle(bundle: Bundle, options: LoadOptions, context: Context): Promise<LoadResult> {
  const { storage, limits } = options;
  const { host, main: store } = storage;
  const program = options.program ?? (await findCopyProgram(host));
  await requireRuntimeStore(storage, context);
  const planned = await planImages(bundle, options.images, context);
  const work = workOf(store);
  await using _lock = await lockWork(host, work);
  try {
    const isAfterReboot = await wasCutOff(storage);
    await markUnsynced(storage);
    const setting = { storage, work, program, limits };
    const { bytes, loaded } = await copyMissing(bundle, planned, setting, context);
    await requireComplete(storage, planned);
    const countedBy = await recountImages(storage, planned, context);
    await syncMainStore(storage, context);
    // Otherwise another load that is ended would leave layers that nothing has checked.
    if (!isAfterReboot) await removeMark(storage);
    let again = 0;
    if (options.verify || isAfterReboot) {
      if (isAfterReboot) context.log('info', 'the machine restarted during an earlier load: all layers are read');
      const check = async (): Promise<readonly DamagedImage[]> =>
        findDamagedImages(host, await storage.readIndex(), planned, { content: true }, context);
      let damaged = await check();
      if (damaged.length > 0) {
        context.log('warn', `${damaged.length} images are damaged, and are loaded again`);
        const stays = await removeDamagedImages(storage, damaged, context);
        again = (await copyMissing(bundle, planned, setting, context)).loaded;
        await syncMainStore(storage, context);
        if (stays) throw stays;
        damaged = await check();
      }
      const [first] = damaged;
      if (first)
        throw new PluginError('incomplete', `${first.name} in ${store.graphRoot} cannot be used: ${first.fault}`, {
          hint: removalHint([first.name]),
        });
    }
    await removeMark(storage);
    const images = planned.map(({ name }) => name);
    const all = Math.min(images.length, loaded + again);
    const hasRuntime = (await findProgram(host, 'crio')) !== undefined;
    const pinned = hasRuntime && { pinned: await countPinned(host, images) };
    return { store, images, loaded: all, skipped: images.length - all, bytes, countedBy, ...pinned };
  } finally {
    await rm(pathOnHost(host, work), { recursive: true, force: true });
  }
}

/**
 * Completes a delta bundle with the blobs that it lacks: from `bases`, from the bundles in its folder, or from the
 * store. Closing the result closes all of them. Throws the errors of completeBundle and of reading the store’s index.
 */
export function completeToLoad(
  bundle: Bundle,
  bases: readonly string[],
  storage: HostStorage,
  context: Context,
): Promise<Bundle> {
  return completeBundle(bundle, { bases, listHeld: () => listHeld(bundle, storage, context) }, context);
}

/**
 * Lists the blobs that a delta bundle was opened without, that a store lacks, and that this machine needs. Throws what
 * reading the index of the store throws.
 */
export async function listMissingBaseBlobs(
  bundle: Bundle,
  storage: HostStorage,
  context: Context,
): Promise<BlobRecord[]> {
  const lacking = await listMissingBlobs(bundle);
  if (lacking.length === 0) return [];
  const held = await listHeld(bundle, storage, context);
  return lacking.filter(({ digest }) => !held.has(digest));
}

/** Lists the blobs that a delta bundle may lack: those in a store, and those of images for other architectures. */
async function listHeld(bundle: Bundle, storage: HostStorage, context: Context): Promise<ReadonlySet<string>> {
  const needed = blobsOfImage(await planImages(bundle, [], { ...context, log: () => undefined }));
  const foreign = (bundle.metadata.base?.blobs ?? []).flatMap(({ digest }) => (needed.has(digest) ? [] : [digest]));
  // The load itself reports a corrupt store.
  const index = await storage.readIndex().catch(ignoring('incomplete'));
  return new Set([...foreign, ...(index?.listBlobs() ?? [])]);
}

/** Finds images that another program removed during the load. */
async function requireComplete(storage: HostStorage, planned: readonly PlannedImage[]): Promise<void> {
  const { main: store } = storage;
  const missing = await (await storage.readIndex()).listMissing(planned);
  const [first] = missing;
  if (!first) return;
  const count = `${missing.length} of ${planned.length} images are not in ${store.graphRoot}`;
  throw new PluginError('incomplete', `${count} after the load, such as ${first.label}`, {
    hint: 'Check whether another program removes images from that store, and run the same command again.',
  });
}

/**
 * Has podman list the main store of a host, and compares the list with the expected images. Returns
 * the name of the program; undefined if the host has no podman. Throws `incomplete` if images are missing or podman
 * cannot read the store.
 */
async function recountImages(
  storage: HostStorage,
  images: readonly StoreImage[],
  context: Context,
): Promise<string | undefined> {
  const { main: store } = storage;
  const result = await runPodman(storage, ['images', '--format', 'json'], context);
  if (!result) return undefined;
  const { code, stdout, stderr } = result;
  const listed = code === 0 ? parseImageNames(stdout) : undefined;
  if (!listed) {
    throw new PluginError('incomplete', `podman cannot list the image store ${store.graphRoot}: ${stderr.trim()}`);
  }
  const missing = images.filter(({ name }) => !listed.has(name));
  const [first] = missing;
  if (!first) return 'podman';
  const count = `${missing.length} of ${images.length} images`;
  throw new PluginError('incomplete', `podman does not see ${count} in ${store.graphRoot}, such as ${first.name}`, {
    hint: 'Check whether another program removes images from that store, and run the same command again.',
  });
}

function parseImageNames(json: string): Set<string> | undefined {
  try {
    const list: unknown = JSON.parse(json);
    if (!Array.isArray(list)) return undefined;
    const entries = list as { Names?: string[] | null; RepoDigests?: string[] | null }[];
    return new Set(entries.flatMap(({ Names, RepoDigests }) => [...(Names ?? []), ...(RepoDigests ?? [])]));
  } catch {
    return undefined;
  }
}

/** Returns whether a load into the main store is running, or ended before it had made the store durable. */
export async function isUnsynced({ host, main }: HostStorage): Promise<boolean> {
  return (await stat(pathOnHost(host, unsyncedMarker(main))).catch(() => undefined)) !== undefined;
}

/** Returns whether the machine restarted since a load that had not made the store durable. */
async function wasCutOff({ host, main }: HostStorage): Promise<boolean> {
  const boot = await readFile(pathOnHost(host, unsyncedMarker(main)), 'utf8').catch(ignoreMissing);
  return boot !== undefined && boot !== readBoot();
}

/** Marks the store with the current boot, unless an earlier load has. Its layers are not checked yet. */
async function markUnsynced({ host, main }: HostStorage): Promise<void> {
  const marker = unsyncedMarker(main);
  await writeFile(pathOnHost(host, marker), readBoot(), { flag: 'wx' }).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw describeWriteError(error, marker);
  });
}

async function removeMark({ host, main }: HostStorage): Promise<void> {
  await rm(pathOnHost(host, unsyncedMarker(main)), { force: true });
}

function unsyncedMarker(main: ImageStore): string {
  return `${workOf(main)}.unsynced`;
}

/**
 * Makes the main store durable, because containers/storage syncs no files of layers. Syncs its whole file system,
 * because the store also has the files of running containers. Syncing file by file takes several times as long, and
 * delays etcd on that disk as much.
 */
async function syncMainStore({ host, main }: HostStorage, context: Context): Promise<void> {
  const { code, stderr } = await runProgram(host, 'sync', ['-f', main.graphRoot], context, { gentle: true });
  if (code !== 0) {
    const words = `the image store ${main.graphRoot} cannot be synced to disk: ${stderr.trim().slice(-1000)}`;
    throw new PluginError('command-failed', words, {
      hint:
        'A power failure may damage its images. Check the disk, and run the same command again: loaded images ' +
        'are skipped.',
    });
  }
}

/** Returns the folder for the temporary files of a main store. Users have their own stores. */
function workOf({ graphRoot }: ImageStore): string {
  return `${loadFolder}-${hexOf(digestOf(graphRoot)).slice(0, 8)}`;
}

async function lockWork(host: Host, work: string): Promise<AsyncDisposable> {
  const path = pathOnHost(host, work);
  try {
    await makeFolders(dirname(path));
  } catch (error) {
    throw describeWriteError(error, dirname(path));
  }
  return takeLock(`${path}.lock`, work);
}

/** The store to copy images to, how fast, and with which program. */
interface LoadSetting extends Pick<CopySetting, 'work'> {
  readonly storage: HostStorage;
  readonly program: CopyProgram;
  readonly limits: CopyLimits;
}

/**
 * Copies the images that a store lacks, from a server of the bundle on the loopback interface, and checks each in the
 * store. Returns their number, and the bytes read from the bundle. A failed image does not stop the others. Throws
 * `disk-full`, `not-readable`, `incomplete`, `partial` and `interrupted`.
 */
async function copyMissing(
  bundle: Bundle,
  planned: readonly PlannedImage[],
  setting: LoadSetting,
  context: Context,
): Promise<{ bytes: number; loaded: number }> {
  const { storage, limits, program } = setting;
  await removeBrokenImages(storage, context);
  const index = await storage.readIndex();
  const missing = await index.listMissing(planned);
  const progress = new LoadProgress(planned, missing, context);
  if (missing.length === 0) return { bytes: 0, loaded: 0 };
  const { host, main: store } = storage;
  await checkStoreSpace(missing, index, { ...setting, host, store, concurrency: limits.concurrency });
  const server = await serveToThisHost(bundle, progress, context);
  try {
    const copying = await prepareWork(missing, {
      ...setting,
      rules: storage.rules,
      host,
      store,
      server: `127.0.0.1:${server.port}`,
    });
    const copy: CopySteps['copy'] = async (image, within) => {
      try {
        await copyImage(program, image, copying, within);
      } catch (error) {
        throw isPluginError(error, 'incomplete') ? ((await findFault(bundle, image, setting)) ?? error) : error;
      }
    };
    const checks = new StoreChecks(setting, index.size, copy, (image) => {
      progress.finish(image);
    });
    await copyAll(missing, index.listBlobs(), limits, context, {
      copy,
      isCheckDue: (copied) => checks.isDue(copied),
      check: (images, within) => checks.check(images, within),
    });
  } finally {
    await server.close();
  }
  return { bytes: progress.bytes, loaded: missing.length };
}

/** Serves unverified bytes: the program that copies compares all digests, and `findFault` explains a difference. */
function serveToThisHost(bundle: Bundle, progress: LoadProgress, context: Context): ReturnType<typeof serveBundle> {
  const onSent: LoadProgress['sent'] = (digest, bytes) => {
    progress.sent(digest, bytes);
  };
  // Warnings of the server become errors of the images.
  const quiet: Context = { ...context, log: (level, text) => context.log(level === 'warn' ? 'debug' : level, text) };
  return serveBundle(bundle, { host: '127.0.0.1', port: 0, unverified: true, onSent }, quiet);
}

/**
 * Reads the blobs of an image that the store lacks again, and returns the fault of the bundle; undefined if it has
 * none. The program that copied sees only a wrong digest or a closed connection.
 */
async function findFault(
  { path, content }: Bundle,
  { blobs }: PlannedImage,
  { storage }: LoadSetting,
): Promise<PluginError | undefined> {
  const stored = (await storage.readIndex()).listBlobs();
  for (const [digest, size] of blobs) {
    if (stored.has(digest)) continue;
    try {
      await finished((await content.fetch(descriptorOf({ digest, size }))).resume());
    } catch (error) {
      const { code, message, hint = corruptHint } = asFailure(error);
      if (code !== 'not-readable') return new PluginError(code, message, { hint, cause: error });
      return new PluginError(code, `cannot read ${path}: ${message}`, { hint: removedHint, cause: error });
    }
  }
  return undefined;
}

const corruptHint = 'Copy the bundle again, and run the same command again: loaded images are skipped.';
const removedHint =
  'If the USB drive was removed, insert it, and run the same command again: loaded images are skipped.';

/** Reports the progress of a load. Counts each blob once, even if several images need it. */
class LoadProgress {
  readonly #context: Context;
  /** The bytes of each blob that are not reported yet. */
  readonly #unreported: Map<Digest, number>;
  #bytes = 0;

  /** Reports the plan, and the images that the store has. */
  constructor(planned: readonly PlannedImage[], missing: readonly PlannedImage[], context: Context) {
    this.#context = context;
    const lacking = new Set(missing);
    const present = planned.filter((image) => !lacking.has(image));
    const [blobs, stored] = [blobsOfImage(planned), blobsOfImage(present)];
    this.#unreported = new Map([...blobs].filter(([digest]) => !stored.has(digest)));
    const counts = { images: planned.length, blobs: blobs.size };
    context.onEvent({ kind: 'plan', ...counts, bytes: sizeOf(blobs), present: sizeOf(stored) });
    for (const { label } of present) context.onEvent({ kind: 'image', name: label });
  }

  /** Bytes of blobs that were read from the bundle. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Reports bytes of a blob that the server sent. */
  sent(digest: Digest, sent: number): void {
    const bytes = this.#take(digest, sent);
    this.#bytes += bytes;
    if (bytes > 0) this.#context.onEvent({ kind: 'bytes', digest, bytes });
  }

  /** Reports a loaded image, and its layers that the store had from other images. */
  finish({ label, blobs }: PlannedImage): void {
    for (const digest of blobs.keys()) {
      const size = this.#take(digest, Infinity);
      if (size > 0) this.#context.onEvent({ kind: 'skipped', digest, size });
    }
    this.#context.onEvent({ kind: 'image', name: label });
  }

  #take(digest: Digest, bytes: number): number {
    const unreported = this.#unreported.get(digest) ?? 0;
    this.#unreported.set(digest, Math.max(0, unreported - bytes));
    return Math.min(unreported, bytes);
  }
}
