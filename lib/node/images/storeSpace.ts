import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PluginError } from '../../errors.ts';
import { formatBytes } from '../../byteSize.ts';

import { measureDisk } from './diskFloor.ts';
import { pathOnHost, type Host } from '../machine/host.ts';
import type { ImageStore, StoreIndex } from './imageStore.ts';
import { blobsOfImage, sizeOf, type PlannedImage } from './loadPlan.ts';

/** Layers are larger in a store than in a bundle: an OpenShift release grows from 16 to 32 GiB. */
const unpackedFactor = 2;

interface Destination {
  readonly host: Host;
  readonly store: ImageStore;
  /** The folder for temporary files. */
  readonly work: string;
  /** The number of parallel copies. */
  readonly concurrency: number;
}

/**
 * Checks that there is space for images that the store lacks: unpacked in the store, and packed in the work folder for
 * each parallel copy. Creates both folders. Throws `disk-full` and `not-writable`.
 */
export async function checkStoreSpace(
  images: readonly PlannedImage[],
  index: StoreIndex,
  { host, store, work, concurrency }: Destination,
): Promise<void> {
  const held = index.listBlobs();
  const measureLacking = (some: readonly PlannedImage[]): number =>
    sizeOf(new Map([...blobsOfImage(some)].filter(([digest]) => !held.has(digest))));
  const unpacked = unpackedFactor * measureLacking(images);
  const largest = images.map((image) => measureLacking([image])).sort((a, b) => b - a);
  const packed = largest.slice(0, concurrency).reduce((total, size) => total + size, 0);
  const temporary = join(work, 'tmp');
  const [inStore, inWork] = await Promise.all([measure(host, store.graphRoot), measure(host, temporary)]);
  const isShared = inStore.device === inWork.device;
  const needs = [
    { path: store.graphRoot, free: inStore.free, needed: isShared ? unpacked + packed : unpacked },
    { path: temporary, free: inWork.free, needed: packed },
  ];
  const lack = needs.find(({ free, needed }) => free < needed);
  if (!lack) return;
  const { path, free, needed } = lack;
  const amounts = `needs about ${formatBytes(needed)} in ${path}, and ${formatBytes(free)} are free there`;
  const what = images.length === 1 ? 'the image' : `what is missing of ${images.length} images`;
  throw new PluginError('disk-full', `${what} ${amounts}`, {
    hint: 'Free space, or load only some of the images.',
    settings: ['images'],
  });
}

async function measure(host: Host, path: string): Promise<{ readonly free: number; readonly device: number }> {
  const folder = pathOnHost(host, path);
  const { free } = await measureDisk(folder, 0);
  return { free, device: (await stat(folder)).dev };
}
