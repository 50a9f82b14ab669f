import { constants, type Stats } from 'node:fs';
import { lstat, open, rename, rm, stat, statfs, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { smallestReportSpace } from '#bundle/metadata';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { pathOnHost, type Host } from '../machine/host.ts';
import { runProgram } from '../machine/programs.ts';
import { type BlockDevice, listDevices, probeDevice } from './blockDevices.ts';
import type { PrivateMounts } from './privateMounts.ts';
import { planReport, type Region, type StoredReport } from './reportRegion.ts';

/** The label of a partition for reports, and the name of the file in it. */
const reportLabel = 'OCPRPT';
/** The file with reports in the partition with the label `reportLabel`. */
export const reportFile = 'oc-reports.img';

/** The usual and the largest size of that file, in bytes. */
const fileSize = { usual: 2 * smallestReportSpace, most: 16 * smallestReportSpace };
/** The space that stays free on a partition, in bytes. */
const spare = 1024 * 1024;

/**
 * The file systems that a report is written to, with the mount options that keep a fault in them from stopping the
 * machine.
 */
const writableOptions: Readonly<Record<string, readonly string[]>> = {
  vfat: ['errors=remount-ro'],
  exfat: ['errors=remount-ro'],
  ext4: ['errors=remount-ro'],
};

/** The result of writing: `same` if the drive has the report already, and the bytes that were written to the region. */
export interface WrittenReport {
  readonly outcome: 'written' | 'same';
  readonly bytes: number;
}

/**
 * Returns the partition for reports on the drive of a partition; undefined if there is none. It must be a partition of
 * the same removable drive, with the label, and not in use. Throws the errors of lsblk and blkid.
 */
export async function findReportPartition(
  host: Host,
  { kernelName, type, above }: BlockDevice,
  context: Context,
): Promise<(BlockDevice & { readonly filesystem: string }) | undefined> {
  const [disk] = type === 'part' ? above : [kernelName];
  if (disk === undefined || above.length > 1) return undefined;
  for (const device of await listDevices(host, context)) {
    const isSibling = device.type === 'part' && device.above.length === 1 && device.above[0] === disk;
    if (!isSibling || device.kernelName === kernelName || !device.removable || device.remote) continue;
    if (device.inUse || device.divided || device.size === 0) continue;
    const { label, filesystem = '', isAmbivalent } = await probeDevice(host, device.path, context);
    if (label === reportLabel && !isAmbivalent && Object.hasOwn(writableOptions, filesystem))
      return { ...device, filesystem };
  }
  return undefined;
}

/**
 * Writes a report into the file of a partition, which is mounted for writing only meanwhile. The file is filled when it
 * is made, and then only overwritten in place, so the file system changes no structure of its own. `confirm` throws if
 * the drive is another one by now. Throws `not-writable`, `disk-full` and `not-readable`.
 */
export async function writeToPartition(
  host: Host,
  mounts: PrivateMounts,
  partition: BlockDevice & { readonly filesystem: string },
  report: Pick<StoredReport, 'name' | 'content'>,
  confirm: () => Promise<void>,
  context: Context,
): Promise<WrittenReport> {
  const name = `${partition.kernelName}.report`;
  const { filesystem, path } = partition;
  const flags = ['rw', 'nosuid', 'nodev', 'noexec', ...(writableOptions[filesystem] ?? [])];
  await mounts.mountWith(path, name, filesystem, flags);
  try {
    await confirm();
    const folder = mounts.hostPathOf(name);
    const [mounted, device] = await Promise.all([stat(pathOnHost(host, folder)), stat(pathOnHost(host, path))]);
    // Otherwise this would write into the folder of the mount.
    if (mounted.dev !== device.rdev) throw notWritable(path, 'it is not mounted');
    const file = join(folder, reportFile);
    const size = (await sizeOfRegion(pathOnHost(host, file))) ?? (await makeFile(host, folder, path, context));
    await using handle = await openRegular(pathOnHost(host, file));
    return await writeRegion(host, file, size, handle, report, context);
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    throw notWritable(path, messageOf(cause), cause);
  } finally {
    await mounts.release(name);
  }
}

/**
 * Writes a report into a region of a device after its bundle. A loop device maps the region alone, so no byte outside
 * of it can be written. `confirm` throws if the drive is another one by now. Throws `not-writable`.
 */
export async function writeAfterBundle(
  host: Host,
  { path, size }: BlockDevice,
  region: Region,
  report: Pick<StoredReport, 'name' | 'content'>,
  confirm: () => Promise<void>,
  context: Context,
): Promise<WrittenReport> {
  if (region.offset + region.size > size)
    throw notWritable(path, 'it is smaller than the bundle and its space for reports');
  const limits = ['--offset', String(region.offset), '--sizelimit', String(region.size)];
  // A run that was killed has left its loop device, which is used again.
  const loop = await require(host, 'losetup', ['--nooverlap', '--find', '--show', ...limits, path], path, context);
  if (!/^\/dev\/loop\d+$/.test(loop)) throw notWritable(path, `losetup printed ${loop}`);
  try {
    const actual = await require(host, 'blockdev', ['--getsize64', loop], path, context);
    if (Number(actual) !== region.size) throw notWritable(path, `the mapped space has ${actual} bytes`);
    await confirm();
    await using handle = await open(pathOnHost(host, loop), constants.O_RDONLY);
    return await writeRegion(host, loop, region.size, handle, report, context);
  } finally {
    const { signal } = new AbortController();
    await runProgram(host, 'losetup', ['--detach', loop], { ...context, signal });
  }
}

async function writeRegion(
  host: Host,
  path: string,
  size: number,
  handle: FileHandle,
  report: Pick<StoredReport, 'name' | 'content'>,
  context: Context,
): Promise<WrittenReport> {
  const read = async (offset: number, length: number): Promise<Buffer> => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, offset);
    return buffer.subarray(0, bytesRead);
  };
  const writes = await planReport(size, report, read);
  for (const { offset, bytes } of writes ?? []) {
    // Another process writes, because a hung device would block a thread of this one. fsync: each step is on the drive
    // before the next one begins.
    const args = [`of=${path}`, `seek=${offset}`, 'bs=64K', 'oflag=seek_bytes,nofollow', 'iflag=fullblock'];
    await require(host, 'dd', [...args, 'conv=notrunc,nocreat,fsync', 'status=none'], path, context, bytes);
  }
  const bytes = (writes ?? []).reduce((sum, { bytes: each }) => sum + each.length, 0);
  return { outcome: writes ? 'written' : 'same', bytes };
}

