import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rename, rm, type FileHandle, copyFile, link, lstat, readdir, symlink, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, basename, join } from 'node:path';
import { digestOf, hexOf } from '../oci/reference.ts';
import { describeWriteError, makeFolders, syncFolder } from './disk.ts';
import { ignoreMissing } from './fileRange.ts';
import { isRunning, processNamespace } from './lock.ts';
import { publicMode } from './smallFile.ts';

/** Options of replacing a file. */
interface AtomicWriteOptions {
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

const pattern = /^\.[\w.-]+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{16}\.partial$/;
const linkAttempts = 10;
const abandonedAfter = 60 * 60 * 1000;

/** Returns a name for an incomplete file that no other writer uses: `.<what>.<machine>-<process>-<random>.partial`. */
export function partialName(what: string): string {
  return `.${what}.${machineHash()}-${process.pid}-${randomBytes(8).toString('hex')}.partial`;
}

/**
 * Creates a file or link as `partial`, and renames it to its final name. Leaves nothing after a failure, or if `make`
 * returns false.
 */
export async function placeFile(
  partial: string,
  path: string,
  make: (partial: string) => Promise<void | boolean>,
): Promise<void> {
  try {
    if ((await make(partial)) !== false) await rename(partial, path);
  } finally {
    // Also after success, because rename of POSIX keeps both if they are hard links to one file.
    await unlink(partial).catch(ignoreMissing);
  }
}

/** Creates a hard link to a file, or a copy if the file system does not support the link. */
export async function linkOrCopy(from: string, to: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await orCopy(link(from, to), from, to);
      return;
    } catch (error) {
      // Linux reports ENOENT while another writer replaces the file with the same content.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || attempt === linkAttempts) throw error;
    }
  }
}

/** Creates a symbolic link to a file in the same folder, or a copy if links are not supported. */
export function symlinkOrCopy(from: string, to: string): Promise<void> {
  return orCopy(symlink(basename(from), to), from, to);
}

/** Makes a symbolic link to a file in the same folder. Returns false if links are not supported. */
export async function symlinkIfSupported(from: string, to: string): Promise<boolean> {
  if (process.platform === 'win32') return false;
  try {
    await symlink(basename(from), to);
    return true;
  } catch (error) {
    if (!isUnsupportedLink(error)) throw error;
    return false;
  }
}

function isUnsupportedLink(error: unknown): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  return ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EXDEV', 'EMLINK'].includes(code);
}

async function orCopy(linking: Promise<void>, from: string, to: string): Promise<void> {
  try {
    await linking;
  } catch (error) {
    if (!isUnsupportedLink(error)) throw error;
    await copyFile(from, to, constants.COPYFILE_EXCL);
  }
}

/**
 * Removes incomplete files of ended processes of this machine, and files that did not change for an hour. Returns the
 * removed names.
 */
export async function removeAbandoned(folder: string): Promise<string[]> {
  const removed: string[] = [];
  for (const name of await readdir(folder)) {
    const [, owner, pid] = pattern.exec(name) ?? [];
    if (owner === undefined) continue;
    const path = join(folder, name);
    const { mtimeMs } = await lstat(path).catch(() => ({ mtimeMs: Date.now() }));
    const ended = owner === machineHash() && !isRunning(Number(pid));
    if (!ended && Date.now() - mtimeMs < abandonedAfter) continue;
    await rm(path, { force: true });
    removed.push(name);
  }
  return removed;
}

let machine: string | undefined;

function machineHash(): string {
  return (machine ??= hexOf(digestOf(`${hostname()} ${processNamespace()}`)).slice(0, 8));
}
