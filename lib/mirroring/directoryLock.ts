import { join } from 'node:path';
import { describeWriteError, makeFolders } from '../content/files/disk.ts';
import { takeLock } from '../content/files/lock.ts';
import { directoryLock } from '../content/store/directoryNames.ts';

/**
 * Runs an action while no other run of this program writes to some mirror directories. Creates missing directories. Throws
 * `busy`, `not-writable`, `disk-full`, and the errors of the action.
 */
export async function whileLocked<R>(roots: readonly string[], action: () => Promise<R>): Promise<R> {
  const [root, ...others] = new Set(roots);
  if (root === undefined) return action();
  await makeFolders(root).catch((error: unknown) => {
    throw describeWriteError(error, root);
  });
  await using _lock = await takeLock(join(root, directoryLock), `the mirror directory ${root}`);
  return await whileLocked(others, action);
}
