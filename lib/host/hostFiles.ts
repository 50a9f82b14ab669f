import { lstat, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing, describeReadError } from '../store/fileContent.ts';

/** The files of a host, below a folder that stands for its root: `/` for the machine this runs on. Paths are as the host has them. */
export class HostFiles {
  readonly root: string;

  constructor(root = '/') {
    this.root = root;
  }

  /** Where a path of the host is on this machine. */
  locate(path: string): string {
    return join(this.root, path);
  }

  /** The bytes of a file; undefined where there is none. Throws `not-readable`. */
  async read(path: string): Promise<Buffer | undefined> {
    try {
      return await readFile(this.locate(path));
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
      return (await readdir(this.locate(path))).sort();
    } catch (error) {
      if (isMissing(error)) return [];
      throw describeReadError(error, this.locate(path));
    }
  }

  /** Tells whether there is anything of that name, a symbolic link that leads nowhere included. */
  async exists(path: string): Promise<boolean> {
    return lstat(this.locate(path)).then(
      () => true,
      () => false,
    );
  }
}
