import { constants } from 'node:fs';
import { open, readFile, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { openBundle } from '#bundle/open';
import { verifyBundle } from '#bundle/verify';
import { writeFully } from '#content/files';
import type { Digest } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, messageOf, PluginError, firstMessage } from '#errors';
import { formatBytes } from '#text';
import type { Host } from '../machine/host.ts';
import { firstEntryOf, type BlockDevice, dropCache, listDevices, probeDevice } from './blockDevices.ts';
import { readHead } from './medium.ts';
import { reportRegionOf } from './reportRegion.ts';

/** A device that may be written. */
export interface WritableDevice {
  readonly path: string;
  /** The size in bytes. */
  readonly size: number;
  /** The number that the kernel gave the drive when it was plugged in; undefined before Linux 5.15. */
  readonly sequence: string | undefined;
}

/** The part at the end of a device that may have the copy of a partition table, in bytes. */
const tailSize = 1024 * 1024;

/**
 * Checks that a device may be written: it is removable, not in use, and empty unless `overwrite` is set. Returns its
 * path without links, and its size. Throws `usage`, `busy`, `conflict`, and `not-found` without lsblk.
 */
export async function checkDevice(
  host: Host,
  path: string,
  overwrite: boolean,
  context: Context,
): Promise<WritableDevice> {
  const device = await findDevice(host, path, context);
  const refuse = (why: string, hint: string): never => {
    throw new PluginError('usage', `${path} ${why}: nothing is written to it`, { hint });
  };
  if (!['disk', 'part', 'loop'].includes(device.type))
    refuse(`is a device of the type ${device.type}`, 'Name a USB drive.');
  if (!device.removable || device.remote) refuse('is not removable', 'Name a USB drive: lsblk lists the devices.');
  if (device.size === 0) refuse('has no medium', 'Insert one.');
  if (device.inUse) {
    const hint = 'Unmount it and its partitions: lsblk lists the mount points.';
    throw new PluginError('busy', `${path} is in use: it or a partition of it is mounted`, { hint });
  }
  const content = await describeContent(host, device, context);
  if (content !== undefined && !overwrite) {
    throw new PluginError('conflict', `${path} is not empty: it has ${content}`, {
      hint: 'Check that it is the right device: everything on it would be lost.',
      settings: ['overwrite'],
    });
  }
  return { path: device.path, size: device.size, sequence: await readSequence(device) };
}

/**
 * Checks the device again, as checkDevice does, because another drive may have its path after a long download. Throws
 * `conflict` if it is another drive, and the errors of checkDevice.
 */
async function checkSameDevice(
  host: Host,
  device: WritableDevice,
  overwrite: boolean,
  context: Context,
): Promise<void> {
  const now = await checkDevice(host, device.path, overwrite, context);
  if (now.size === device.size && now.sequence === device.sequence) return;
  throw new PluginError('conflict', `${device.path} is another drive than at the start: nothing is written to it`, {
    hint: 'Plug in the right drive, and run the same command again.',
  });
}

/** Returns the number that the kernel gives each disk that appears. A partition has that of its disk. */
async function readSequence({ kernelName }: BlockDevice): Promise<string | undefined> {
  const folder = await realpath(join('/sys/class/block', basename(kernelName))).catch(() => undefined);
  if (folder === undefined) return undefined;
  const read = (path: string): Promise<string | undefined> =>
    readFile(join(path, 'diskseq'), 'utf8').catch(() => undefined);
  return (await read(folder)) ?? (await read(dirname(folder)));
}

async function findDevice(host: Host, path: string, context: Context): Promise<BlockDevice> {
  const real = await realpath(path).catch(() => {
    throw new PluginError('not-found', `${path}: no such device`, {
      hint: 'Check whether it is plugged in: lsblk lists the devices.',
    });
  });
  const blockDevice = (await listDevices(host, context)).find((device) => device.path === real);
  if (blockDevice) return blockDevice;
  throw new PluginError('usage', `${path} is not a block device`, { hint: 'Name a device, such as /dev/sdb.' });
}

