import { closeSync, constants, openSync, readlinkSync, type Stats } from 'node:fs';
import { lstat, mkdir, open, opendir, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { renameDurably, describeWriteError, syncFolder, isMissing } from '#content/files';
import { checkInterrupted } from '#context';
import { messageOf, PluginError } from '#errors';

// Node.js has no name for it. The value is the same on all architectures of OpenShift.
const openPathOnly = 0o10000000;

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** The number of names that a folder may have. */
const namesLimit = 10_000;

/**
 * An open folder of a host. Its files are accessed through its descriptor, so no user can replace a parent folder
 * meanwhile. Linux only.
 */
export class HostFolder implements AsyncDisposable {
  /** The path, for messages. */
  readonly path: string;
  readonly #handle: FileHandle;

  private constructor(handle: FileHandle, path: string) {
    this.#handle = handle;
    this.path = path;
  }

  /**
   * Opens a folder below `root`, each folder on the way without following a link. `create` creates missing folders.
   * Throws the system’s errors.
   */
  static async open(root: string, path: string, create = false): Promise<HostFolder> {
    const held = heldFolderOf(path);
    let descriptor = openSync(held ?? root, O_DIRECTORY | openPathOnly);
    try {
      const names = path.slice(held?.length ?? 0).split('/');
      for (const name of names.filter((each) => each !== '')) {
        const next = await openChild(descriptor, name, create);
        closeSync(descriptor);
        descriptor = next;
      }
      const shown = held === undefined ? path : readlinkSync(held) + path.slice(held.length);
      return new HostFolder(await open(pathOf(descriptor), O_DIRECTORY | openPathOnly), shown);
    } finally {
      closeSync(descriptor);
    }
  }

  /** The path of this folder for this process and for programs that it runs, valid while the folder is open. */
  get held(): string {
    return `/proc/${process.pid}/fd/${this.#handle.fd}`;
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
      // Only this process knows the path in the message.
      const words = messageOf(error).replace(/, \w+ '.*$/s, '');
      throw new PluginError('not-readable', `${join(this.path, name)} cannot be read: ${words}`, { cause: error });
    }
    throw new PluginError('not-readable', `${join(this.path, name)} is not a regular file`);
  }

  /**
   * Copies a regular file into another folder durably, also under another name, with its owner, mode and times.
   * Replaces any file or link of that name, and removes it first, because the disk may not have space for both. Throws
   * `disk-full`, `not-writable`, `not-readable`, `interrupted`.
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
      await syncFolder(target.at('.'));
    } catch (error) {
      throw describeWriteError(error, join(target.path, as));
    }
  }

  /** Renames a file of this folder durably, and replaces any file of the new name. */
  async rename(from: string, to: string): Promise<void> {
    await renameDurably(this.at(from), this.at(to));
  }

  /** Lists the names in this folder, sorted. Throws `too-large` above the limit. */
  async list(): Promise<string[]> {
    const names: string[] = [];
    for await (const { name } of await opendir(this.at('.'))) {
      if (names.push(name) > namesLimit)
        throw new PluginError('too-large', `${this.path} has more than ${namesLimit} files`);
    }
    return names.sort();
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

/** Returns the part of a path that is `held` of an open folder of this process; undefined for other paths. */
export function heldFolderOf(path: string): string | undefined {
  return new RegExp(`^/proc/${process.pid}/fd/\\d+(?=/|$)`).exec(path)?.[0];
}
