import { open, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf, PluginError } from '../errors.ts';

const refusals = new Set([
  'EACCES',
  'EROFS',
  'EPERM',
  'ENOENT',
  'EEXIST',
  'ENOTDIR',
  'EISDIR',
  'ERR_FS_EISDIR',
  'ENAMETOOLONG',
  'EBUSY',
  'EIO',
  'ELOOP',
  'EMFILE',
  'ENFILE',
]);

/** Explains an error of writing: `disk-full`, `not-writable`, or the error itself. */
export function describeWriteError(error: unknown, path: string): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new PluginError('disk-full', `the disk is full: ${path} could not be written`, {
      hint: 'Free some space, then run the same command again: it resumes where it stopped.',
      cause: error,
    });
  }
  if (code === 'EFBIG') {
    return new PluginError('not-writable', `the file system of ${path} cannot hold a file that large`, {
      hint: 'FAT32 allows files below 4 GiB. Use volumes of 4G (4000 MB), or exFAT, ext4 or XFS.',
      settings: ['volumeSize'],
      cause: error,
    });
  }
  if (typeof code === 'string' && refusals.has(code)) {
    return new PluginError('not-writable', `${path} cannot be written: ${messageOf(error)}`, { cause: error });
  }
  return error;
}

/** Syncs the names in a folder to disk; does nothing if folders cannot be opened. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r').catch(() => undefined);
  await folder?.sync().catch(() => undefined);
  await folder?.close();
}

/** Throws `disk-full` unless the file system of `path` has space for `needed` more bytes. */
export async function checkSpace(path: string, needed: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(path));
  const free = bavail * bsize;
  if (needed <= free) return;
  throw new PluginError(
    'disk-full',
    `${path} needs ${describeBytes(needed)} more, and ${dirname(path)} has ${describeBytes(free)} free`,
    {
      hint: 'Choose another folder, or free some space.',
    },
  );
}

/** Formats a number of bytes in MiB or GiB. */
export function describeBytes(bytes: number): string {
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
