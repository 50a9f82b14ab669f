import { readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { describeWriteError, makeFolders } from '#content/files';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { formatBytes } from '#text';
import { pathOnHost, type Host } from '../machine/host.ts';
import type { ImageStore, StoreIndex } from './imageStore.ts';
import { blobsOfImage, sizeOf, type PlannedImage } from './loadPlan.ts';

/** The free space that the machine config operator requires, in bytes. */
const leastFloor = 16 * 2 ** 30;
/** The part of the file system below which the kubelet removes images and evicts pods. */
const leastPart = 0.15;
/** The pause between two checks, in milliseconds. */
const interval = 2000;

/** The free space of a disk, in bytes. */
interface DiskSpace {
  readonly free: number;
  /** The bytes of the whole file system. */
  readonly size: number;
  /** The bytes that must stay free. */
  readonly floor: number;
}

/**
 * Measures the file system of a folder, and creates the folder. `floor`: bytes to leave free, instead of the default.
 * Throws `not-writable`.
 */
export async function measureDisk(folder: string, floor?: number): Promise<DiskSpace> {
  try {
    await makeFolders(folder);
    const { bavail, bsize, blocks } = await statfs(folder);
    const size = blocks * bsize;
    return { free: bavail * bsize, size, floor: floor ?? Math.max(leastFloor, size * leastPart) };
  } catch (error) {
    throw describeWriteError(error, folder);
  }
}

/**
 * Runs work that fills a disk, and passes it the floor in bytes. Ends it with `disk-full` below the floor; written
 * files stay. Unfinished files in the folder (`….partial`) count as free at the start, because the work may find that
 * they are wrong. Throws the errors of the work.
 */
export async function stayAboveFloor<T>(
  folder: string,
  floor: number | undefined,
  context: Context,
  work: (context: Context, floor: number) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  const start = await measureDisk(folder, floor);
  if (start.free + (await sumPartials(folder)) < start.floor) throw belowFloor(folder, start);
  const least = Math.min(start.floor, start.free);
  const check = async (): Promise<PluginError | undefined> => {
    const space = await measureDisk(folder, floor);
    return space.free < least ? belowFloor(folder, space) : undefined;
  };
  let reason: PluginError | undefined;
  const watch = async (): Promise<void> => {
    reason ??= await check().catch(() => undefined);
    if (reason) stop.abort(reason);
  };
  const timer = setInterval(() => void watch(), interval);
  try {
    return await work({ ...context, signal: AbortSignal.any([context.signal, stop.signal]) }, start.floor);
  } catch (error) {
    // The error of the work says only that it was interrupted.
    throw context.signal.aborted ? error : (reason ?? error);
  } finally {
    clearInterval(timer);
  }
}

/** Returns the bytes that the unfinished files in a folder take on the disk. */
async function sumPartials(folder: string): Promise<number> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.partial'));
  const sizes = await Promise.all(
    names.map(async (name) => ((await stat(join(folder, name)).catch(() => undefined))?.blocks ?? 0) * 512),
  );
  return sizes.reduce((total, size) => total + size, 0);
}

function belowFloor(folder: string, { free, floor }: DiskSpace): PluginError {
  const message = `only ${formatBytes(free)} are free at ${folder}, and ${formatBytes(floor)} must stay free`;
  return new PluginError('disk-full', message, {
    hint: 'Free some space on that file system; the load then resumes without a command.',
  });
}

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
