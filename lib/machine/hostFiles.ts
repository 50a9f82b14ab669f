import { lstatSync, type Stats } from 'node:fs';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PluginError } from '../errors.ts';
import { isMissing, describeReadError } from '../files/fileContent.ts';

/** The number of symbolic links that Linux follows in one path. */
const maximumLinks = 40;

/** The files of a host below a root folder: `/` for this machine. Paths are paths of the host. */
export class HostFiles {
  readonly root: string;

  constructor(root = '/') {
    this.root = root;
  }

  /** Returns a path of the host on this machine, without resolving symbolic links. */
  locate(path: string): string {
    return join(this.root, path);
  }

  /**
   * Resolves the symbolic links of a path as the host does, so that none leads out of `root`. Keeps missing parts.
   * Returns a path of the host. `checkLink` may refuse a link. Throws `not-readable`.
   */
  async resolve(path: string, checkLink: (link: Stats, path: string) => void = () => undefined): Promise<string> {
    const rest = path.split('/');
    let resolved = '/';
    for (let links = 0; rest.length > 0;) {
      const name = rest.shift() ?? '';
      if (name === '' || name === '.') continue;
      if (name === '..') {
        resolved = dirname(resolved);
        continue;
      }
      const next = join(resolved, name);
      const found = this.#inspect(next);
      if (!found?.isSymbolicLink()) {
        resolved = next;
        continue;
      }
      checkLink(found, next);
      links += 1;
      if (links > maximumLinks) throw new PluginError('not-readable', `${path} has too many symbolic links`);
      const target = await readlink(this.locate(next));
      if (target.startsWith('/')) resolved = '/';
      rest.unshift(...target.split('/'));
    }
    return resolved;
  }

  /** Reads a file; undefined if it is missing. Throws `not-readable`. */
  async read(path: string): Promise<Buffer | undefined> {
    try {
      return await readFile(await this.#find(path));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Reads a file as text; undefined if it is missing. Throws `not-readable`. */
  async readText(path: string): Promise<string | undefined> {
    return (await this.read(path))?.toString();
  }

  /** Lists the names in a folder, sorted; none if it is missing. Throws `not-readable`. */
  async list(path: string): Promise<string[]> {
    try {
      return (await readdir(await this.#find(path))).sort();
    } catch (error) {
      if (isMissing(error)) return [];
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Returns whether a file, folder or symbolic link exists. */
  async exists(path: string): Promise<boolean> {
    return this.#inspect(join(await this.resolve(dirname(path)), path.slice(path.lastIndexOf('/') + 1))) !== undefined;
  }

  /** Returns a path on this machine. The kernel resolves the links of this machine. */
  async #find(path: string): Promise<string> {
    return this.locate(this.root === '/' ? path : await this.resolve(path));
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
