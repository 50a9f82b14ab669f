import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, open, realpath, rmdir, stat, statfs } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { isPluginError, messageOf, PluginError } from '#errors';
import { formatBytes } from '#text';
import { isMissing } from './fileRange.ts';

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

/**
 * The errors of systems and file systems that cannot sync a folder: Windows cannot open one or refuses it, and FUSE,
 * SMB and some others do not support it. A folder that may be entered but not read cannot be opened either.
 */
const unsupportedSync = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'ENOTTY', 'EPERM', 'EACCES', 'EISDIR']);

/**
 * Syncs the names in a folder to disk; does nothing if the system does not support it, or if the folder does not exist.
 * Throws the system’s other errors: after EIO, the names may be lost.
 */
export async function syncFolder(path: string): Promise<void> {
  try {
    await using folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
    await folder.sync();
  } catch (error) {
    if (!isMissing(error) && !unsupportedSync.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/**
 * Throws `disk-full` unless the file system of `path` has space for `needed` more bytes. `floor`: bytes that must stay
 * free.
 */
export async function checkSpace(path: string, needed: number, floor = 0): Promise<void> {
  const { folder, free } = await measureFree(path);
  if (needed <= free - floor) return;
  // A folder that is held open is named by its place in /proc.
  const named = await realpath(folder);
  const message =
    `${join(named, relative(folder, path))} needs ${formatBytes(needed)} more, and ${named} has ` +
    `${formatBytes(free)} free${floor > 0 ? `, of which ${formatBytes(floor)} must stay free` : ''}`;
  const hint = 'Choose another folder, or free some space.';
  throw new PluginError('disk-full', message, { hint });
}

/**
 * Returns the free bytes and the size of the file system of a path, and the folder that was measured: the nearest that
 * exists.
 */
export async function measureFree(
  path: string,
): Promise<{ readonly folder: string; readonly free: number; readonly size: number }> {
  const folder = await nearestExisting(dirname(path));
  const { bavail, bsize, blocks } = await statfs(folder);
  return { folder, free: bavail * bsize, size: blocks * bsize };
}

/**
 * Creates a folder and its parents, as `mkdir -p` does. `mode` is before the umask; 0755 by default, so that no other
 * user can write there. Throws the system’s error. The
 * `recursive` of Node.js never ends if the system reports ENOENT for a folder that it does not allow (`/proc/x`).
 */
export async function makeFolders(path: string, mode = 0o755): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    if (await isFolder(path)) return;
    const parent = dirname(resolve(path));
    if (!isMissing(error) || parent === resolve(path)) throw error;
    await makeFolders(parent, mode);
    await mkdir(path, { mode }).catch(async (failure: unknown) => {
      if (!(await isFolder(path))) throw failure;
    });
  }
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() ?? false;
}

/**
 * Checks, without writing, that a file can be written: no folder has its name, and its folder, or the nearest existing
 * parent, is writable. Throws `not-writable`.
 */
export async function checkFileWritable(path: string): Promise<void> {
  if (await isFolder(path)) {
    throw new PluginError('not-writable', `${path} is a folder, and a file of that name must be written`, {
      hint: 'Move it away, or choose another output folder.',
    });
  }
  const nearest = await nearestExisting(dirname(path));
  try {
    // With the slash, the system refuses a file.
    await access(`${nearest}/`, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw describeWriteError(error, nearest);
  }
}

/**
 * Checks that a missing folder can be created: its nearest existing parent takes a temporary folder. Its permissions
 * alone do not tell, because some file systems (`/proc`) allow no new folder. Throws `disk-full` and `not-writable`.
 */
export async function checkFolderCreatable(path: string): Promise<void> {
  try {
    await rmdir(await mkdtemp(join(await nearestExisting(path), '.oc-disconnected-')));
  } catch (error) {
    const described = describeWriteError(error, path);
    if (isPluginError(described, 'disk-full')) throw described;
    const [, reason = messageOf(error)] = /^E\w+: ([^,]+), mkdtemp/.exec(messageOf(error)) ?? [];
    const message =
      `the folder ${path} cannot be ` +
      `created: ${isMissing(error) ? 'its file system allows no new folders' : reason}`;
    const hint = 'Choose another folder.';
    throw new PluginError('not-writable', message, { hint, settings: ['output'], cause: error });
  }
}

/** Returns the path itself, or its nearest existing parent. */
async function nearestExisting(path: string): Promise<string> {
  const whole = resolve(path);
  const existing = await stat(whole).catch((error: unknown) => (isMissing(error) ? undefined : whole));
  return existing === undefined && dirname(whole) !== whole ? nearestExisting(dirname(whole)) : whole;
}
