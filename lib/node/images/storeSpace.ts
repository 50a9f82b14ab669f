import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PluginError } from '../../errors.ts';
import { describeBytes } from '../../files/disk.ts';
import { measureDisk } from './diskFloor.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import type { ImageStore, StoreIndex } from './imageStore.ts';
import { blobsOfImage, sizeOf, type PlannedImage } from './loadPlan.ts';

/** How much larger layers are in a store than in a bundle: 16 GiB of a release of OpenShift become 32. */
const unpackedFactor = 2;

/** Where images go, and how. */
interface Destination {
  readonly host: Host;
  readonly store: ImageStore;
  /** The folder where images are while they are being copied. */
  readonly work: string;
  /** How many are copied at a time. */
  readonly concurrency: number;
}

/**
 * Checks before anything is written that there is room for images of which the store has nothing but what its index lists: unpacked in the store, and
 * packed, as many as are copied at a time, in the folder for work. Both folders are made. Throws `disk-full` and `not-writable`.
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
  const amounts = `needs about ${describeBytes(needed)} in ${path}, and ${describeBytes(free)} are free there`;
  const what = images.length === 1 ? 'the image' : `what is missing of ${images.length} images`;
  throw new PluginError('disk-full', `${what} ${amounts}`, {
    hint: 'Free space, use an additional store on another file system, or load only some of the images.',
    settings: ['store', 'storePath', 'images'],
  });
}

async function measure(host: Host, path: string): Promise<{ readonly free: number; readonly device: number }> {
  const folder = pathOnHost(host, path);
  const { free } = await measureDisk(folder, 0);
  return { free, device: (await stat(folder)).dev };
}
