import { Header, Pax } from 'tar';
import { PluginError } from '#errors';
import type { Descriptor } from '../oci/descriptor.ts';

/**
 * An entry of a tar: a small file with its content, a folder (its path ends in a slash), a symbolic link, or content
 * that is written later.
 */
export type TarEntry =
  | { readonly path: `${string}/`; readonly folder: true }
  | { readonly path: string; readonly content: Buffer }
  | { readonly path: string; readonly target: string }
  | { readonly path: string; readonly descriptor: Descriptor };

/** An entry with its place in bytes: `header` is at `position`, and the `size` bytes of content are at `start`. */
export interface PlacedEntry {
  readonly entry: TarEntry;
  readonly header: Buffer;
  readonly position: number;
  readonly start: number;
  readonly size: number;
}

/** The layout of a tar: the place of each entry, and the size of the file in bytes. */
export interface TarLayout {
  readonly entries: readonly PlacedEntry[];
  readonly size: number;
  /** The size of volumes in bytes, if the tar is split above it. */
  readonly volumeSize?: number;
}

const blockSize = 512;
/** The size of the blocks of zeros that end a tar, in bytes. */
export const endSize = 2 * blockSize;

// A fixed time, so that the same inputs give the same bytes. 1980 is the earliest date of FAT.
const modified = new Date(Date.UTC(1980, 0, 1));

/** Rounds a size in bytes up to tar blocks. */
export function roundToBlock(size: number): number {
  return Math.ceil(size / blockSize) * blockSize;
}

/**
 * Lays out a tar with the entries in the given order. Owners, modes and times are fixed. Names that are too long for
 * ustar, and sizes above 8 GiB, get a pax header (POSIX.1-2001, pax).
 */
export function layOutTar(entries: readonly TarEntry[], volumeSize?: number): TarLayout {
  let position = 0;
  const placed = entries.map((entry): PlacedEntry => {
    const size = 'content' in entry ? entry.content.length : 'descriptor' in entry ? entry.descriptor.size : 0;
    const header = encodeHeader(entry, size);
    const start = position + header.length;
    const place = { entry, header, position, start, size };
    position = start + roundToBlock(size);
    return place;
  });
  return { entries: placed, size: position + endSize, volumeSize };
}

/** Returns the bytes of a tar with these files, as layOutTar lays them out. Holds everything in memory. */
export function encodeTar(files: readonly { readonly path: string; readonly content: Buffer }[]): Buffer {
  const { entries, size } = layOutTar(files);
  const tar = Buffer.alloc(size);
  for (const [index, { header, position, start }] of entries.entries()) {
    header.copy(tar, position);
    files[index]?.content.copy(tar, start);
  }
  return tar;
}

/** Encodes the header of an entry whose content has `size` bytes, with a pax header if it needs one. */
export function encodeHeader(entry: TarEntry, size: number): Buffer {
  const isLink = 'target' in entry;
  const isFolder = 'folder' in entry;
  const data = {
    path: entry.path,
    mode: isLink ? 0o777 : isFolder ? 0o755 : 0o644,
    uid: 0,
    gid: 0,
    size,
    mtime: modified,
    type: isLink ? 'SymbolicLink' : isFolder ? 'Directory' : 'File',
    ...(isLink && { linkpath: entry.target }),
    uname: '',
    gname: '',
  } as const;
  const header = new Header(data);
  const block = Buffer.alloc(blockSize);
  if (!header.encode(block, 0)) return block;
  const pax = new Pax({ path: entry.path, size, ...(isLink && { linkpath: entry.target }) });
  return Buffer.concat([pax.encode(), block]);
}

/** A file in a tar that is read as a stream. */
export interface StreamedFile {
  /** The path without a leading `./`. */
  readonly path: string;
  /** The size in bytes. */
  readonly size: number;
  /** Read it before the next file. The next file skips the rest. */
  readonly content: AsyncIterable<Buffer>;
}

/** Reads the files of a tar from any stream. Throws `invalid-file` with `where`. */
export async function* readTarStream(source: AsyncIterable<Buffer>, where: string): AsyncGenerator<StreamedFile> {
  const bytes = new Bytes(source);
  for (;;) {
    const block = await bytes.take(512);
    // Some tars end without the two empty blocks.
    if (block.length === 0) return;
    const header = block.length === 512 ? new Header(block) : undefined;
    if (header?.nullBlock) {
      await bytes.skip(Infinity);
      return;
    }
    if (!header?.cksumValid) throw damaged(where, 'it is not a tar, or is truncated');
    const size = header.size ?? 0;
    const state = { left: size };
    if (header.type === 'File' || header.type === 'OldFile') {
      const content = readContent(bytes, state, where);
      yield { path: (header.path ?? '').replace(/^\.\//, ''), size, content };
    }
    if ((await bytes.skip(state.left)) < state.left) throw damaged(where, 'it is truncated');
    await bytes.skip(roundToBlock(size) - size);
  }
}

async function* readContent(bytes: Bytes, state: { left: number }, where: string): AsyncGenerator<Buffer> {
  while (state.left > 0) {
    const chunk = await bytes.next(state.left);
    if (!chunk) throw damaged(where, 'it is truncated');
    state.left -= chunk.length;
    yield chunk;
  }
}

/** Bytes from chunks of any size. */
class Bytes {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Returns some bytes, at most `limit`; undefined at the end. */
  async next(limit: number): Promise<Buffer | undefined> {
    while (this.#held.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return undefined;
      this.#held = next.value;
    }
    const chunk = this.#held.subarray(0, limit);
    this.#held = this.#held.subarray(chunk.length);
    return chunk;
  }

  /** Returns the requested number of bytes; fewer at the end. */
  async take(size: number): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for (let remaining = size; remaining > 0;) {
      const chunk = await this.next(remaining);
      if (!chunk) break;
      chunks.push(chunk);
      remaining -= chunk.length;
    }
    return Buffer.concat(chunks);
  }

  /** Skips bytes, and returns their number; fewer than requested at the end. */
  async skip(size: number): Promise<number> {
    let skipped = 0;
    while (skipped < size) {
      const chunk = await this.next(size - skipped);
      if (!chunk) break;
      skipped += chunk.length;
    }
    return skipped;
  }
}

function damaged(where: string, why: string): PluginError {
  return new PluginError('invalid-file', `${where} cannot be read: ${why}`, {
    hint: 'Copy it again, and compare its digest with the digest at its source.',
  });
}
