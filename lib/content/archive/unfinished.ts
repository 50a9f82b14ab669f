import { constants, closeSync, ftruncateSync, rmSync, writeSync } from 'node:fs';
import { lstat, readdir, rename, rm, unlink, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { checkSpace, syncFolder, describeWriteError } from '../files/disk.ts';
import { isMissing } from '../files/fileRange.ts';
import { openRegular, openRegularSync, readWhole } from '../files/smallFile.ts';
import { isDigest, type Digest } from '../oci/reference.ts';
import { parseVolumeName, removeVolumes, Volumes, type Volume } from './volumes.ts';

/** Returns the path of an unfinished archive, or of an unfinished volume. */
export function partialOf(path: string): string {
  return `${path}.partial`;
}

/** Returns the path of the journal of an unfinished archive. */
export function journalOf(path: string): string {
  return `${path}.partial.journal`;
}

/**
 * Returns whether the unfinished files of an archive exist with their expected sizes. Throws `disk-full` if the disk
 * has no space for the rest.
 */
export async function checkPartials(path: string, volumes: readonly Volume[]): Promise<boolean> {
  const present = await Promise.all(volumes.map((volume) => measure(partialOf(volume.path))));
  const needed = volumes.reduce((sum, { size }, index) => sum + size - (present[index]?.blocks ?? 0) * 512, 0);
  await checkSpace(path, needed);
  return volumes.every(({ size }, index) => size === present[index]?.size);
}

/**
 * Opens the unfinished files of an archive, and creates missing ones. Throws `not-writable` for a link or a special
 * file.
 */
export function openPartials(volumes: readonly Volume[]): Promise<Volumes> {
  return Volumes.open(volumes, ({ path, size }) => openOrCreate(partialOf(path), size));
}

/** Returns whether an unfinished archive of that name exists, as one file or as volumes. */
export async function isBegun(path: string): Promise<boolean> {
  return (await listPartials(path)).length > 0;
}

/**
 * Removes an unfinished archive, as one file or as volumes. Removes the journal first, because it must never be
 * beside a newer file.
 */
export async function removePartials(path: string): Promise<void> {
  await rm(journalOf(path), { force: true });
  // Fails for a folder of that name.
  for (const partial of await listPartials(path)) await unlink(partial);
}

async function listPartials(path: string): Promise<string[]> {
  const name = basename(path);
  const isOurs = (file: string): boolean => {
    const whole = file.replace(/\.partial$/, '');
    return file !== whole && (whole === name || parseVolumeName(whole)?.path === name);
  };
  return (await readdir(dirname(path))).filter(isOurs).map((file) => join(dirname(path), file));
}

/** Restores the unfinished names of volumes after a run that ended while it renamed them. */
export async function restorePartials(volumes: readonly Volume[]): Promise<void> {
  if (volumes.length === 1) return;
  for (const { path, size } of volumes) {
    const isRenamed = (await measure(partialOf(path))).size < 0 && (await measure(path)).size === size;
    if (isRenamed) await rename(path, partialOf(path));
  }
}

/**
 * Gives the files of an archive their final names. The first volume is last, because without it the archive is not
 * complete. Removes the files of an earlier archive of that name.
 */
export async function renamePartials(path: string, volumes: readonly Volume[]): Promise<void> {
  const isSplit = volumes.length > 1;
  if (isSplit) {
    await rm(path, { force: true });
    await removeVolumes(path);
  }
  for (const volume of volumes.toReversed()) await rename(partialOf(volume.path), volume.path);
  if (!isSplit) await removeVolumes(path);
  await syncFolder(dirname(path));
}

async function openOrCreate(path: string, size: number): Promise<FileHandle> {
  const { O_CREAT, O_EXCL, O_RDWR } = constants;
  return openRegular(path, O_RDWR).catch(async (error: unknown) => {
    if (!isMissing(error)) throw error;
    const file = await openRegular(path, O_RDWR | O_CREAT | O_EXCL);
    try {
      await file.truncate(size);
      return file;
    } catch (failure) {
      await file.close();
      throw failure;
    }
  });
}

/** Returns the size of a file in bytes, and its blocks of 512 bytes on the disk. */
async function measure(path: string): Promise<{ size: number; blocks: number }> {
  return lstat(path).catch(() => ({ size: -1, blocks: 0 }));
}

const { O_APPEND, O_CREAT, O_EXCL, O_WRONLY } = constants;

/** The largest journal in bytes. A bundle of 1 TB has some 10 MB. */
const sizeLimit = 256 * 1024 * 1024;

/**
 * The state of an unfinished archive. The first line identifies the layout. Each other line is for complete content
 * (`<digest>`), for content that has begun (`<digest> <bytes>`), or for content to write again (`<digest> 0`). Lines
 * are only appended, so a killed run loses at most the last one. Writing throws `disk-full` and `not-writable`.
 */
export class Journal {
  /** Complete content. */
  readonly finished = new Set<Digest>();
  /** The number of written bytes of incomplete content. */
  readonly begun = new Map<Digest, number>();
  readonly #path: string;
  #fd: number | undefined;

  private constructor(path: string, fd: number) {
    this.#path = path;
    this.#fd = fd;
  }

  /** Creates a journal, and replaces any existing one. `identity` is one word. */
  static create(path: string, identity: string): Journal {
    rmSync(path, { force: true });
    const journal = new Journal(path, openRegularSync(path, O_WRONLY | O_CREAT | O_EXCL));
    journal.#write(identity);
    return journal;
  }

  /**
   * Opens a journal to resume from it. Returns undefined if there is no journal with that identity. Throws
   * `not-writable` if it is not a regular file, and `too-large`.
   */
  static async resume(path: string, identity: string): Promise<Journal | undefined> {
    const text = await readText(path);
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    const [first, ...lines] = whole.split('\n').slice(0, -1);
    if (first !== identity) return undefined;
    const fd = openRegularSync(path, O_WRONLY | O_APPEND);
    // An incomplete line could be read as another one, because a digest alone means complete content.
    ftruncateSync(fd, Buffer.byteLength(whole));
    const journal = new Journal(path, fd);
    for (const line of lines) journal.#take(line);
    return journal;
  }

  /** Records that content is complete. */
  finish(digest: Digest): void {
    this.#note(digest);
  }

  /** Records that the first `bytes` bytes of content are written. */
  begin(digest: Digest, bytes: number): void {
    this.#note(`${digest} ${bytes}`);
  }

  /** Records that content must be written again from its first byte. */
  forget(digest: Digest): void {
    this.#note(`${digest} 0`);
  }

  /** Closes the file. Later records are ignored. */
  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #note(line: string): void {
    this.#write(line);
    this.#take(line);
  }

  #write(line: string): void {
    // Records after the end are ignored.
    if (this.#fd === undefined) return;
    try {
      writeSync(this.#fd, `${line}\n`);
    } catch (error) {
      throw describeWriteError(error, this.#path);
    }
  }

  #take(line: string): void {
    const [digest = '', bytes] = line.split(' ');
    if (!isDigest(digest)) return;
    if (bytes === undefined) {
      this.finished.add(digest);
      this.begun.delete(digest);
    } else if (/^\d{1,15}$/.test(bytes)) {
      this.finished.delete(digest);
      this.begun.set(digest, Number(bytes));
    }
  }
}

async function readText(path: string): Promise<string> {
  try {
    await using file = await openRegular(path);
    return String(await readWhole(file, path, sizeLimit));
  } catch (error) {
    if (isMissing(error)) return '';
    throw error;
  }
}
