import { lstatSync, type Stats } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { describeWriteError, isMissing, describeReadError, readWhole } from '#content/files';
import { isPluginError, PluginError } from '#errors';
import { heldFolderOf, HostFolder } from './hostFolder.ts';

/** The number of symbolic links that Linux follows in one path. */
const maximumLinks = 40;

/** The largest file that is read, in bytes. Configuration, certificates and units are far smaller. */
export const fileLimit = 4 * 1024 * 1024;

/** A file or folder of a host, and the folder that it must not leave. Paths are paths of the host. */
export interface ConfinedPath {
  readonly path: string;
  readonly within: string;
}

/**
 * The files of a host below a root folder: `/` for this machine. Paths are paths of the host. Their folders may belong
 * to another user, who must not choose which files this program reads and writes, or stop it. So only symbolic links of
 * root and of the current user are followed, and only regular files of a limited size are read.
 */
export class HostFiles {
  readonly root: string;
  readonly #held = new Map<string, HostFolder>();

  constructor(root = '/') {
    this.root = root;
  }

  /** Returns a path of the host on this machine, without resolving symbolic links. Keeps `held` of an open folder. */
  locate(path: string): string {
    return heldFolderOf(path) === undefined ? join(this.root, path) : path;
  }

  /** Keeps a folder open, so that `heldAt` returns it until it is disposed. */
  hold(path: string, folder: HostFolder): AsyncDisposable {
    this.#held.set(path, folder);
    return {
      [Symbol.asyncDispose]: () => {
        this.#held.delete(path);
        return folder[Symbol.asyncDispose]();
      },
    };
  }

  /** Returns the open folder of a path; undefined if none is kept. */
  heldAt(path: string): HostFolder | undefined {
    return this.#held.get(path);
  }

  /**
   * Resolves the symbolic links of a path as the host does, so that none leads out of `root`. Keeps missing parts.
   * Returns a path of the host. Throws `not-readable`, also for a link of a user other than root and the current one.
   */
  async resolve(path: string): Promise<string> {
    const held = heldFolderOf(path) ?? '';
    const rest = path.slice(held.length).split('/');
    let resolved = held === '' ? '/' : held;
    for (let links = 0; rest.length > 0;) {
      const name = rest.shift() ?? '';
      if (name === '' || name === '.') continue;
      if (name === '..') {
        resolved = dirname(resolved);
        continue;
      }
      const next = join(resolved, name);
      const stats = this.#inspect(next);
      if (!stats?.isSymbolicLink()) {
        resolved = next;
        continue;
      }
      checkLink(stats, this.locate(next));
      links += 1;
      if (links > maximumLinks) throw new PluginError('not-readable', `${path} has too many symbolic links`);
      const target = await readlink(this.locate(next)).catch((error: unknown) => {
        throw describeReadError(error, this.locate(next));
      });
      if (target.startsWith('/')) resolved = '/';
      rest.unshift(...target.split('/'));
    }
    return resolved;
  }

  /**
   * Opens a folder. `create` creates missing folders. Throws ENOENT of the system, `not-readable` for a link of another
   * user, and `not-writable`, also for a path that leads out of its folder.
   */
  async openFolder(target: ConfinedPath, create = false): Promise<HostFolder> {
    return this.#open(await this.#confine(target), create);
  }

  /** Opens the folder of a file. Returns it with the name of the file. Otherwise as `openFolder`. */
  async openParent(
    target: ConfinedPath,
    create = false,
  ): Promise<{ readonly folder: HostFolder; readonly name: string }> {
    const resolved = await this.#confine(target);
    return { folder: await this.#open(dirname(resolved), create), name: basename(resolved) };
  }

  async #open(path: string, create: boolean): Promise<HostFolder> {
    try {
      return await HostFolder.open(this.root, path, create);
    } catch (error) {
      throw (error as NodeJS.ErrnoException).code === 'ENOENT' ? error : describeWriteError(error, this.locate(path));
    }
  }

  /** Resolves a path, and checks that it stays within its folder. */
  async #confine({ path, within }: ConfinedPath): Promise<string> {
    const [resolved, folder] = [await this.resolve(path), await this.resolve(within)];
    if (resolved === folder || resolved.startsWith(join(folder, '/'))) return resolved;
    throw new PluginError('not-writable', `${this.locate(path)} leads to ${resolved}, outside of ${folder}`, {
      hint: 'Replace the symbolic link with the file that it leads to.',
    });
  }

  /**
   * Reads a regular file of at most 4 MiB; undefined if it is missing. Throws `not-readable`, also for a link of
   * another user, and `too-large`.
   */
  async read(path: string): Promise<Buffer | undefined> {
    const resolved = await this.resolve(path);
    try {
      await using folder = await HostFolder.open(this.root, dirname(resolved));
      const file = await folder.openFile(basename(resolved));
      if (!file) return undefined;
      await using _file = file;
      return await readWhole(file, this.locate(path), fileLimit);
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Reads a file as text; undefined if it is missing. Throws `not-readable`. */
  async readText(path: string): Promise<string | undefined> {
    return (await this.read(path))?.toString();
  }

  /** Lists the names in a folder, sorted; none if it is missing. Throws `not-readable` and `too-large`. */
  async list(path: string): Promise<string[]> {
    const resolved = await this.resolve(path);
    try {
      await using folder = await HostFolder.open(this.root, resolved);
      return await folder.list();
    } catch (error) {
      if (isMissing(error)) return [];
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Returns whether a file, folder or symbolic link exists. */
  async exists(path: string): Promise<boolean> {
    return this.#inspect(join(await this.resolve(dirname(path)), path.slice(path.lastIndexOf('/') + 1))) !== undefined;
  }

  #inspect(path: string): Stats | undefined {
    try {
      // Through the thread pool, resolving paths would take a fifth of the processor time of a change.
      return lstatSync(this.locate(path), { throwIfNoEntry: false });
    } catch (error) {
      throw describeReadError(error, this.locate(path));
    }
  }
}

/** Opens a folder of this machine, which must exist. Throws as `HostFiles.openFolder`, and `not-found`. */
export async function openMachineFolder(path: string): Promise<HostFolder> {
  try {
    return await new HostFiles().openFolder({ path, within: path });
  } catch (error) {
    throw isPluginError(error) ? error : describeReadError(error, path);
  }
}

/** Refuses a symbolic link that another user than root and the current one created. */
function checkLink({ uid }: Stats, path: string): void {
  if (uid === 0 || uid === process.geteuid?.()) return;
  throw new PluginError('not-readable', `${path} is a symbolic link of another user, ${uid}`, {
    hint: 'Replace it with the file or folder that it leads to.',
  });
}