/** Describes the content of a device for messages; undefined if it is empty. */
async function describeContent(host: Host, device: BlockDevice, context: Context): Promise<string | undefined> {
  if (device.divided) return 'partitions';
  const { filesystem, label } = await probeDevice(host, device.path, context);
  const name = label === undefined ? '' : ` (${label})`;
  if (filesystem !== undefined) return `a file system of the type ${filesystem}${name}`;
  const head = await readHead(host, device.path, context);
  if (firstEntryOf(head) !== undefined) return 'a tar';
  return head.every((byte) => byte === 0) ? undefined : 'other data';
}

/**
 * Writes a bundle onto a device, from its first byte, if it is still the checked one. The head is written last, so that
 * an interrupted run leaves no bundle. Then drops the cache of the device, and verifies every byte that it returns.
 * Throws `disk-full`, `busy`, `not-writable`, `digest-mismatch`, and the errors of reading.
 */
export async function writeDevice(
  host: Host,
  device: WritableDevice,
  bundle: { readonly path: string; readonly digest: Digest },
  overwrite: boolean,
  contexts: { readonly writing: Context; readonly verifying: Context },
): Promise<void> {
  const { writing, verifying } = contexts;
  const { path, size } = device;
  await checkSameDevice(host, device, overwrite, writing);
  const source = await openBundle(bundle.path, writing);
  try {
    const region = reportRegionOf(source.metadata);
    const needs = region ? region.offset + region.size : source.size;
    if (needs > size) {
      const [needed, has] = [formatBytes(needs), formatBytes(size)];
      throw new PluginError('disk-full', `${path} has ${has}, and the bundle needs ${needed}`, {
        hint: 'Use a larger one.',
      });
    }
    if (!source.chunks) throw new PluginError('unsupported', `${bundle.path} is a directory`);
    writing.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: source.size, present: 0 });
    await writeBytes(path, size, { size: source.size, chunks: source.chunks, digest: bundle.digest }, writing);
  } finally {
    await source[Symbol.asyncDispose]();
  }
  // Otherwise the kernel would return what it still holds in memory.
  await dropCache(host, path, verifying);
  await verifyDevice(path, bundle.digest, verifying);
}

interface BundleBytes {
  readonly size: number;
  readonly digest: Digest;
  readonly chunks: (start: number, size: number) => AsyncIterable<Buffer>;
}

async function writeBytes(path: string, room: number, bytes: BundleBytes, context: Context): Promise<void> {
  try {
    // The kernel refuses O_EXCL for a device that another program uses.
    await using file = await open(path, constants.O_RDWR | constants.O_EXCL);
    let head: Buffer | undefined;
    let position = 0;
    for await (const chunk of bytes.chunks(0, bytes.size)) {
      checkInterrupted(context.signal);
      head ??= Buffer.from(chunk);
      await writeFully(file, position === 0 ? Buffer.alloc(chunk.length) : chunk, position);
      position += chunk.length;
      context.onEvent({ kind: 'bytes', digest: bytes.digest, bytes: chunk.length });
    }
    const tail = Math.min(tailSize, room - position);
    if (tail > 0) await writeFully(file, Buffer.alloc(tail), room - tail);
    await file.sync();
    if (head) await writeFully(file, head, 0);
    await file.sync();
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    const code = cause instanceof Error && 'code' in cause && cause.code === 'EBUSY' ? 'busy' : 'not-writable';
    const hint =
      code === 'busy' ? 'Another program uses it: unmount it.' : 'Check its write protection, or use another one.';
    throw new PluginError(code, `${path} cannot be written: ${messageOf(cause)}`, { hint, cause });
  }
}

async function verifyDevice(path: string, digest: Digest, context: Context): Promise<void> {
  const written = await openBundle(path, context);
  try {
    const expected = [{ digest, source: 'the bundle that was written' }];
    const { problems } = await verifyBundle(written, { expected, assumeBase: true }, context);
    const message = firstMessage(problems);
    if (message === undefined) return;
    throw new PluginError('digest-mismatch', `${path} returned other bytes than were written: ${message}`, {
      hint: 'The drive is worn out or reports a wrong size. Use another one.',
    });
  } finally {
    await written[Symbol.asyncDispose]();
  }
}