/** Returns the size of the file for reports; undefined if there is none that can be written in place. */
async function sizeOfRegion(path: string): Promise<number | undefined> {
  const stats = await lstat(path).catch(() => undefined);
  if (!stats || !isUsable(stats)) return undefined;
  return stats.size;
}

// A file with holes needs new blocks, and one with several names may be another file too.
function isUsable(stats: Stats): boolean {
  const isFilled = stats.blocks * 512 >= stats.size;
  const fits = stats.size >= smallestReportSpace && stats.size <= fileSize.most && stats.size % 4096 === 0;
  return stats.isFile() && stats.nlink === 1 && isFilled && fits;
}

async function makeFile(host: Host, folder: string, device: string, context: Context): Promise<number> {
  const { bavail, bsize } = await statfs(pathOnHost(host, folder));
  const free = bavail * bsize - spare;
  const size = [fileSize.usual, smallestReportSpace].find((each) => each <= free);
  if (size === undefined) {
    throw new PluginError('disk-full', `${device} has no space for reports: ${smallestReportSpace} bytes are needed`, {
      hint: `Make the partition with the label ${reportLabel} larger, or remove files from it.`,
    });
  }
  const [path, made] = [join(folder, reportFile), join(folder, `${reportFile}.new`)];
  for (const each of [path, made]) await rm(pathOnHost(host, each), { force: true });
  const count = `count=${Math.ceil(size / 1024 ** 2)}`;
  const args = ['if=/dev/zero', `of=${made}`, 'bs=1M', count, 'oflag=nofollow', 'conv=excl,fsync', 'status=none'];
  await require(host, 'dd', args, device, context);
  await rename(pathOnHost(host, made), pathOnHost(host, path));
  await require(host, 'sync', ['--file-system', folder], device, context);
  return size;
}

async function openRegular(path: string): Promise<FileHandle> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  if (isUsable(await handle.stat())) return handle;
  await handle.close();
  throw notWritable(path, 'it is not a usual file that is filled');
}

async function require(
  host: Host,
  program: string,
  args: readonly string[],
  device: string,
  context: Context,
  input?: Buffer,
): Promise<string> {
  const options = input ? { input: oneChunk(input) } : {};
  const { code, stdout, stderr } = await runProgram(host, program, args, context, options);
  if (code !== 0) throw notWritable(device, (stderr.trim().split('\n')[0] ?? '').slice(0, 200));
  return stdout.trim();
}

async function* oneChunk(bytes: Buffer): AsyncGenerator<Buffer> {
  yield await Promise.resolve(bytes);
}

function notWritable(path: string, why: string, cause?: unknown): PluginError {
  return new PluginError('not-writable', `no report can be written to ${path}: ${why}`, {
    hint: 'Check its write protection, or use another drive.',
    cause,
  });
}
