import { constants } from 'node:fs';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { describeWriteError, makeFolders, syncFolder } from './disk.ts';
import { publicMode } from './regularFile.ts';

/** Options of replacing a file. */
export interface AtomicWriteOptions {
  /** Permissions, before the umask; 0644 by default. */
  readonly mode?: number;
  /** The path of the incomplete file, on the same file system; `<path>.partial` by default. */
  readonly partial?: string;
  /** Sets attributes of the file before it gets its name, such as its owner. */
  readonly prepare?: (file: FileHandle) => Promise<void>;
  /** The name of the file in errors; its path by default. */
  readonly name?: string;
}

/**
 * Writes a small file atomically and durably, and creates its folder. A reader finds the old content or the new
 * content. Throws `disk-full` and `not-writable`.
 */
export async function writeAtomically(
  path: string,
  content: Buffer | string | AsyncIterable<Buffer>,
  { mode, partial = `${path}.partial`, prepare, name = path }: AtomicWriteOptions = {},
): Promise<void> {
  try {
    await makeFolders(dirname(path));
    try {
      await writeDurably(partial, content, { mode, prepare });
      await renameDurably(partial, path);
    } catch (error) {
      await rm(partial, { force: true }).catch(() => undefined);
      throw error;
    }
  } catch (error) {
    throw describeWriteError(error, name);
  }
}

/** Writes a new file durably, and replaces any file or link of that name. Throws the system’s errors. */
export async function writeDurably(
  path: string,
  content: Buffer | string | AsyncIterable<Buffer>,
  { mode = publicMode, prepare }: { mode?: number; prepare?: AtomicWriteOptions['prepare'] } = {},
): Promise<void> {
  // Another user may have created a link there, and writing must not follow it.
  await rm(path, { force: true });
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  await using file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  await file.writeFile(content);
  await prepare?.(file);
  await file.sync();
}

/** Gives a file its final name, durably. Throws the system’s errors. */
export async function renameDurably(from: string, to: string): Promise<void> {
  await rename(from, to);
  await syncFolder(dirname(to));
}
