import { open, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { Header, Pax } from 'tar';
import { checkInterrupted, type Context } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { manifestSizeLimit, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { isDigest } from '../oci/digest.ts';
import { describeReadError } from './fileContent.ts';
import { verifyStream, type ContentSource } from './store.ts';
import { roundToBlock } from './tarLayout.ts';

/** A file or a symbolic link in an archive; `start` and `size` in bytes say where the content lies. */
export interface ArchiveEntry {
  readonly path: string;
  readonly start: number;
  readonly size: number;
  /** Where a symbolic link points to. */
  readonly target?: string;
}

const entryLimit = 200_000;
const paxLimit = 64 * 1024;
const chunkSize = 1024 * 1024;

/**
 * A mirror directory in a tar, read in place: on a disk, or on a device that holds the tar from its first byte on.
 * Opening it reads headers only, seeking from one to the next.
 */
export class Archive {
  readonly path: string;
  /** Every entry by its path, in the order of the tar. */
  readonly entries: ReadonlyMap<string, ArchiveEntry>;
  /** The size of the tar in bytes, with the two blocks that end it; a device may be larger. */
  readonly size: number;
  /** What is wrong with the tar from some byte on, where it was opened tolerantly. */
  readonly damage: PluginError | undefined;
  /** The entry in which the tar breaks off. */
  readonly cutEntry: string | undefined;
  readonly #file: FileHandle;

  private constructor(path: string, file: FileHandle, listing: Listing) {
    this.path = path;
    this.entries = listing.entries;
    this.size = listing.end;
    this.damage = listing.damage;
    this.cutEntry = listing.cutEntry;
    this.#file = file;
  }

  /**
   * Opens a tar and lists what is in it. Throws `not-readable`, and `invalid-bundle` when it is not a tar, is cut
   * short, or has entries that no mirror directory has (hard links, devices, paths that leave it, a name twice). When
   * `tolerant`, it is opened up to the damage instead.
   */
  static async open(path: string, context: Context, tolerant = false): Promise<Archive> {
    let file: FileHandle;
    try {
      file = await open(path, 'r');
    } catch (cause) {
      throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
    }
    try {
      const listing = await listEntries(file, path, context);
      if (listing.damage && !(tolerant && listing.entries.size > 0)) throw listing.damage;
      return new Archive(path, file, listing);
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Reads a small file of the archive whole. Throws `not-found`, and `too-large` above the limit in bytes. */
  async read(path: string, limit: number = manifestSizeLimit): Promise<Buffer> {
    const { start, size } = this.#locate(path);
    if (size > limit)
      throw new PluginError(
        'too-large',
        `${path} in ${this.path} has ${String(size)} bytes, more than the ${String(limit)} it may have`,
      );
    return readExactly(this.#file, this.path, start, size);
  }

  /** Streams a file of the archive, from an offset in bytes. The content is not verified. Throws `not-found`. */
  stream(path: string, offset = 0): Readable {
    const entry = this.#locate(path);
    return this.streamRange(entry.start + offset, entry.size - offset);
  }

  /** Streams bytes of the tar itself, headers and all, for reading it in one go. */
  streamRange(start: number, size: number): Readable {
    return Readable.from(this.#readRange(start, start + size), { objectMode: false, highWaterMark: chunkSize });
  }

  // A file stream would close the file when its reader goes away, and with it end all the others.
  async *#readRange(start: number, end: number): AsyncGenerator<Buffer> {
    for (let position = start; position < end;) {
      const length = Math.min(chunkSize, end - position);
      const { bytesRead, buffer } = await this.#file
        .read(Buffer.allocUnsafeSlow(length), 0, length, position)
        .catch((error: unknown) => {
          throw describeReadError(error, `byte ${String(position)} of ${this.path}`);
        });
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
      position += bytesRead;
    }
  }

  /** The names of the repositories in the archive, sorted. */
  repositories(): string[] {
    const names = new Set<string>();
    for (const path of this.entries.keys()) {
      const name = /^v2\/(.+)\/(?:manifests|blobs)\/[^/]+$/.exec(path)?.[1];
      if (name !== undefined) names.add(name);
    }
    return [...names].sort();
  }

  /** One repository’s content. */
  repository(name: string): ContentSource {
    return new ArchiveRepository(this, name);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  #locate(path: string): ArchiveEntry {
    const entry = this.entries.get(path);
    if (!entry || entry.target !== undefined) throw new PluginError('not-found', `${this.path} has no ${path}`);
    return entry;
  }
}

/** Opens a tar as Archive.open does. */
export function openArchive(path: string, context: Context): Promise<Archive> {
  return Archive.open(path, context);
}

class ArchiveRepository implements ContentSource {
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
    return { mediaType: parseManifest(bytes, `${digest} in ${this.name}`).mediaType, digest, size: bytes.length };
  }

  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const path = this.#find(descriptor);
    if (path === undefined)
      return Promise.reject(new PluginError('not-found', `${this.name} has no ${descriptor.digest}`));
    return Promise.resolve(verifyStream(this.#archive.stream(path, start), descriptor, this.name, start));
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
      (path) => this.#archive.entries.has(path),
    );
  }
}

interface Listing {
  readonly entries: ReadonlyMap<string, ArchiveEntry>;
  /** Where the tar ends, or its damage begins. */
  readonly end: number;
  readonly damage?: PluginError;
  readonly cutEntry?: string | undefined;
}

async function listEntries(file: FileHandle, path: string, context: Context): Promise<Listing> {
  const entries = new Map<string, ArchiveEntry>();
  const stat = await file.stat();
  const length = stat.isFile() ? stat.size : Number.POSITIVE_INFINITY;
  let position = 0;
  let pax: Pax | undefined;
  let cutEntry: string | undefined;
  try {
    for (;;) {
      checkInterrupted(context.signal);
      const header = await readHeader(file, path, position, pax);
      if (!header) return { entries, end: Math.min(position + 1024, length) };
      const start = position + 512;
      const size = header.size ?? 0;
      const next = start + roundToBlock(size);
      if (next > length) {
        cutEntry = header.path;
        throw damaged(
          path,
          `it is cut short: ${header.path ?? 'an entry'} would end at byte ${String(start + size)} of ${String(length)}`,
        );
      }
      position = next;
      if (header.type === 'ExtendedHeader') {
        if (size > paxLimit) throw damaged(path, 'a pax header is absurdly large');
        pax = Pax.parse((await readExactly(file, path, start, size)).toString());
        continue;
      }
      pax = undefined;
      if (header.type === 'Directory') continue;
      const entry = checkEntry(header, start, size, path);
      if (entries.has(entry.path)) throw damaged(path, `it has ${entry.path} twice`);
      if (entries.size >= entryLimit) throw damaged(path, `it has more than ${String(entryLimit)} entries`);
      entries.set(entry.path, entry);
    }
  } catch (error) {
    if (!isPluginError(error, 'invalid-bundle')) throw error;
    return { entries, end: position, damage: error, cutEntry };
  }
}

async function readHeader(
  file: FileHandle,
  path: string,
  position: number,
  pax: Pax | undefined,
): Promise<Header | undefined> {
  const block = await readExactly(file, path, position, 512);
  const header = new Header(block, 0, pax);
  if (header.nullBlock) return undefined;
  if (!header.cksumValid)
    throw damaged(path, position === 0 ? 'it is not a tar' : `there is no tar header at byte ${String(position)}`);
  return header;
}

function checkEntry(header: Header, start: number, size: number, archive: string): ArchiveEntry {
  const path = header.path?.replace(/^\.\//, '') ?? '';
  if (path === '' || path.startsWith('/') || path.split('/').includes('..'))
    throw damaged(archive, `the entry ${JSON.stringify(path)} would lead out of it`);
  if (header.type === 'SymbolicLink') return { path, start, size: 0, target: header.linkpath ?? '' };
  if (header.type === 'File' || header.type === 'OldFile') return { path, start, size };
  throw damaged(archive, `${path} is a ${header.type}; a bundle has files and links only`);
}

async function readExactly(file: FileHandle, path: string, position: number, size: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(size);
  let done = 0;
  while (done < size) {
    const { bytesRead } = await file.read(buffer, done, size - done, position + done);
    if (bytesRead === 0) throw damaged(path, `it ends at byte ${String(position + done)}, in the middle of something`);
    done += bytesRead;
  }
  return buffer;
}

function damaged(path: string, why: string): PluginError {
  return new PluginError('invalid-bundle', `${path} is not a whole upgrade bundle: ${why}`, {
    hint: 'Compare it with its .sha256 file, and copy or create it again.',
  });
}
