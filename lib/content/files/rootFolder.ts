import { constants, type Stats } from 'node:fs';
import { lstat, open, opendir, readFile, readlink, stat, type FileHandle, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { checkInterrupted } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { RequestLimiter } from '../http/requestLimiter.ts';
import { ignoreMissing, isMissing, readOpenFile, readChunks } from './fileRange.ts';
import { readWhole } from './smallFile.ts';

/** An entry of a folder: its lstat, and its target if it is a symbolic link. */
export interface FolderEntry {
  /** The path relative to the root, with `/`. */
  readonly path: string;
  readonly stats: Stats;
  readonly target?: string;
}

/** The largest number of levels, and of entries, in a listing of a folder. */
interface ListLimits {
  readonly depth: number;
  readonly entries: number;
}

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const isLinux = process.platform === 'linux';
/** O_PATH of open(2): a descriptor that identifies a path without opening a file, pipe or device. */
const pathOnly = 0o10000000;
const usualLimits: ListLimits = { depth: 16, entries: 250_000 };
/** The number of paths that are visited at a time. Each takes some of the file descriptors of the process. */
const mostVisits = 64;
const never = AbortSignal.any([]);

/**
 * A folder and the tree below it. Access is confined to it: symbolic links below it are not followed, and only regular
 * files on the same file system are opened. The folder must stay the same after the first access; its own path may be a
 * link. On Linux, each check is made on the descriptor that is then read; elsewhere on the path just before it is
 * opened.
 */
export class RootFolder {
  readonly path: string;
  #identity: string | undefined;
  /** The identities of folders that were reached step by step, by their paths. */
  readonly #known = new Map<string, string>();
  readonly #visits = new RequestLimiter(mostVisits);

  constructor(path: string) {
    this.path = path;
  }

  /**
   * Opens a regular file for reading. Throws `not-found`, and `not-readable` for a link, a device, a pipe, a folder,
   * another file system.
   */
  async open(path: string): Promise<FileHandle> {
    return this.#visit(path, (place) => this.#openFile(place, path));
  }

  /**
   * Returns the size of a regular file in bytes; undefined if it does not exist. Throws the same `not-readable` as
   * `open`.
   */
  async sizeOf(path: string): Promise<number | undefined> {
    return this.#visit(path, (place) => Promise.resolve(this.#requireFile(place, path).size)).catch(ignoreMissing);
  }

  /**
   * Finds a regular file, or if it does not exist one with another name in the same folder. Returns its path and its
   * size in bytes. Throws the same `not-readable` as `open`, but skips another name that is not of a regular file.
   */
  async findFile(path: string, otherName: string): Promise<{ path: string; size: number } | undefined> {
    const names = path.split('/').slice(0, -1);
    const other = [...names, otherName].join('/');
    return this.#visitFolder(names, path, async (parent) => {
      const look = (at: string): Promise<Place | undefined> =>
        this.#step(parent, at, (place) => Promise.resolve(place)).catch(ignoreMissing);
      const filePlace = await look(path);
      if (filePlace) return { path, size: this.#requireFile(filePlace, path).size };
      const stats = (await look(other))?.stats;
      return stats?.isFile() ? { path: other, size: stats.size } : undefined;
    }).catch(ignoreMissing);
  }

  /**
   * Returns the lstat of a path; undefined if it does not exist. Throws `not-readable` if a parent is a link or on
   * another file system.
   */
  async statOf(path: string): Promise<Stats | undefined> {
    return this.#visit(path, (place) => Promise.resolve(place.stats)).catch(ignoreMissing);
  }

  /** Reads a file. Throws the errors of `open`, and `too-large` above the limit in bytes. */
  async read(path: string, limit: number): Promise<Buffer> {
    return this.#visit(path, async (place) => {
      await using file = await this.#openFile(place, path);
      return await readWhole(file, join(this.path, path), limit);
    });
  }

  /**
   * Streams a file from an offset in bytes, unverified. Opens the file at the first read. The stream fails with the
   * errors of `open`.
   */
  stream(path: string, signal: AbortSignal, start = 0): Readable {
    return readOpenFile(() => this.open(path), join(this.path, path), signal, start);
  }

  /**
   * Reads `size` bytes of a file from `start`. Each chunk is overwritten by the one after the next. Throws the errors
   * of `open`.
   */
  async *chunks(path: string, start: number, size: number, signal: AbortSignal): AsyncGenerator<Buffer> {
    await using file = await this.open(path);
    yield* readChunks(file, join(this.path, path), start, size, signal);
  }

  /** Returns the target of a symbolic link as it is stored. Throws `not-found` and `not-readable`. */
  async readLink(path: string): Promise<string> {
    const [, folder = '', name = ''] = /^(?:(.*)\/)?([^/]*)$/s.exec(path) ?? [];
    return this.#visit(folder, (place) => readlink(join(place.path, name)));
  }

  /**
   * Lists a folder, without subfolders, sorted by path; empty if it does not exist. Skips names that `isWanted`
   * refuses. Throws `not-readable`, and `too-large` above the limit of entries.
   */
  async list(
    folder = '',
    isWanted = (_name: string): boolean => true,
    limit = usualLimits.entries,
  ): Promise<FolderEntry[]> {
    const listing: FolderEntry[] = [];
    await this.#visit(folder, (place) => this.#list(place, folder, limit, listing, isWanted)).catch(ignoreMissing);
    return listing.sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  /**
   * Lists all files and links below a folder, sorted by path. Throws `not-readable`, and `too-large` above the
   * limits.
   */
  async tree(signal: AbortSignal, folder = '', { depth, entries }: ListLimits = usualLimits): Promise<FolderEntry[]> {
    const listing: FolderEntry[] = [];
    const visit = async (place: Place, inside: string, level: number): Promise<void> => {
      checkInterrupted(signal);
      const start = listing.length;
      await this.#list(place, inside, entries, listing);
      const folders = listing.slice(start).filter(({ stats }) => stats.isDirectory());
      if (folders.length > 0 && level >= depth)
        throw new PluginError('too-large', `${join(this.path, folder)} has more than ${depth} levels of folders`);
      for (const { path } of folders) await this.#step(place, path, (next) => visit(next, path, level + 1));
    };
    await this.#visit(folder, (place) => visit(place, folder, 0)).catch(ignoreMissing);
    return listing.filter(({ stats }) => !stats.isDirectory()).sort((a, b) => (a.path < b.path ? -1 : 1));
  }

  async #list(
    place: Place,
    folder: string,
    limit: number,
    listing: FolderEntry[],
    isWanted = (_name: string): boolean => true,
  ): Promise<void> {
    this.#requireFolder(place, folder);
    let count = 0;
    for await (const { name } of await opendir(place.path)) {
      if ((count += 1) > limit || listing.length >= limit)
        throw new PluginError('too-large', `${join(this.path, folder)} has more than ${limit} files`);
      if (!isWanted(name)) continue;
      const inside = join(place.path, name);
      const stats = await lstat(inside).catch(ignoreMissing);
      const target = stats?.isSymbolicLink() ? await readlink(inside).catch(ignoreMissing) : undefined;
      const path = folder === '' ? name : `${folder}/${name}`;
      if (stats) listing.push({ path, stats, target });
    }
  }

  /** Opens each folder from the root to a path, and calls `use` with the last. */
  #visit<T>(path: string, use: (place: Place) => Promise<T>): Promise<T> {
    if (path === '') return this.#visitFolder([], path, use);
    return this.#visitFolder(path.split('/').slice(0, -1), path, (parent) => this.#step(parent, path, use));
  }

  /** Opens each folder from the root to one on the way to a path, and calls `use` with that folder. */
  async #visitFolder<T>(names: readonly string[], path: string, use: (place: Place) => Promise<T>): Promise<T> {
    if (path !== '' && path.split('/').some((name) => ['', '.', '..'].includes(name) || name.includes('\0')))
      throw new PluginError('not-readable', `${JSON.stringify(path)} is outside of ${this.path}`);
    const go = async (place: Place, depth: number): Promise<T> => {
      const folder = names.slice(0, depth).join('/');
      if (depth > 0) this.#requireFolder(place, folder);
      if (depth < names.length)
        return this.#step(place, names.slice(0, depth + 1).join('/'), (next) => go(next, depth + 1));
      if (depth > 0) this.#known.set(folder, folderIdentity(place.stats));
      return use(place);
    };
    const end = await this.#visits.take('plain', never);
    try {
      await using place = await this.#openKnown(names.join('/'));
      if (place) return await use(place);
      await using root = await openPlace(this.path, O_DIRECTORY);
      this.#recognize(root);
      return await go(root, 0);
    } catch (error) {
      throw describeError(error, join(this.path, path));
    } finally {
      end();
    }
  }

  /**
   * Opens a folder that was reached step by step before; undefined if its path leads to another one now. Opening each
   * folder for each file took most of the time of mirroring to a directory.
   */
  async #openKnown(path: string): Promise<Place | undefined> {
    const identity = this.#known.get(path);
    if (identity === undefined) return undefined;
    const place = await openPlace(join(this.path, path), O_DIRECTORY).catch(() => undefined);
    if (!place || folderIdentity(place.stats) === identity) return place;
    await place[Symbol.asyncDispose]();
    return undefined;
  }

  async #step<T>(from: Place, path: string, use: (place: Place) => Promise<T>): Promise<T> {
    await using next = await openPlace(join(from.path, path.slice(path.lastIndexOf('/') + 1)), O_NOFOLLOW);
    if (!(await isSameFilesystem(from, next))) throw this.#refuse(path, 'is on another file system');
    return await use(next);
  }

  async #openFile(place: Place, path: string): Promise<FileHandle> {
    const expected = this.#requireFile(place, path);
    // On Linux this opens the file of the descriptor.
    const file = await open(place.path, O_RDONLY | O_NONBLOCK | (isLinux ? 0 : O_NOFOLLOW));
    const stats = await file.stat();
    if (stats.isFile() && inodeOf(stats) === inodeOf(expected)) return file;
    await file.close();
    throw this.#refuse(path, 'was replaced while it was opened');
  }

  #requireFile({ stats }: Place, path: string): Stats {
    if (stats.isFile()) return stats;
    const what = stats.isSymbolicLink() ? 'is a symbolic link, which is not followed' : 'is not a regular file';
    throw this.#refuse(path, what);
  }

  #requireFolder({ stats }: Place, path: string): void {
    if (stats.isSymbolicLink()) throw this.#refuse(path, 'is a symbolic link, which is not followed');
  }

  #recognize({ stats }: Place): void {
    const identity = inodeOf(stats);
    this.#identity ??= identity;
    if (identity !== this.#identity)
      throw new PluginError('not-readable', `${this.path} was replaced by another folder while it was read`);
  }

  #refuse(path: string, what: string): PluginError {
    return new PluginError('not-readable', `${join(this.path, path)} ${what}`, {
      hint: 'Only regular files in the folder are read. Put the file itself there.',
    });
  }
}

