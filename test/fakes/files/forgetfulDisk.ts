import {
  closeSync,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  type BigIntStats,
} from 'node:fs';
import promises, { open, type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join, relative } from 'node:path';

/** The files that a power failure leaves, by their paths below the folder. */
export type Survivors = ReadonlyMap<string, Buffer>;

/**
 * A folder whose disk forgets in a power failure what this process has not synced: the content of a file, and the names
 * in a folder. Observes `sync` and `datasync` of file handles until it is disposed. Linux only.
 */
export class ForgetfulDisk implements Disposable {
  readonly #root: string;
  readonly #contents = new Map<string, Buffer>();
  readonly #names = new Map<string, ReadonlyMap<string, string>>();
  readonly #restore: () => void;

  private constructor(root: string, handles: FileHandle, beforeRename: (to: string, disk: ForgetfulDisk) => void) {
    this.#root = root;
    for (const folder of this.#folders()) {
      this.#keep(folder);
      for (const name of readdirSync(folder)) this.#keep(join(folder, name));
    }
    const prototype = Object.getPrototypeOf(handles) as Pick<FileHandle, 'sync' | 'datasync'>;
    const { sync, datasync } = prototype;
    const { rename } = promises;
    const keep = (file: FileHandle): void => this.#keepOpen(file.fd);
    prototype.sync = async function (this: FileHandle) {
      await sync.call(this);
      keep(this);
    };
    prototype.datasync = async function (this: FileHandle) {
      await datasync.call(this);
      keep(this);
    };
    promises.rename = async (from, to) => {
      beforeRename(relative(root, String(to)), this);
      await rename(from, to);
    };
    syncBuiltinESMExports();
    this.#restore = () => {
      Object.assign(prototype, { sync, datasync });
      promises.rename = rename;
      syncBuiltinESMExports();
    };
  }

  /** Begins with what is in the folder, all of it synced. `beforeRename` gets the new path below the folder. */
  static async open(
    root: string,
    beforeRename: (to: string, disk: ForgetfulDisk) => void = () => undefined,
  ): Promise<ForgetfulDisk> {
    await using handle = await open(root);
    return new ForgetfulDisk(root, handle, beforeRename);
  }

  /** Returns what a power failure leaves now. A file that was never synced is empty. */
  readonly failPower = (): Survivors =>
    new Map(
      this.#folders().flatMap((folder) => {
        const names = [...(this.#names.get(keyOf(folder)) ?? [])];
        return names.map(
          ([name, key]) =>
            [relative(this.#root, join(folder, name)), this.#contents.get(key) ?? Buffer.alloc(0)] as const,
        );
      }),
    );

  [Symbol.dispose](): void {
    this.#restore();
  }

  /** Lists the folder and those in it. As a journal does, this disk keeps a new folder. */
  #folders(): string[] {
    const below = readdirSync(this.#root, { recursive: true, withFileTypes: true });
    return [this.#root, ...below.filter((each) => each.isDirectory()).map((each) => join(each.parentPath, each.name))];
  }

  #keep(path: string): void {
    if (lstatSync(path).isSymbolicLink()) return;
    const descriptor = openSync(path, 'r');
    this.#keepOpen(descriptor);
    closeSync(descriptor);
  }

  #keepOpen(descriptor: number): void {
    const stats = fstatSync(descriptor, { bigint: true });
    const path = `/proc/self/fd/${descriptor}`;
    if (stats.isFile()) this.#contents.set(identify(stats), readFileSync(path));
    if (!stats.isDirectory()) return;
    const files = readdirSync(`${path}/`, { withFileTypes: true }).filter((each) => !each.isDirectory());
    for (const { name } of files.filter((each) => each.isSymbolicLink())) {
      // A link is in its folder, and is kept with it.
      this.#contents.set(keyOf(`${path}/${name}`), Buffer.from(readlinkSync(`${path}/${name}`)));
    }
    this.#names.set(identify(stats), new Map(files.map(({ name }) => [name, keyOf(`${path}/${name}`)])));
  }
}

function keyOf(path: string): string {
  return identify(lstatSync(path, { bigint: true }));
}

/** Returns an identity that no later file has, also if the file system reuses the inode. */
function identify({ dev, ino, birthtimeNs }: BigIntStats): string {
  return `${dev}:${ino}:${birthtimeNs}`;
}
