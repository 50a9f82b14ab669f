import type { Stats } from 'node:fs';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PluginError } from '../errors.ts';
import { isMissing, describeReadError } from '../files/fileContent.ts';

/** As many symbolic links as Linux follows in one path. */
const maximumLinks = 40;

/** The files of a host, below a folder that stands for its root: `/` for the machine this runs on. Paths are as the host has them. */
export class HostFiles {
  readonly root: string;

  constructor(root = '/') {
    this.root = root;
  }

  /** Where a path of the host is on this machine, for messages: symbolic links are not resolved. */
  locate(path: string): string {
    return join(this.root, path);
  }

  /**
   * Resolves the symbolic links of a path as the host itself does, so that none leads out of `root`; what does not exist stays as it is.
   * Returns the path as the host has it. `checkLink` may refuse a link. Throws `not-readable`.
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
      const found = await this.#inspect(next);
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

  /** The bytes of a file; undefined where there is none. Throws `not-readable`. */
  async read(path: string): Promise<Buffer | undefined> {
    try {
      return await readFile(await this.#find(path));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw describeReadError(error, this.locate(path));
    }
  }

  /** The text of a file; undefined where there is none. Throws `not-readable`. */
  async readText(path: string): Promise<string | undefined> {
    return (await this.read(path))?.toString();
  }

  /** The names in a folder, sorted; none where there is no such folder. Throws `not-readable`. */
  async list(path: string): Promise<string[]> {
    try {
      return (await readdir(await this.#find(path))).sort();
    } catch (error) {
      if (isMissing(error)) return [];
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Tells whether there is anything of that name, a symbolic link that leads nowhere included. */
  async exists(path: string): Promise<boolean> {
    return (
      (await this.#inspect(join(await this.resolve(dirname(path)), path.slice(path.lastIndexOf('/') + 1)))) !==
      undefined
    );
  }

  /** Where a path is on this machine. The kernel itself resolves the links of this machine. */
  async #find(path: string): Promise<string> {
    return this.locate(this.root === '/' ? path : await this.resolve(path));
  }

  async #inspect(path: string): Promise<Stats | undefined> {
    try {
      return await lstat(this.locate(path));
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw describeReadError(error, this.locate(path));
    }
  }
}
