import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { isZero, endSize, roundToBlock } from '#content/archive';
import { describeReadError, readFully, readRange } from '#content/files';
import { PluginError } from '#errors';
import {
  databaseEntries,
  headerOf,
  isBackupPath,
  isDatabase,
  isSmallFile,
  manifestName,
  type BackupEntry,
  type BackupManifest,
} from './backupFormat.ts';

/** Limits of what is read into memory, in bytes, and of the number of files. */
const smallLimit = 4 * 1024 * 1024;
const manifestLimit = 256 * 1024 * 1024;
const countLimit = 1_000_000;

/**
 * An open backup. `writeBackup` writes the same headers, byte for byte, so it has no links, owners or names of other
 * kinds. Its content is not verified until it is read.
 */
export class Backup {
  readonly path: string;
  readonly manifest: BackupManifest;
  readonly #file: FileHandle;
  readonly #starts: ReadonlyMap<string, number>;

  private constructor(path: string, manifest: BackupManifest, file: FileHandle, starts: ReadonlyMap<string, number>) {
    this.path = path;
    this.manifest = manifest;
    this.#file = file;
    this.#starts = starts;
  }

  /**
   * Opens a backup. Throws `invalid-file` for a file of another form, `unsupported` for a newer format, and
   * `not-readable`, also for a file that another user can change.
   */
  static async open(path: string, signal: AbortSignal): Promise<Backup> {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
      throw describeReadError(error, path);
    });
    try {
      const size = await checkFile(file, path);
      const entries = await readHeaders(file, path, size, signal);
      const last = entries.pop();
      if (last?.path !== manifestName || last.size > manifestLimit) throw refused(path, 'it has no manifest');
      const manifest = parseManifest(await readFully(file, path, last.start, last.size, signal), path);
      checkEntries(manifest, entries, path);
      return new Backup(path, manifest, file, new Map(entries.map((entry) => [entry.path, entry.start])));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Streams a file, and checks its digest before the last bytes. Throws `digest-mismatch`, `not-readable`. */
  async *content({ path, size, sha256 }: BackupEntry, signal: AbortSignal): AsyncGenerator<Buffer> {
    const hash = createHash('sha256');
    let held: Buffer | undefined;
    const start = this.#starts.get(path) ?? 0;
    for await (const chunk of readRange(this.#file, this.path, start, size, signal) as AsyncIterable<Buffer>) {
      hash.update(chunk);
      if (held) yield held;
      held = chunk;
    }
    if (hash.digest('hex') !== sha256) {
      throw new PluginError('digest-mismatch', `${this.path} is corrupt: ${path} has another digest`, {
        hint: 'Copy it again from its source, or restore another backup.',
      });
    }
    if (held) yield held;
  }

  /** Reads the first bytes of a file. Throws `not-readable`. */
  head({ path }: BackupEntry, size: number, signal: AbortSignal): Promise<Buffer> {
    return readFully(this.#file, this.path, this.#starts.get(path) ?? 0, size, signal);
  }

  /** Checks the digests of all files. Throws as `content`. */
  async verify(signal: AbortSignal): Promise<void> {
    for (const entry of this.manifest.files) for await (const _ of this.content(entry, signal));
  }

  /** Reads the files other than the database and the images, by path. Throws as `content`. */
  async readSmall(signal: AbortSignal): Promise<Map<string, Buffer>> {
    const small = new Map<string, Buffer>();
    for (const entry of this.manifest.files.filter(({ path }) => isSmallFile(path))) {
      const chunks: Buffer[] = [];
      for await (const chunk of this.content(entry, signal)) chunks.push(chunk);
      small.set(entry.path, Buffer.concat(chunks));
    }
    return small;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
  }
}

/** Checks that no other user can change a backup, and returns its size in bytes. */
async function checkFile(file: FileHandle, path: string): Promise<number> {
  const stats = await file.stat();
  if (!stats.isFile()) throw new PluginError('not-readable', `${path} is not a regular file`);
  const isForeign = stats.uid !== 0 && stats.uid !== process.geteuid?.();
  if (!isForeign && (stats.mode & 0o022) === 0) return stats.size;
  const why = isForeign ? `it belongs to user ${stats.uid}` : 'other users can write it';
  throw new PluginError('not-readable', `${path} cannot be trusted: ${why}`, {
    hint: 'Check where it comes from, and make it your own, with mode 0600.',
  });
}

interface PlacedFile {
  readonly path: string;
  readonly size: number;
  readonly start: number;
}

async function readHeaders(file: FileHandle, path: string, total: number, signal: AbortSignal): Promise<PlacedFile[]> {
  const entries: PlacedFile[] = [];
  for (let position = 0; ;) {
    const block = await readFully(file, path, position, 512, signal);
    if (block.length < 512) throw refused(path, 'it is truncated');
    if (isZero(block)) {
      if (position + endSize === total) return entries;
      throw refused(path, 'it is truncated, or has more than a backup');
    }
    if (entries.length === countLimit) throw refused(path, `it has more than ${countLimit} files`);
    const { name, size, length } = await readHeader(file, path, position, block, signal);
    const limit = name === manifestName ? manifestLimit : isSmallFile(name) ? smallLimit : Infinity;
    if (size > limit) throw refused(path, `${name} is too large`);
    if (position + length + size > total) throw refused(path, 'it is truncated');
    entries.push({ path: name, size, start: position + length });
    position += length + roundToBlock(size);
  }
}

/** Reads the name and size of a file, and checks that its header has nothing else. */
async function readHeader(
  file: FileHandle,
  path: string,
  position: number,
  block: Buffer,
  signal: AbortSignal,
): Promise<{ readonly name: string; readonly size: number; readonly length: number }> {
  const textOf = (bytes: Buffer, start: number, end: number): string =>
    bytes.toString('latin1', start, end).replace(/\0.*$/s, '');
  const isPax = block[156] === 'x'.charCodeAt(0);
  // Names and sizes that a header cannot hold.
  const header = isPax ? await readFully(file, path, position, 3 * 512, signal) : block;
  const record = (name: string): string | undefined =>
    new RegExp(`^\\d+ ${name}=(.*)$`, 'm').exec(textOf(header, 512, 1024))?.[1];
  const name = record('path') ?? [textOf(block, 345, 500), textOf(block, 0, 100)].filter((part) => part).join('/');
  const size = Number(record('size') ?? parseInt(textOf(header, header.length - 388, header.length - 376), 8));
  const isNamed = name === manifestName || isBackupPath(name);
  if (isNamed && Number.isSafeInteger(size) && size >= 0 && headerOf(name, size).equals(header)) {
    return { name, size, length: header.length };
  }
  throw refused(path, `at byte ${position}, it has another header than a backup`);
}

function parseManifest(bytes: Buffer, path: string): BackupManifest {
  let manifest: unknown;
  try {
    manifest = JSON.parse(bytes.toString());
  } catch (cause) {
    throw refused(path, 'its manifest is not JSON', cause);
  }
  const {
    format,
    created,
    version = '',
    quay,
    hostname,
    hasImages,
    files,
  } = (manifest ?? {}) as Partial<Record<keyof BackupManifest, unknown>>;
  if (typeof format === 'number' && format > 1) {
    throw new PluginError('unsupported', `${path} has a newer format, ${format}`, {
      hint: 'Restore it with the program that made it, or a newer one.',
    });
  }
  // They are printed.
  const texts = [
    [created, /^\d{4}-\d\d-\d\dT[\d:.]{8,12}Z$/],
    [version, /^[\w.-]{0,64}$/],
    [quay, /^[\w./:@-]{0,512}$/],
    [hostname, /^[\w.:*[\]-]{1,300}$/],
  ] as const;
  const isPlain = texts.every(([value, pattern]) => typeof value === 'string' && pattern.test(value));
  if (format === 1 && isPlain && typeof hasImages === 'boolean' && Array.isArray(files)) {
    return manifest as BackupManifest;
  }
  throw refused(path, 'its manifest is malformed');
}

/** Checks that the manifest names all files, in their order, each once. */
function checkEntries({ files }: BackupManifest, entries: readonly PlacedFile[], path: string): void {
  const isSame =
    files.length === entries.length &&
    entries.every((entry, index) => {
      const listed: unknown = files[index];
      const { path: name, size, sha256 } = (listed ?? {}) as Partial<Record<keyof BackupEntry, unknown>>;
      return name === entry.path && size === entry.size && /^[0-9a-f]{64}$/.test(String(sha256));
    });
  if (!isSame) throw refused(path, 'its manifest names other files than it has');
  const names = new Set(entries.map((entry) => entry.path));
  if (names.size !== entries.length) throw refused(path, 'it has a file twice');
  if (!names.has('quay-config/config.yaml')) throw refused(path, 'quay-config/config.yaml is missing');
  const databases = [...names].filter(isDatabase);
  if (databases.length === 1) return;
  throw refused(path, databases.length > 1 ? 'it has two databases' : `${databaseEntries.sqlite} is missing`);
}

function refused(path: string, why: string, cause?: unknown): PluginError {
  return new PluginError('invalid-file', `${path} is not a backup of a mirror registry: ${why}`, {
    hint: 'Nothing was changed. Give a file that this program made, unchanged.',
    cause,
  });
}
