import { lstat, stat } from 'node:fs/promises';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { checkFileWritable, checkFolderCreatable, describeWriteError, makeFolders } from '../content/files/disk.ts';
import { checkLock } from '../content/files/lock.ts';
import { partialOf } from '../content/archive/unfinished.ts';

/**
 * Checks that a path is a folder or can become one, before any request. Writes nothing in a dry run. Throws
 * `not-writable`.
 */
export async function checkFolder(path: string, isDryRun = false): Promise<void> {
  const stats = await stat(path).catch(() => lstat(path).catch(() => undefined));
  if (stats?.isDirectory()) return;
  if (!stats) return isDryRun ? undefined : checkFolderCreatable(path);
  const what = stats.isSymbolicLink() ? 'is a link to a folder that does not exist' : 'is not a folder';
  throw new PluginError('not-writable', `${path} ${what}`, {
    hint: 'Choose another output folder.',
    settings: ['output'],
  });
}

/**
 * Checks that a bundle can be written, without writing. Its folder, or the parent of a new folder, must be writable, no
 * folder may have its name, and no other run may write it. Throws `not-writable` and `busy`.
 */
export async function checkOutput(path: string): Promise<void> {
  await checkLock(lockOf(path), path);
  for (const file of [path, partialOf(path), `${path}.sha256`, `${path}.yaml`]) await checkFileWritable(file);
}

/** Creates the folder of a bundle if it is missing. Throws `disk-full` and `not-writable`. */
export async function makeFolder(path: string): Promise<void> {
  try {
    await makeFolders(path);
  } catch (error) {
    const described = describeWriteError(error, path);
    if (isPluginError(described)) throw described;
    throw new PluginError('not-writable', `the folder ${path} cannot be created: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Returns the path of the lock file of a bundle. */
export function lockOf(path: string): string {
  return `${path}.lock`;
}
