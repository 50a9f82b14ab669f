import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rm, stat, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { describeReadError, ignoreMissing, type Piece, hashFile } from '../files/fileRange.ts';
import { RootFolder } from '../files/rootFolder.ts';
import type { Digest } from '../oci/reference.ts';

/** A file with a part of an archive, or with the whole archive. */
export interface Volume {
  readonly path: string;
  /** The size in bytes; infinite for a device, whose size is unknown. */
  readonly size: number;
}

/** The largest number of volumes, because their names have three digits. */
export const volumeLimit = 1000;

/** Returns the path of a volume: `upgrade.tar.000` is the first of `upgrade.tar`. */
export function volumeName(path: string, index: number): string {
  return `${path}.${String(index).padStart(3, '0')}`;
}

/**
 * Returns the path of the tar that a file is, or is a volume of; undefined for any other name. macOS writes files of
 * its own beside others on FAT, with `._` before the same name: they are no tars.
 */
export function tarOf(path: string): string | undefined {
  return /\.tar$/i.test(path) && !isOfMacOs(path) ? path : parseVolumeName(path)?.path;
}

/** Returns the path of the archive of a volume, with the number of the volume; undefined for any other name. */
export function parseVolumeName(path: string): { readonly path: string; readonly index: number } | undefined {
  const [, whole, digits] = /^(.+\.tar)\.(\d{3})$/is.exec(path) ?? [];
  return whole === undefined || isOfMacOs(whole) ? undefined : { path: whole, index: Number(digits) };
}

function isOfMacOs(path: string): boolean {
  return basename(path).startsWith('._');
}

/**
 * Plans the files of an archive of `size` bytes: one file with its own name if it fits into one volume, else volumes of
 * `volumeSize` bytes. Throws `usage` for too many volumes.
 */
export function planVolumes(path: string, size: number, volumeSize = Infinity): Volume[] {
  if (size <= volumeSize) return [{ path, size }];
  const count = Math.ceil(size / volumeSize);
  if (count > volumeLimit) {
    const smallest = String(Math.ceil(size / volumeLimit));
    throw new PluginError('usage', `${size} bytes would be ${count} volumes, more than the limit of ${volumeLimit}`, {
      hint: `Choose a volume size of at least ${smallest} bytes.`,
      settings: ['volumeSize'],
    });
  }
  return Array.from({ length: count }, (_, index) => ({
    path: volumeName(path, index),
    size: Math.min(volumeSize, size - index * volumeSize),
  }));
}

/** The existing files of an archive. */
export interface FoundArchive {
  /** The archive's own name, also if one of its volumes was named. */
  readonly path: string;
  /** Its files in order, up to the first missing volume. */
  readonly volumes: readonly Volume[];
  /** Volumes after a missing one, which cannot be read in place. */
  readonly severed: readonly Volume[];
}

/**
 * Finds the files of an archive by its path or by the path of any of its volumes; undefined if there is none, and for a
 * folder. Volumes must be regular files, and with `onMedium` the archive too, so that links are not followed. Throws
 * `not-readable`.
 */
export async function findArchive(path: string, onMedium = false): Promise<FoundArchive | undefined> {
  try {
    const named = parseVolumeName(path);
    const folder = new RootFolder(dirname(path));
    if (!named && onMedium) {
      const size = await folder.sizeOf(basename(path));
      if (size !== undefined) return { path, volumes: [{ path, size }], severed: [] };
    }
    const stats = named || onMedium ? undefined : await stat(path).catch(ignoreMissing);
    if (stats?.isDirectory()) return undefined;
    if (stats) return { path, volumes: [{ path, size: stats.isFile() ? stats.size : Infinity }], severed: [] };
    const whole = named?.path ?? path;
    const volumes = await listVolumes(whole);
    if (volumes.length === 0) return undefined;
    const gap = volumes.findIndex((volume, index) => volume.path !== volumeName(whole, index));
    const count = gap < 0 ? volumes.length : gap;
    return { path: whole, volumes: volumes.slice(0, count), severed: volumes.slice(count) };
  } catch (error) {
    throw describeReadError(error, path);
  }
}

/**
 * Opens a file of an archive for reading. Volumes, and with `onMedium` each file, must be regular files and not links.
 * A path from the user may be a link or a block device. Throws `not-readable`, also if the file has another size now.
 */
export async function openVolume(volume: Volume, onMedium: boolean): Promise<FileHandle> {
  const { path, size } = volume;
  try {
    const file = await openPath(path, onMedium);
    const stats = await file.stat();
    const isSame = size === Infinity || stats.size === size;
    if ((stats.isFile() || stats.isBlockDevice()) && isSame) return file;
    await file.close();
    const why = isSame ? 'is neither a file nor a block device' : 'was replaced while it was opened';
    throw new PluginError('not-readable', `${path} ${why}`);
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
  }
}

function openPath(path: string, onMedium: boolean): Promise<FileHandle> {
  if (onMedium || parseVolumeName(path)) return new RootFolder(dirname(path)).open(basename(path));
  // Opening a pipe without a writer would block.
  return open(path, constants.O_RDONLY | constants.O_NONBLOCK);
}

/** Lists the archives in a folder that consist of volumes, by their own paths, sorted. Throws `not-readable`. */
export async function listVolumeSets(folder: string): Promise<string[]> {
  const entries = await new RootFolder(folder).list('', (name) => parseVolumeName(name) !== undefined);
  return [...new Set(entries.flatMap(({ path }) => parseVolumeName(path)?.path ?? []))].sort();
}

