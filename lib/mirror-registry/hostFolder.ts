import { closeSync, constants, openSync, type Stats } from 'node:fs';
import { lstat, mkdir, open, readdir, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { checkInterrupted } from '../context.ts';
import { messageOf, PluginError } from '../errors.ts';
import { renameDurably } from '../files/atomicWrite.ts';
import { describeWriteError } from '../files/disk.ts';
import { isMissing } from '../files/fileContent.ts';
import type { HostFiles } from '../machine/hostFiles.ts';

// Node.js has no name for it. The value is the same on all architectures of OpenShift.
const openPathOnly = 0o10000000;

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** A file of a host, and the folder of the installation that it must not leave. Paths are paths of the host. */
export interface ConfinedPath {
  readonly path: string;
  readonly within: string;
}

/**
 * An open folder of a host. Its files are accessed through its descriptor, so no user can replace a parent folder
 * meanwhile. Follows symbolic links only if root or the current user created them, and only within `within`. Linux
 * only.
 */
export class HostFolder {
  /** The path on the host, without symbolic links. */
  readonly path: string;
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle, path: string) {
    this.#handle = handle;
    this.path = path;
  }

  /**
   * Opens the folder of a file. Returns it with the name of the file. `create` creates missing folders. Throws
   * `not-writable`.
   */
  static async openParent(
    files: HostFiles,
    target: ConfinedPath,
    create = false,
  ): Promise<{ readonly folder: HostFolder; readonly name: string }> {
    const resolved = await confine(files, target);
    return { folder: await HostFolder.#open(files, dirname(resolved), create), name: basename(resolved) };
  }

  /** Opens a folder. `create` creates missing folders. Throws `not-writable`. */
  static async open(files: HostFiles, target: ConfinedPath, create = false): Promise<HostFolder> {
    return HostFolder.#open(files, await confine(files, target), create);
  }

  static async #open(files: HostFiles, path: string, create: boolean): Promise<HostFolder> {
    let descriptor = openSync(files.root, O_DIRECTORY | openPathOnly);
    try {
      for (const name of path.split('/').filter((each) => each !== '')) {
        const next = await openChild(descriptor, name, create);
        closeSync(descriptor);
        descriptor = next;
      }
      return new HostFolder(await open(pathOf(descriptor), O_DIRECTORY | openPathOnly), path);
    } catch (error) {
      throw (error as NodeJS.ErrnoException).code === 'ENOENT' ? error : describeWriteError(error, files.locate(path));
    } finally {
      closeSync(descriptor);
    }
  }

  /** Returns the path of a file on this machine, valid while the folder is open. */
  at(name: string): string {
    return join(pathOf(this.#handle.fd), name);
  }

  /** Returns the owner and mode of this folder. */
  stat(): Promise<Stats> {
    return this.#handle.stat();
  }

  /** Returns the attributes of a file or symbolic link; undefined if it does not exist. */
  async find(name: string): Promise<Stats | undefined> {
    try {
      return await lstat(this.at(name));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  /** Opens a file for reading if it is a regular file; undefined if it does not exist. Throws `not-readable`. */
  async openFile(name: string): Promise<FileHandle | undefined> {
    try {
      const file = await open(this.at(name), O_RDONLY | O_NOFOLLOW | constants.O_NONBLOCK);
      if ((await file.stat()).isFile()) return file;
      await file.close();
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw new PluginError('not-readable', `${join(this.path, name)} cannot be read: ${messageOf(error)}`, {
        cause: error,
      });
    }
    throw new PluginError('not-readable', `${join(this.path, name)} is not a regular file`);
  }

  /**
   * Copies a regular file into another folder, also under another name, with its owner, mode and times. Replaces any
   * file or link of that name, and removes it first, because the disk may not have space for both. Throws `disk-full`,
   * `not-writable`, `not-readable`, `interrupted`.
   */
  async copyFile(name: string, target: HostFolder, signal: AbortSignal, as = name): Promise<void> {
    const file = await this.openFile(name);
    if (!file) throw new PluginError('not-readable', `${join(this.path, name)} is missing`);
    await using source = file;
    try {
      const { mode, uid, gid, atime, mtime } = await source.stat();
      await target.remove(as);
      await using copy = await open(target.at(as), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
      const buffer = Buffer.allocUnsafe(1024 * 1024);
      for (let bytes = -1; bytes !== 0;) {
        checkInterrupted(signal);
        bytes = (await source.read(buffer, 0, buffer.length, null)).bytesRead;
        await copy.writeFile(buffer.subarray(0, bytes));
      }
      if (uid !== process.geteuid?.() || gid !== process.getegid?.()) await copy.chown(uid, gid);
      await copy.chmod(mode & 0o7777);
      await copy.utimes(atime, mtime);
      await copy.sync();
    } catch (error) {
      throw describeWriteError(error, join(target.path, as));
    }
  }

  /** Renames a file of this folder durably, and replaces any file of the new name. */
  async rename(from: string, to: string): Promise<void> {
    await renameDurably(this.at(from), this.at(to));
  }

  /** Lists the names in this folder, sorted. */
  async list(): Promise<string[]> {
    return (await readdir(this.at('.'))).sort();
  }

  /** Removes a file or folder, if it exists. */
  async remove(name: string): Promise<void> {
    await rm(this.at(name), { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

async function openChild(parent: number, name: string, create: boolean): Promise<number> {
  const path = join(pathOf(parent), name);
  const flags = O_DIRECTORY | O_NOFOLLOW | openPathOnly;
  try {
    return openSync(path, flags);
  } catch (error) {
    if (!create || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    await mkdir(path, { mode: 0o700 });
    return openSync(path, flags);
  }
}

function pathOf(descriptor: number): string {
  return `/proc/self/fd/${descriptor}`;
}

/**
 * Resolves the symbolic links of a path of the host. Throws `not-writable` for a link that neither root nor the current
 * user created.
 */
export function resolveTrusted(files: HostFiles, path: string): Promise<string> {
  return files.resolve(path, ({ uid }, link) => {
    if (uid === 0 || uid === process.geteuid?.()) return;
    throw new PluginError('not-writable', `${files.locate(link)} is a symbolic link of another user, ${uid}`, {
      hint: 'Replace it with the file or folder that it leads to.',
    });
  });
}

/** Resolves a path, and checks that it stays within its folder. */
async function confine(files: HostFiles, { path, within }: ConfinedPath): Promise<string> {
  const [resolved, folder] = [await resolveTrusted(files, path), await resolveTrusted(files, within)];
  if (resolved === folder || resolved.startsWith(join(folder, '/'))) return resolved;
  throw new PluginError('not-writable', `${files.locate(path)} leads to ${resolved}, outside of ${folder}`, {
    hint: 'Replace the symbolic link with the file that it leads to.',
  });
}
