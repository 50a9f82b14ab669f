import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { writeAtomically, describeWriteError, readWhole } from '#content/files';
import { fileLimit, type ConfinedPath, HostFiles } from '#node/machine';

/** New content of a file of the host. */
export interface FileChange {
  /** The path on the host. */
  readonly path: string;
  /** The old content; undefined if the file does not exist. */
  readonly before: Buffer | undefined;
  /** Undefined if the file is removed. */
  readonly after: Buffer | undefined;
  /** Permissions of a new file; an existing file keeps its own. */
  readonly mode?: number;
}

/** Owner and permissions of a file. */
export interface FileAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** A file with its bytes, owner and permissions. */
export interface FileCopy extends FileAttributes {
  readonly content: Buffer;
}

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK } = constants;

/**
 * Replaces the bytes of a file atomically and durably: after an interruption, the file is the old or the new one. An
 * existing file keeps its mode and owner unless `attributes` are given. A new file gets `mode`, and a new folder is
 * only for its owner. Replaces the target of a symbolic link, if it is within the folder. Throws `disk-full` and
 * `not-writable`.
 */
export async function replaceFile(
  files: HostFiles,
  target: ConfinedPath,
  content: Buffer | string,
  { mode = 0o644, attributes }: { readonly mode?: number; readonly attributes?: FileAttributes } = {},
): Promise<void> {
  try {
    const { folder, name } = await files.openParent(target, true);
    await using _open = folder;
    const old = attributes ?? (await folder.find(name));
    await writeAtomically(folder.at(name), content, {
      // Only this user may read it until its owner is set.
      mode: 0o600,
      name: files.locate(target.path),
      prepare: async (file) => {
        if (old && (old.uid !== process.geteuid?.() || old.gid !== process.getegid?.()))
          await file.chown(old.uid, old.gid);
        await file.chmod(old ? old.mode & 0o777 : mode);
      },
    });
  } catch (error) {
    throw describeWriteError(error, files.locate(target.path));
  }
}

/**
 * Reads a regular file with its owner and permissions; undefined if it does not exist. Throws `not-readable`,
 * `not-writable` and `too-large`.
 */
export async function readWithAttributes(files: HostFiles, target: ConfinedPath): Promise<FileCopy | undefined> {
  const opened = await files.openParent(target).catch(passMissing);
  if (!opened) return undefined;
  await using folder = opened.folder;
  const file = await folder.openFile(opened.name);
  if (!file) return undefined;
  await using _open = file;
  const { mode, uid, gid } = await file.stat();
  return { content: await readWhole(file, files.locate(target.path), fileLimit), mode: mode & 0o777, uid, gid };
}

/** Removes a file if it exists, and the leftovers of an interrupted write beside it. Throws `not-writable`. */
export function removeFile(files: HostFiles, target: ConfinedPath): Promise<void> {
  return remove(files, target, (name) => [name, partialOf(name)]);
}

/** Removes the leftovers of an interrupted write beside a file. Throws `not-writable`. */
export function removePartial(files: HostFiles, target: ConfinedPath): Promise<void> {
  return remove(files, target, (name) => [partialOf(name)]);
}

async function remove(files: HostFiles, target: ConfinedPath, list: (name: string) => string[]): Promise<void> {
  try {
    const opened = await files.openParent(target).catch(passMissing);
    if (!opened) return;
    await using folder = opened.folder;
    for (const name of list(opened.name)) await folder.remove(name);
  } catch (error) {
    throw describeWriteError(error, files.locate(target.path));
  }
}

/**
 * Checks, without changing anything, that a file can be written: neither the file nor its folder is read-only or
 * immutable. Throws `not-writable` and `disk-full`.
 */
export async function checkWritable(files: HostFiles, { path, within }: ConfinedPath): Promise<void> {
  try {
    const opened = await files.openParent({ path, within }).catch(passMissing);
    // Its folder is missing too.
    if (!opened) {
      await checkWritable(files, { path: dirname(path), within });
      return;
    }
    await using folder = opened.folder;
    const { name } = opened;
    const probe = partialOf(name);
    await folder.remove(probe);
    await (await open(folder.at(probe), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)).close();
    await folder.remove(probe);
    if ((await folder.find(name))?.isFile()) {
      await (await open(folder.at(name), O_WRONLY | O_NOFOLLOW | O_NONBLOCK)).close();
    }
  } catch (error) {
    throw describeWriteError(error, files.locate(path));
  }
}

function partialOf(name: string): string {
  return `${name}.partial`;
}

/** Returns the SHA-256 of bytes or a text, in hex. */
export function sha256Of(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Returns undefined for the error of a missing file, and throws any other. For the `catch` of a promise. */
export function passMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
  throw error;
}

/** The files of a host as they would be after changes. */
export class ChangedFiles extends HostFiles {
  readonly #changed: ReadonlyMap<string, Buffer | undefined>;

  constructor(root: string, changed: ReadonlyMap<string, Buffer | undefined>) {
    super(root);
    this.#changed = changed;
  }

  override async read(path: string): Promise<Buffer | undefined> {
    return this.#changed.has(path) ? this.#changed.get(path) : super.read(path);
  }

  override async exists(path: string): Promise<boolean> {
    return this.#changed.has(path) ? this.#changed.get(path) !== undefined : super.exists(path);
  }
}
