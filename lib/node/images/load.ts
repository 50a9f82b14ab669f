import { mkdir, rm, rmdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { openComplete, type CompleteOptions } from '../../bundle/complete.ts';
import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { describeWriteError } from '../../files/disk.ts';
import { takeLock } from '../../files/lock.ts';
import { checkStorePath, findAdditionalStore, openAdditionalStore } from './additionalStore.ts';
import { findCopyProgram, type CopyProgram } from './copyImage.ts';
import { copyMissing, listMissing } from './copyMissing.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { loadFolder, runFolder } from '../../machine/paths.ts';
import { StoreIndex, type ImageStore } from './imageStore.ts';
import { planImages, type PlannedImage } from './loadPlan.ts';
import { recountImages } from './recount.ts';
import { readStorageConfig } from '../runtime/storageConfig.ts';

/** How to load a bundle. */
export interface LoadOptions {
  readonly host: Host;
  /** Into which store: the one that the host’s programs use, or one beside it, at `path`. */
  readonly store: { readonly kind: 'main' } | { readonly kind: 'additional'; readonly path: string };
  /** Components, pullspecs or digests; everything where there are none. */
  readonly images: readonly string[];
  /** How many images at a time. */
  readonly concurrency: number;
  /** Which program copies, where it is not to be the one that is found. */
  readonly program?: CopyProgram;
}

/** What a load did, and what is in the store now. */
export interface LoadResult {
  readonly store: ImageStore;
  /** The names of all images that were to be loaded. */
  readonly images: readonly string[];
  readonly loaded: number;
  /** How many were there before, whole. */
  readonly skipped: number;
  /** Of the blobs that were read for it. */
  readonly bytes: number;
  /** Who counted the images at the end, besides this program. */
  readonly countedBy: string | undefined;
}

/**
 * Brings the images of a bundle into an image store of a host, each by its own name and digest: serves the bundle to this machine alone,
 * has skopeo or podman copy what is not there, several at a time and with low priority, checks each image afterwards, and counts
 * them all again at the end. Images that fail do not keep others from being loaded; they are named in one error. A full disk ends
 * the run. Throws `usage`, `busy`, `disk-full`, `incomplete`, `partial`, `interrupted`, and what the server and the store throw.
 */
export async function loadBundle(bundle: Bundle, options: LoadOptions, context: Context): Promise<LoadResult> {
  const { host } = options;
  const program = options.program ?? (await findCopyProgram(host));
  const planned = await planImages(bundle, options.images, context);
  const main: ImageStore = { kind: 'main', ...(await readStorageConfig(host)) };
  const { store: wanted } = options;
  if (wanted.kind === 'additional') checkStorePath(wanted.path, main.graphRoot);
  const work = wanted.kind === 'main' ? loadFolder : `${wanted.path}.work`;
  const unlock = await lockWork(host, work);
  const leftovers = [work];
  try {
    const additional =
      wanted.kind === 'additional' ? await openAdditionalStore(host, wanted.path, main, context) : undefined;
    const store = additional?.store ?? main;
    if (additional) leftovers.push(store.runRoot);
    const setting = { host, store, work, program, concurrency: options.concurrency };
    const { bytes, loaded } = await copyMissing(bundle, planned, setting, context);
    await requireWhole(host, store, planned);
    const final = additional ? await additional.finish(context) : store;
    const countedBy = await recountImages(host, final, planned, work, context);
    const images = planned.map(({ name }) => name);
    return { store: final, images, loaded, skipped: images.length - loaded, bytes, countedBy };
  } finally {
    for (const path of leftovers) await rm(pathOnHost(host, path), { recursive: true, force: true });
    // The run folders of other stores may be in it.
    await rmdir(pathOnHost(host, runFolder)).catch(() => undefined);
    await unlock();
  }
}

/**
 * Opens a bundle in order to load it: a delta with the bundles that have what it leaves out, those named and those beside it, but for what the
 * store has already. Throws what openComplete and reading the index of the store do.
 */
export function openToLoad(
  path: string,
  opening: Omit<CompleteOptions, 'listHeld'>,
  options: Pick<LoadOptions, 'host' | 'store'>,
  context: Context,
): Promise<Bundle> {
  return openComplete(path, { ...opening, listHeld: () => listHeldBlobs(options) }, context);
}

async function listHeldBlobs({ host, store }: Pick<LoadOptions, 'host' | 'store'>): Promise<Set<string>> {
  const main: ImageStore = { kind: 'main', ...(await readStorageConfig(host)) };
  const used = store.kind === 'main' ? main : await findAdditionalStore(host, store.path, main);
  try {
    return (await StoreIndex.read(host, used)).listBlobs();
  } catch (error) {
    // Nothing of a damaged store counts, and the load itself says so.
    if (isPluginError(error, 'incomplete')) return new Set();
    throw error;
  }
}

/** Counts the images in the index again: one that was cut off shows as images that are missing. */
async function requireWhole(host: Host, store: ImageStore, planned: readonly PlannedImage[]): Promise<void> {
  const index = await StoreIndex.read(host, store);
  const lacking = await listMissing(index, planned);
  const [first] = lacking;
  if (!first) return;
  const message = `${lacking.length} of ${planned.length} images are not in ${store.graphRoot} after all, such as ${first.label}`;
  throw new PluginError('incomplete', message, {
    hint: 'Is another program removing images from that store? Run the same command again.',
  });
}

async function lockWork(host: Host, work: string): Promise<() => Promise<void>> {
  const path = pathOnHost(host, work);
  try {
    await mkdir(dirname(path), { recursive: true });
  } catch (error) {
    throw describeWriteError(error, dirname(path));
  }
  return takeLock(`${path}.lock`, work);
}
