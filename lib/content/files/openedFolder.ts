import { constants } from 'node:fs';
import { lstat, mkdir, open, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { PluginError } from '#errors';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const isLinux = process.platform === 'linux';
/** O_PATH of open(2), as in rootFolder.ts. */
const pathOnly = 0o10000000;

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
