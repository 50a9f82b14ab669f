import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, link, lstat, readdir, rename, rm, symlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join } from 'node:path';
import { digestOf, hexOf } from '../oci/digest.ts';
import { isRunning, processNamespace } from './process.ts';

const pattern = /^\.[\w.-]+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{16}\.partial$/;
const linkAttempts = 10;
const abandonedAfter = 60 * 60 * 1000;

/**
 * A name for content on its way into a folder, which no other writer ever uses: `.<what>.<machine>-<process>-<random>.partial`.
 */
export function partialName(what: string): string {
  return `.${what}.${machineHash()}-${process.pid}-${randomBytes(8).toString('hex')}.partial`;
}

/** Makes a file or link as `partial` and gives it its final name in one step; when anything fails, nothing is left. */
export async function placeFile(
  partial: string,
  path: string,
  make: (partial: string) => Promise<void>,
): Promise<void> {
  try {
    await make(partial);
    await rename(partial, path);
  } finally {
    // Also after success: where both are hard links to one file, POSIX has rename do nothing and leave both.
    await rm(partial, { force: true });
  }
}

/** Makes a hard link to a file, or a copy where the file system has no such links, or not between these two places. */
export async function linkOrCopy(from: string, to: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await orCopy(link(from, to), from, to);
      return;
    } catch (error) {
      // Linux says ENOENT of a file that another writer replaces, by the same content, in this very moment.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || attempt === linkAttempts) throw error;
    }
  }
}

/** Makes a symbolic link to a file beside the one it gets the name of, or a copy where there are no such links. */
export function symlinkOrCopy(from: string, to: string): Promise<void> {
  return orCopy(symlink(basename(from), to), from, to);
}

async function orCopy(linking: Promise<void>, from: string, to: string): Promise<void> {
  try {
    await linking;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EXDEV', 'EMLINK'].includes(code)) throw error;
    await copyFile(from, to, constants.COPYFILE_EXCL);
  }
}

/**
 * Removes what writers that are gone left behind in a folder: those whose process has ended on this machine, and those
 * that nobody has touched for an hour. Returns the names that are gone.
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

function machineHash(): string {
  return hexOf(digestOf(`${hostname()} ${processNamespace()}`)).slice(0, 8);
}
