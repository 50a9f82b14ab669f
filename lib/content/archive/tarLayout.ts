import { Header, Pax } from 'tar';
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