/** Removes each existing volume of an archive. */
export async function removeVolumes(path: string): Promise<void> {
  for (const volume of await listVolumes(path)) await rm(volume.path, { force: true });
}

async function listVolumes(path: string): Promise<Volume[]> {
  const folder = new RootFolder(dirname(path));
  const own = await folder.list('', (name) => parseVolumeName(name)?.path === basename(path));
  const link = own.find(({ stats }) => stats.isSymbolicLink());
  if (link) {
    const what = `${join(dirname(path), link.path)} is a symbolic link, which is not followed`;
    throw new PluginError('not-readable', what, { hint: 'Put the volume itself into the folder of the others.' });
  }
  return own
    .filter(({ stats }) => stats.isFile())
    .map(({ path: name, stats }) => ({ path: join(dirname(path), name), size: stats.size }))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
}

/**
 * Open files that are read and written as one sequence of bytes. A single read or write never goes beyond the end of a
 * file.
 */
export class Volumes {
  readonly files: readonly Volume[];
  /** The size of all files, in bytes. */
  readonly size: number;
  readonly #handles: readonly FileHandle[];

  private constructor(files: readonly Volume[], handles: readonly FileHandle[]) {
    this.files = files;
    this.size = files.reduce((sum, { size }) => sum + size, 0);
    this.#handles = handles;
  }

  /** Opens all files with `open`; closes all if one fails. */
  static async open(files: readonly Volume[], open: (file: Volume) => Promise<FileHandle>): Promise<Volumes> {
    const handles: FileHandle[] = [];
    try {
      for (const file of files) handles.push(await open(file));
      return new Volumes(files, handles);
    } catch (error) {
      for (const handle of handles) await handle.close();
      throw error;
    }
  }

  /** Reads up to `length` bytes; 0 at the end of the last file. */
  async read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ bytesRead: number; buffer: Buffer }> {
    const place = this.#find(position);
    if (!place) return { bytesRead: 0, buffer };
    return place.handle.read(buffer, offset, Math.min(length, place.left), place.position);
  }

  /** Writes up to `length` bytes, and returns their number. Throws a RangeError after the last file. */
  async write(buffer: Buffer, offset: number, length: number, position: number): Promise<{ bytesWritten: number }> {
    const place = this.#find(position);
    if (!place) throw new RangeError(`there is no file for byte ${position}`);
    return place.handle.write(buffer, offset, Math.min(length, place.left), place.position);
  }

  /** Returns the ranges of the files that contain some bytes of the archive. */
  pieces(start: number, size: number): Piece[] {
    const pieces: Piece[] = [];
    for (let at = start; at < start + size;) {
      const place = this.#find(at);
      if (!place) break;
      const length = Math.min(place.left, start + size - at);
      pieces.push({ path: place.file.path, fd: place.handle.fd, position: place.position, size: length });
      at += length;
    }
    return pieces;
  }

  /** Syncs written data to disk. */
  async datasync(): Promise<void> {
    for (const handle of this.#handles) await handle.datasync();
  }

  async close(): Promise<void> {
    for (const handle of this.#handles) await handle.close();
  }

  #find(position: number): { file: Volume; handle: FileHandle; position: number; left: number } | undefined {
    let start = 0;
    for (const [index, file] of this.files.entries()) {
      const handle = this.#handles[index];
      if (handle && position < start + file.size)
        return { file, handle, position: position - start, left: start + file.size - position };
      start += file.size;
    }
    return undefined;
  }
}

/** The digests of an archive: of the whole, and of each complete volume. There are no volumes if it is one file. */
export interface ArchiveDigests {
  readonly digest: Digest;
  readonly volumes: readonly Digest[];
}

/** Computes the digest of one volume. Throws the errors of openVolume and of reading, and `interrupted`. */
export async function hashVolume(volume: Volume, { signal }: Pick<Context, 'signal'>): Promise<Digest> {
  await using file = await openVolume(volume, false);
  return await hashFile(file, volume.path, signal);
}

/** Computes the digests of an archive and of its volumes in one pass over its bytes. */
export class VolumeHash {
  readonly #sizes: readonly number[];
  #whole = createHash('sha256');
  #current = createHash('sha256');
  #finished: Digest[] = [];
  /** The number of bytes that the current volume still lacks. */
  #left: number;

  constructor(volumes: readonly Pick<Volume, 'size'>[]) {
    this.#sizes = volumes.length > 1 ? volumes.map(({ size }) => size) : [];
    this.#left = this.#sizes[0] ?? Infinity;
  }

  update(bytes: Uint8Array): void {
    this.#whole.update(bytes);
    if (this.#sizes.length === 0) return;
    for (let rest = bytes; rest.length > 0;) {
      const own = rest.subarray(0, this.#left);
      this.#current.update(own);
      this.#left -= own.length;
      rest = rest.subarray(own.length);
      if (this.#left === 0) this.#turn();
    }
  }

  /** Returns a copy of the current state. */
  copy(): VolumeHash {
    const copy = new VolumeHash(this.#sizes.map((size) => ({ size })));
    copy.#whole = this.#whole.copy();
    copy.#current = this.#current.copy();
    copy.#finished = [...this.#finished];
    copy.#left = this.#left;
    return copy;
  }

  /** Returns the digests. Call it once, at the end. */
  finish(): ArchiveDigests {
    return { digest: `sha256:${this.#whole.digest('hex')}`, volumes: this.#finished };
  }

  #turn(): void {
    this.#finished.push(`sha256:${this.#current.digest('hex')}`);
    this.#current = createHash('sha256');
    this.#left = this.#sizes[this.#finished.length] ?? Infinity;
  }
}
