import type { Readable } from 'node:stream';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { readAhead, readChunks, readFully, readRange, type Piece, type RandomAccess } from '../files/fileRange.ts';
import { manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { digestOf, isDigest, type Digest } from '../oci/reference.ts';
import { verifyStream, type ContentSource, type LocalContent } from '../store/store.ts';
import { listEntries, type ArchiveEntry, type TarListing } from './tarListing.ts';
import { findArchive, openVolume, volumeName, Volumes, type FoundArchive } from './volumes.ts';

/** The bytes of a tar: open files, or a file on another machine. */
export interface ArchiveFile extends Pick<RandomAccess, 'read'> {
  /** The size in bytes; infinite for a device. */
  readonly size: number;
  /** Returns the files that contain some bytes of the tar. */
  pieces(start: number, size: number): readonly Pick<Piece, 'path'>[];
  close(): Promise<void>;
}

/**
 * A mirror directory in a tar that is read in place: a file, volumes, a device with the tar from its first byte, or a
 * file on another machine. Opening it reads only the headers, and seeks from one to the next.
 */
export class Archive {
  readonly path: string;
  readonly found: FoundArchive;
  /** The entries by path, in the order of the tar. */
  readonly entries: ReadonlyMap<string, ArchiveEntry>;
  /** The size of the tar in bytes, with the two blocks at its end. A device may be larger. */
  readonly size: number;
  /** Whether another program packed the tar: it has a header that layOutTar does not write. */
  readonly isRepacked: boolean;
  /** The digest of all headers, one after another, as they were listed. */
  readonly headers: Digest;
  /** The damage of the tar, if it was opened with `tolerant`. */
  readonly damage: PluginError | undefined;
  /** The entry in which a truncated tar ends. */
  readonly cutEntry: string | undefined;
  readonly #file: ArchiveFile;
  readonly #signal: AbortSignal;

  private constructor(foundArchive: FoundArchive, file: ArchiveFile, listing: TarListing, signal: AbortSignal) {
    this.path = foundArchive.path;
    this.found = foundArchive;
    this.entries = listing.entries;
    this.size = listing.end;
    this.isRepacked = listing.isRepacked;
    this.headers = listing.headers;
    this.damage = listing.damage;
    this.cutEntry = listing.cutEntry;
    this.#file = file;
    this.#signal = signal;
  }

  /**
   * Opens a tar by its name or by the name of any of its volumes, and lists its entries. Throws `not-readable`, and
   * `invalid-bundle` if it is not a tar, is truncated, lacks a volume, or has an invalid entry. An entry is invalid if
   * no mirror directory has it, or if tar programs read it in different ways. With `tolerant`, opens it up to the
   * damage instead. `onMedium` as for findArchive.
   */
  static async open(path: string, context: Context, tolerant = false, onMedium = false): Promise<Archive> {
    const foundArchive = await findArchive(path, onMedium);
    const [first] = foundArchive?.volumes ?? [];
    if (!foundArchive || !first) {
      const missing = foundArchive ? volumeName(foundArchive.path, 0) : path;
      const why = foundArchive ? 'the first volume of the bundle is missing' : 'there is no such file';
      throw new PluginError('not-readable', `${missing} cannot be read: ${why}`);
    }
    const file = await Volumes.open(foundArchive.volumes, (volume) => openVolume(volume, onMedium));
    return Archive.openFile(foundArchive, file, context, tolerant);
  }

  /** Does the same as `open` for open files, and closes them if it fails. */
  static async openFile(
    foundArchive: FoundArchive,
    file: ArchiveFile,
    context: Context,
    tolerant = false,
  ): Promise<Archive> {
    try {
      const listed = await listEntries(file, foundArchive.path, context.signal);
      const listing = foundArchive.volumes.length > 1 ? nameVolume(listed, file) : listed;
      if (listing.damage && !(tolerant && listing.entries.size > 0)) throw listing.damage;
      return new Archive(foundArchive, file, listing, context.signal);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Reads a small file of the archive. Throws `not-found`, and `too-large` above the limit in bytes. */
  async read(path: string, limit: number = manifestSizeLimit): Promise<Buffer> {
    const { start, size } = this.#locate(path);
    if (size > limit)
      throw new PluginError('too-large', `${path} in ${this.path} has ${size} bytes, more than the limit of ${limit}`);
    const bytes = await readFully(this.#file, this.path, start, size, this.#signal);
    if (bytes.length < size) throw new PluginError('not-readable', `${this.path} ends in the middle of ${path}`);
    return bytes;
  }

  /** Streams a file of the archive, from an offset in bytes. The content is not verified. Throws `not-found`. */
  stream(path: string, offset = 0): Readable {
    const entry = this.#locate(path);
    return readRange(this.#file, this.path, entry.start + offset, entry.size - offset, this.#signal);
  }

  /** Reads bytes of the tar, including headers. Each chunk is overwritten by the one after the next. */
  chunks(start: number, size: number): AsyncIterable<Buffer> {
    return readChunks(this.#file, this.path, start, size, this.#signal);
  }

  /** Does the same as `chunks`, but reads ahead of the caller, into shared memory. */
  chunksAhead(start: number, size: number): AsyncIterable<Buffer> {
    return readAhead(this.#file, this.path, start, size, this.#signal);
  }

  /** Reads bytes of a file of the archive from `start` to before `end`, as `chunks` does. Throws `not-found`. */
  chunksOf(path: string, start: number, end: number): AsyncIterable<Buffer> {
    return this.chunks(this.#locate(path).start + start, end - start);
  }

  /** Returns the files that contain an entry, for messages. */
  locate(path: string): string {
    const { start, size } = this.#locate(path);
    return [...new Set(this.#file.pieces(start, size).map((piece) => piece.path))].join(' and ');
  }

  /** Lists the names of the repositories in the archive, sorted. */
  repositories(): string[] {
    const names = new Set<string>();
    for (const path of this.entries.keys()) {
      const name = /^v2\/(.+)\/(?:manifests|blobs)\/[^/]+$/.exec(path)?.[1];
      if (name !== undefined) names.add(name);
    }
    return [...names].sort();
  }

  repository(name: string): ContentSource & LocalContent {
    return new ArchiveRepository(this, name);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  #locate(path: string): ArchiveEntry {
    const entry = this.entries.get(path);
    if (!isFile(entry)) throw new PluginError('not-found', `${this.path} has no ${path}`);
    return entry;
  }
}

/** Opens a tar. Does the same as Archive.open. */
export function openArchive(path: string, context: Context): Promise<Archive> {
  return Archive.open(path, context);
}

class ArchiveRepository implements ContentSource, LocalContent {
  readonly name: string;
  readonly #archive: Archive;
  readonly #folder: string;

  constructor(archive: Archive, repository: string) {
    this.name = archive.path;
    this.#archive = archive;
    this.#folder = `v2/${repository}`;
  }

  async resolve(tagOrDigest: string): Promise<Descriptor> {
    const digest = isDigest(tagOrDigest)
      ? tagOrDigest
      : this.#archive.entries.get(`${this.#folder}/manifests/${tagOrDigest}`)?.target;
    if (digest === undefined || !isDigest(digest))
      throw new PluginError('not-found', `${this.name} has no image ${tagOrDigest}`);
    const bytes = await this.#archive.read(`${this.#folder}/manifests/${digest}`);
    const actual = digestOf(bytes);
    if (actual !== digest)
      throw new PluginError('digest-mismatch', `${this.name}: the content of ${digest} is corrupt (it is ${actual})`);
    return { mediaType: parseManifest(bytes, `${digest} in ${this.name}`).mediaType, digest, size: bytes.length };
  }

  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const path = this.#find(descriptor);
    if (path === undefined)
      return Promise.reject(new PluginError('not-found', `${this.name} has no ${descriptor.digest}`));
    return Promise.resolve(
      verifyStream(this.#archive.stream(path, start), descriptor, this.#archive.locate(path), start),
    );
  }

  chunks(descriptor: Descriptor, start: number, end: number): AsyncIterable<Buffer> {
    return this.#archive.chunksOf(this.#find(descriptor) ?? descriptor.digest, start, end);
  }

  exists(descriptor: Descriptor): Promise<boolean> {
    return Promise.resolve(this.#find(descriptor) !== undefined);
  }

  tags(): Promise<string[]> {
    const prefix = `${this.#folder}/manifests/`;
    return Promise.resolve(
      [...this.#archive.entries.values()]
        .filter((entry) => entry.target !== undefined && entry.path.startsWith(prefix))
        .map((entry) => entry.path.slice(prefix.length)),
    );
  }

  #find(descriptor: Descriptor): string | undefined {
    return [`${this.#folder}/blobs/${descriptor.digest}`, `${this.#folder}/manifests/${descriptor.digest}`].find(
      (path) => isFile(this.#archive.entries.get(path)),
    );
  }
}

function isFile(entry: ArchiveEntry | undefined): entry is ArchiveEntry {
  return entry !== undefined && entry.target === undefined;
}

/** Adds the name of the volume to the damage of a tar. */
function nameVolume(listing: TarListing, file: ArchiveFile): TarListing {
  const { damage, end } = listing;
  const [piece] = file.pieces(end, 1);
  if (!damage || !piece) return listing;
  const { code, message, hint } = damage;
  return { ...listing, damage: new PluginError(code, `${message}, which is in ${piece.path}`, { hint }) };
}
