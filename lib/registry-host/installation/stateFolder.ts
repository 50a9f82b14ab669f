import type { Stats } from 'node:fs';
import { rename, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { describeWriteError, takeLock } from '#content/files';
import { PluginError } from '#errors';
import type { ConfinedPath, HostFiles, HostFolder } from '#node/machine';
import { passMissing, replaceFile } from './fileChange.ts';
import type { Installation } from './installation.ts';

/** Files and folders in the state of this program that only a run in progress needs. */
export const scratchNames = {
  /** The copy of the database that a backup packs. */
  backup: 'backup',
  /** The database that a change puts in place of the present one. */
  replacement: 'replacement',
  /** The configuration and the empty database for the new Quay. */
  migration: 'migration',
  /** A password, for podman. */
  secret: 'secret',
} as const;

/**
 * Returns the folder of this program beside a registry, as a path of the host. It has the lock, the journal and the
 * backups.
 */
export function stateFolderOf({ quayRoot }: Pick<Installation, 'quayRoot'>): string {
  return join(quayRoot.value, '.oc-mirror-registry');
}

/**
 * The state of this program. It determines which files are written and restored. So files and folders are trusted only
 * if they belong to the current user and no other user has access. Names are relative to the folder.
 */
export class StateFolder {
  /** The path on the host. */
  readonly path: string;
  readonly #files: HostFiles;

  constructor(files: HostFiles, installation: Pick<Installation, 'quayRoot'>) {
    this.#files = files;
    this.path = stateFolderOf(installation);
  }

  /**
   * Returns the path of a file on this machine, for other programs. While root has the state locked, it leads to the
   * same folder, even if the owner of a parent folder moves that. Throws `not-readable`.
   */
  async locate(name = ''): Promise<string> {
    const held = this.#files.heldAt(this.path);
    return held ? join(held.held, name) : this.#files.locate(await this.#files.resolve(join(this.path, name)));
  }

  /** Reads a file; undefined if it does not exist. Throws `not-readable`, also for files of other users. */
  async read(name: string): Promise<Buffer | undefined> {
    const folder = await this.#openParent(name);
    if (!folder) return undefined;
    await using _folder = folder;
    const file = await folder.openFile(basename(name));
    if (!file) return undefined;
    await using _file = file;
    checkOwner(await file.stat(), this.show(name));
    return await file.readFile();
  }

  /** Writes a file atomically and durably. Throws `disk-full`, `not-writable` and `not-readable`. */
  async write(name: string, content: Buffer | string): Promise<void> {
    await this.makeFolder(join(name, '..'));
    await replaceFile(this.#files, this.#confine(name), content, { mode: 0o600 });
  }

  /** Keeps the folder open for `locate`, until it is disposed. Throws `not-readable` and `not-writable`. */
  async hold(): Promise<AsyncDisposable> {
    const folder = await this.#files.openFolder(this.#confine('.'));
    try {
      await this.#check(folder, '.');
      return this.#files.hold(this.path, folder);
    } catch (error) {
      await folder[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Creates a folder, if it does not exist. Throws `disk-full`, `not-writable` and `not-readable`. */
  async makeFolder(name: string): Promise<void> {
    await using folder = await this.#files.openFolder(this.#confine(name), true);
    await this.#check(folder, name);
  }

  /** Lists the names in a folder, sorted; none if it does not exist. Throws `not-readable`. */
  async list(name: string): Promise<string[]> {
    const folder = await this.#openParent(join(name, 'each'));
    if (!folder) return [];
    await using _folder = folder;
    return await folder.list();
  }

  /** Removes a file or a folder with its files, if it exists. Throws `not-writable` and `not-readable`. */
  async remove(name: string): Promise<void> {
    const folder = await this.#openParent(name);
    if (!folder) return;
    await using _folder = folder;
    try {
      await folder.remove(basename(name));
    } catch (error) {
      throw describeWriteError(error, this.show(name));
    }
  }

  /** Removes what a killed run left. No change may be unfinished. Throws `not-writable` and `not-readable`. */
  async removeScratch(): Promise<void> {
    for (const name of Object.values(scratchNames)) await this.remove(name);
  }

  /** Renames a folder, if it exists, and returns its new name. Throws `not-writable` and `not-readable`. */
  async rename(from: string, to: string): Promise<string> {
    const [source, target] = [await this.#openParent(from), await this.#openParent(to)];
    await using _source = source;
    await using _target = target;
    try {
      if (source && target && (await source.find(basename(from)))) {
        await rename(source.at(basename(from)), target.at(basename(to)));
      }
      return to;
    } catch (error) {
      throw describeWriteError(error, this.show(to));
    }
  }

  async #openParent(name: string): Promise<HostFolder | undefined> {
    const above = join(name, '..');
    const folder = await this.#files.openFolder(this.#confine(above)).catch(passMissing);
    if (!folder) return undefined;
    try {
      await this.#check(folder, above);
      return folder;
    } catch (error) {
      await folder[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Checks the owner of a folder, and of the state folder above it. */
  async #check(folder: HostFolder, name: string): Promise<void> {
    checkOwner(await folder.stat(), this.show(name));
    if (join(name) === '.') return;
    await using top = await this.#files.openFolder(this.#confine('.'));
    checkOwner(await top.stat(), this.show());
  }

  /** Returns the path of a file for messages. */
  show(name = ''): string {
    return this.#files.locate(join(this.path, name));
  }

  #confine(name: string): ConfinedPath {
    return { path: join(this.path, name), within: this.path };
  }
}

/** Locks an installation until the lock is disposed. Throws `busy`, `disk-full`, `not-writable`. */
export async function takeStateLock(
  files: HostFiles,
  installation: Pick<Installation, 'quayRoot'>,
): Promise<AsyncDisposable> {
  const state = new StateFolder(files, installation);
  await state.makeFolder('.');
  // Only root acts in folders of other users.
  const held = process.geteuid?.() === 0 ? await state.hold() : undefined;
  try {
    const what = `the mirror registry in ${installation.quayRoot.value}`;
    const lock = await takeLock(await state.locate('lock'), what, state.show('lock'));
    return {
      [Symbol.asyncDispose]: async () => {
        await lock[Symbol.asyncDispose]();
        await held?.[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    await held?.[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Checks that the current user owns a registry in the user scope, because systemd and podman run as that user. Throws
 * `unsupported`.
 */
export async function requireOwner(
  files: HostFiles,
  { scope, quayRoot, unitFolder }: Pick<Installation, 'scope' | 'quayRoot' | 'unitFolder'>,
): Promise<void> {
  if (scope !== 'user') return;
  const paths = [quayRoot.value, unitFolder];
  const stats = await Promise.all(
    paths.map(async (path) => stat(files.locate(await files.resolve(path))).catch(() => undefined)),
  );
  const uid = stats.find((each) => each !== undefined && each.uid !== process.getuid?.())?.uid;
  if (uid === undefined) return;
  throw new PluginError('unsupported', `the registry in ${quayRoot.value} belongs to another user, ${uid}`, {
    hint: `Run this as that user: 'sudo -u "#${uid}" …'.`,
  });
}

function checkOwner({ uid, mode }: Stats, path: string): void {
  const user = process.geteuid?.();
  if (uid === user && (mode & 0o077) === 0) return;
  const why =
    uid === user
      ? `other users have access to it (mode ${(mode & 0o777).toString(8)})`
      : `it belongs to user ${uid}, and this is user ${String(user)}`;
  throw new PluginError('not-readable', `${path} cannot be trusted: ${why}`, {
    hint: 'Another user may have written it. Check its content and set its owner and mode 0700, or move it away.',
  });
}
