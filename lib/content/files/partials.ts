import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, link, lstat, readdir, rename, rm, symlink, unlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join } from 'node:path';
import { digestOf, hexOf } from '../oci/digest.ts';
import { ignoreMissing } from './fileContent.ts';
import { isRunning, processNamespace } from './process.ts';

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
