import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { PluginError } from '../../errors.ts';

/** The permissions of every file that others may read. The umask can only remove some. */
export const publicMode = 0o644;

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/**
 * Opens a file of this program, such as a lock, a journal or an unfinished bundle, on a medium that another person may
 * have prepared. Follows no link, and does not wait for a pipe. `flags` are of `node:fs`; 0644 is the mode of a new file.
 * Throws `not-writable` with `name` if it is not a regular file, and the system’s errors.
 */
export async function openRegular(path: string, flags: number = O_RDONLY, name = path): Promise<FileHandle> {
  const file = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, publicMode).catch((error: unknown) => {
    throw explain(error, name);
  });
  const isFile = await file.stat().then(
    (stats) => stats.isFile(),
    () => false,
  );
  if (isFile) return file;
  await file.close();
  throw irregular(name);
}

/** Does the same synchronously, and returns the file descriptor. */
export function openRegularSync(path: string, flags: number): number {
  let fd: number;
  try {
    fd = openSync(path, flags | O_NOFOLLOW | O_NONBLOCK, publicMode);
  } catch (error) {
    throw explain(error, path);
  }
  if (fstatSync(fd).isFile()) return fd;
  closeSync(fd);
  throw irregular(path);
}

/** Explains the errors of links (ELOOP), and of sockets and pipes without a reader (ENXIO). */
function explain(error: unknown, path: string): unknown {
  const { code = '' } = error as NodeJS.ErrnoException;
  return code === 'ELOOP' || code === 'ENXIO' ? irregular(path, error) : error;
}

function irregular(path: string, cause?: unknown): PluginError {
  return new PluginError('not-writable', `${path} is a link, a pipe or another special file`, {
    hint: 'This program did not make it. Check the folder, remove it, and run the same command again.',
    cause,
  });
}
