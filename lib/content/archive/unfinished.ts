import { constants } from 'node:fs';
import { lstat, readdir, rename, rm, unlink, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { checkSpace, syncFolder } from '../files/disk.ts';
import { isMissing } from '../files/fileRange.ts';
import { openRegular } from '../files/smallFile.ts';
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