/** An existing entry that was found without opening it. */
interface Place extends AsyncDisposable {
  /** A path to the entry while the descriptor is open, even if the entry is renamed (on Linux). */
  readonly path: string;
  readonly stats: Stats;
}

async function openPlace(path: string, flags: number): Promise<Place> {
  if (!isLinux) {
    const stats = await (flags === O_NOFOLLOW ? lstat : stat)(path);
    return { path, stats, [Symbol.asyncDispose]: () => Promise.resolve() };
  }
  const handle = await open(path, pathOnly | flags);
  try {
    const stats = await handle.stat();
    return { path: `/proc/self/fd/${handle.fd}`, stats, [Symbol.asyncDispose]: () => handle.close() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function isSameFilesystem(a: Place, b: Place): Promise<boolean> {
  if (a.stats.dev === b.stats.dev) return true;
  // On overlayfs and btrfs, a file may have another device number than its folder.
  const [mountA, mountB] = await Promise.all([a, b].map(mountOf));
  return mountA !== undefined && mountA === mountB;
}

async function mountOf({ path }: Place): Promise<string | undefined> {
  const info = await readFile(path.replace('/fd/', '/fdinfo/'), 'latin1').catch(() => '');
  return isLinux ? /^mnt_id:\s*(\d+)$/m.exec(info)?.[1] : undefined;
}

/** Describes an error of the file system without its path, which only this process knows. */
function describeError(error: unknown, path: string): PluginError {
  if (isPluginError(error)) return error;
  const words = messageOf(error).replace(/, \w+ '.*$/s, '');
  return new PluginError(isMissing(error) ? 'not-found' : 'not-readable', `${path} cannot be read: ${words}`, {
    cause: error,
  });
}

function inodeOf({ dev, ino }: Stats): string {
  return `${dev}:${ino}`;
}

/** Returns an identity that no later folder has, also if the file system reuses the inode. */
function folderIdentity(stats: Stats): string {
  return `${inodeOf(stats)}:${stats.birthtimeMs}`;
}

/**
 * A folder that is open for writing: a root that the user named, which may be a link, or a folder below it, to which no
 * link may lead. On Linux, names in it are resolved from its descriptor, so no folder on the way can be exchanged.
 * Elsewhere each folder is checked just before it is used.
 */
export class OpenedFolder implements AsyncDisposable {
  /** Its path, for messages. */
  readonly path: string;
  readonly #handle: FileHandle | undefined;

  private constructor(path: string, handle: FileHandle | undefined) {
    this.path = path;
    this.#handle = handle;
  }

  /**
   * Opens a folder by its path below a root; an empty path is the root. With `create`, creates missing folders below
   * the root (0755). Throws `not-writable` for a link or a file in place of a folder, and the system’s errors.
   */
  static async open(root: string, path = '', create = false): Promise<OpenedFolder> {
    const names = path.split('/').filter((name) => name !== '' && name !== '.');
    if (names.includes('..')) throw new PluginError('not-writable', `${path} leads out of ${root}`);
    let folder = await OpenedFolder.#enter(root, root, 0);
    try {
      for (const name of names) {
        const next = await folder.#openChild(name, create);
        await folder[Symbol.asyncDispose]();
        folder = next;
      }
      return folder;
    } catch (error) {
      await folder[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Returns the path of a name in the folder, for system calls. It is valid while the folder is open. */
  at(name: string): string {
    return join(this.#handle ? `/proc/self/fd/${this.#handle.fd}` : this.path, name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle?.close();
  }

  async #openChild(name: string, create: boolean): Promise<OpenedFolder> {
    const path = join(this.path, name);
    const enter = (): Promise<OpenedFolder> => OpenedFolder.#enter(this.at(name), path, O_NOFOLLOW);
    return enter().catch(async (error: unknown) => {
      if (!create || (error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      await mkdir(this.at(name), { mode: 0o755 }).catch((failure: unknown) => {
        if ((failure as NodeJS.ErrnoException).code !== 'EEXIST') throw failure;
      });
      return enter();
    });
  }

  static async #enter(place: string, path: string, flags: number): Promise<OpenedFolder> {
    const stats = await (flags === O_NOFOLLOW ? lstat : stat)(place);
    if (!stats.isDirectory()) throw refuse(path, stats.isSymbolicLink());
    if (!isLinux) return new OpenedFolder(path, undefined);
    try {
      return new OpenedFolder(path, await open(place, pathOnly | O_DIRECTORY | flags));
    } catch (error) {
      // It was replaced since the check.
      throw (error as NodeJS.ErrnoException).code === 'ENOTDIR' ? refuse(path, true) : error;
    }
  }
}

function refuse(path: string, isLink: boolean): PluginError {
  const what = isLink ? 'is a symbolic link, which is not followed for writing' : 'is not a folder';
  return new PluginError('not-writable', `${path} ${what}`, {
    hint: isLink
      ? 'Remove the link, or name the folder that it leads to as the destination.'
      : 'Move it away, or choose another folder.',
  });
}
