import { Header, Pax, type HeaderData } from 'tar';
import { isPluginError, PluginError } from '../errors.ts';
import { readFully } from './fileRange.ts';
import { roundToBlock } from './tarLayout.ts';
import type { Volumes } from './volumes.ts';

/** A file or a symbolic link in an archive; `start` and `size` in bytes say where the content lies. */
export interface ArchiveEntry {
  readonly path: string;
  readonly start: number;
  readonly size: number;
  /** Where a symbolic link points to. */
  readonly target?: string;
}

/** What a tar has in it. */
export interface TarListing {
  readonly entries: ReadonlyMap<string, ArchiveEntry>;
  /** Where the tar ends, or its damage begins. */
  readonly end: number;
  readonly damage?: PluginError;
  /** The entry in which the tar breaks off. */
  readonly cutEntry?: string | undefined;
}

/** An entry whose header was read last, whatever it is. */
type LastEntry = Pick<ArchiveEntry, 'start' | 'size'> & { readonly path: string | undefined };

/** A tar being read. */
interface Tar {
  readonly path: string;
  /** Reads bytes, to be used before the next call; fewer than asked for only at the end. */
  read(start: number, size: number): Promise<Buffer>;
}

// What GNU tar has in place of a pax header: an entry whose content is a name of the next one.
const longNames: Readonly<Record<string, 'path' | 'linkpath' | undefined>> = {
  NextFileHasLongPath: 'path',
  NextFileHasLongLinkpath: 'linkpath',
};

const entryLimit = 200_000;
const paxLimit = 64 * 1024;
/** Manifests and links are small, and follow each other: so many bytes have the headers of several. */
const windowSize = 16 * 1024;

/**
 * Lists what is in a tar by seeking from header to header. Damage ends the list and is told in it; throws `not-readable` and
 * `interrupted`.
 */
export async function listEntries(file: Volumes, path: string, signal: AbortSignal): Promise<TarListing> {
  const entries = new Map<string, ArchiveEntry>();
  const length = file.size;
  const tar = openWindow(file, path, signal);
  let position = 0;
  let pax: HeaderData | undefined;
  let last: LastEntry | undefined;
  try {
    for (;;) {
      const header = await readHeader(tar, position, pax);
      if (!header) return { entries, end: Math.min(position + 1024, length) };
      const start = position + 512;
      const size = header.size ?? 0;
      const next = start + roundToBlock(size);
      if (!Number.isSafeInteger(size) || !Number.isSafeInteger(next))
        throw damaged(path, `the size of ${header.path ?? 'an entry'} is absurd`);
      last = { path: header.path, start, size };
      if (next > length) return { entries, ...cutShort(path, last) };
      position = next;
      const isPax = header.type === 'ExtendedHeader';
      const long = longNames[header.type];
      if (isPax || long !== undefined) {
        if (size > paxLimit) throw damaged(path, `a ${isPax ? 'pax header' : 'name'} is absurdly large`);
        const text = (await tar.read(start, size)).toString();
        pax = long === undefined ? Pax.parse(text) : { ...pax, [long]: text.replace(/\0.*$/s, '') };
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
    // A device does not tell its size: where there is no next header, the end of the last entry may be missing as well.
    if (last && length === Infinity && (await tar.read(position - 1, 1)).length === 0) {
      const [name] = [...entries].find(([, entry]) => entry.start === last?.start) ?? [];
      if (name !== undefined) entries.delete(name);
      return { entries, ...cutShort(path, last) };
    }
    return { entries, end: position, damage: error };
  }
}

function cutShort(archive: string, { path, start, size }: LastEntry): Pick<TarListing, 'end' | 'damage' | 'cutEntry'> {
  const damage = damaged(archive, `it is cut short: ${path ?? 'an entry'} would end at byte ${String(start + size)}`);
  return { end: start - 512, damage, cutEntry: path };
}

/** Reads a tar through a window, so that headers that are close to each other cost one read. */
function openWindow(file: Volumes, path: string, signal: AbortSignal): Tar {
  let from = 0;
  let window: Buffer = Buffer.alloc(0);
  const read = async (start: number, size: number): Promise<Buffer> => {
    if (start < from || start + size > from + window.length) {
      [from, window] = [start, await readFully(file, path, start, Math.max(size, windowSize), signal)];
    }
    return window.subarray(start - from, start - from + size);
  };
  return { path, read };
}

/** Reads the header at a position; undefined where the tar ends. */
async function readHeader(tar: Tar, position: number, pax: HeaderData | undefined): Promise<Header | undefined> {
  const block = await tar.read(position, 512);
  if (block.length < 512) {
    const why =
      position === 0 ? 'it is not a tar' : `it is cut short: it ends at byte ${String(position + block.length)}`;
    throw damaged(tar.path, why);
  }
  const header = decodeHeader(block, pax);
  if (header?.nullBlock && position > 0) {
    // Two empty blocks end a tar: a single one, and more after it, is a header that something has wiped out.
    const after = await tar.read(position + 512, 513);
    if (after.length <= 512 || after.subarray(0, 512).every((byte) => byte === 0)) return undefined;
  }
  if (header?.cksumValid) {
    // The package puts the prefix of the header in front of a whole path, and takes the header's link for the whole one.
    header.path = pax?.path ?? header.path ?? '';
    header.linkpath = pax?.linkpath ?? header.linkpath ?? '';
    return header;
  }
  throw damaged(tar.path, position === 0 ? 'it is not a tar' : `there is no tar header at byte ${String(position)}`);
}

/** Decodes a header; undefined where it has a number that is none. */
function decodeHeader(block: Buffer, pax: HeaderData | undefined): Header | undefined {
  try {
    return new Header(block, 0, pax);
  } catch {
    return undefined;
  }
}

function checkEntry(header: Header, start: number, size: number, archive: string): ArchiveEntry {
  const path = header.path?.replace(/^\.\//, '') ?? '';
  if (path === '' || path.startsWith('/') || path.split('/').includes('..'))
    throw damaged(archive, `the entry ${JSON.stringify(path)} would lead out of it`);
  if (header.type === 'SymbolicLink') return { path, start, size: 0, target: header.linkpath ?? '' };
  if (header.type === 'File' || header.type === 'OldFile') return { path, start, size };
  throw damaged(archive, `${path} is a ${header.type}; a bundle has files and links only`);
}

function damaged(path: string, why: string): PluginError {
  return new PluginError('invalid-bundle', `${path} is not a whole upgrade bundle: ${why}`, {
    hint: 'Compare it with its .sha256 file, and copy or create it again.',
  });
}
