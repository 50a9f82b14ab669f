import { createHash } from 'node:crypto';
import { isPluginError, PluginError } from '#errors';
import { shellWord } from '#text';
import { readFully, type RandomAccess } from '../files/fileRange.ts';
import { type Digest, isDigest } from '../oci/reference.ts';
import { decodeHeader, isHeader, isZero, quoteEntry, type Refuse, type TarHeader } from './tarHeader.ts';
import { encodeHeader, endSize, roundToBlock } from './tarLayout.ts';

/** The records of a pax header for the next entry. Text is Latin-1, as in TarHeader; the size is in bytes. */
interface PaxRecords {
  readonly path?: string;
  readonly target?: string;
  readonly size?: number;
}

const time = /^\d{1,11}(?:\.\d{1,9})?$/;
const id = /^\d{1,9}$/;
const owner = /^[\x20-\x7e]{0,255}$/;

const label = String.raw`[\w.:,-]{1,255}`;

/**
 * The records that GNU tar and bsdtar write when they pack a mirror directory, with the values that both accept.
 * GNU.sparse.* replaces names and contents. Extended attributes and file flags, except the SELinux label, change what
 * bsdtar extracts.
 */
const allowed: Readonly<Record<string, RegExp>> = {
  path: /^[^\0]+$/,
  linkpath: /^[^\0]+$/,
  size: /^(?:0|[1-9]\d{0,14})$/,
  mtime: time,
  atime: time,
  ctime: time,
  'LIBARCHIVE.creationtime': time,
  uid: id,
  gid: id,
  uname: owner,
  gname: owner,
  'SCHILY.dev': /^\d{1,18}$/,
  'SCHILY.ino': /^\d{1,18}$/,
  'SCHILY.nlink': /^\d{1,9}$/,
  'RHT.security.selinux': new RegExp(`^${label}\0?$`),
  'SCHILY.xattr.security.selinux': new RegExp(`^${label}\0?$`),
  'LIBARCHIVE.xattr.security.selinux': /^[\w+/=-]{1,400}$/,
};

/**
 * Parses the content of a pax header: records of the form `LENGTH KEYWORD=VALUE`, each with a line feed at its end.
 * Lengths must be exact, and keywords unique.
 */
function readPaxRecords(bytes: Buffer, refuse: Refuse): PaxRecords {
  const records = new Map<string, string>();
  for (let position = 0; position < bytes.length;) {
    const head = bytes.toString('latin1', position, position + 5);
    const length = Number(/^([1-9]\d{0,3}) /.exec(head)?.[1] ?? Number.NaN);
    const record = bytes.toString('latin1', position, position + length);
    const [, keyword = '', value = ''] = /^\d+ ([^=\0]+)=(.*)\n$/s.exec(record) ?? [];
    if (!(record.length === length) || keyword === '') return refuse('a pax header is malformed');
    const pattern = Object.hasOwn(allowed, keyword) ? allowed[keyword] : undefined;
    if (!pattern) return refuse(`a pax header has ${describeRecord(keyword)}, which changes what tar extracts`);
    if (!pattern.test(value)) return refuse(`the value of ${keyword} in a pax header is malformed`);
    if (records.has(keyword)) return refuse(`a pax header has two values of ${keyword}`);
    records.set(keyword, value);
    position += length;
  }
  if (records.size === 0) return refuse('a pax header is empty');
  const [path, target, size] = [records.get('path'), records.get('linkpath'), records.get('size')];
  return {
    path,
    target,
    ...(size !== undefined && { size: Number(size) }),
  };
}

// Other keywords may be any bytes of an unverified file.
function describeRecord(keyword: string): string {
  const isKnown = /^(?:GNU|SCHILY|LIBARCHIVE)(?:\.[a-z]{1,12}){1,2}$/.test(keyword);
  return isKnown ? `a record ${keyword}` : 'a record of an unknown kind';
}

const lengthLimit = 1000;
const depthLimit = 20;

/**
 * Converts the name of an entry to a path in the archive, without a leading `./` or a trailing slash. The root folder
 * is an empty path. Refuses names that tar programs or file systems change or extract elsewhere.
 */
function parseName(name: string, isFolder: boolean, refuse: Refuse): string {
  const quoted = quoteEntry(name);
  if (isFolder && (name === '.' || name === './')) return '';
  const path = (isFolder ? name.replace(/\/$/, '') : name).replace(/^\.\//, '');
  const parts = path.split('/');
  // bsdtar removes a letter and a colon as a drive name.
  if (/^(?:\/|[a-z]:)/i.test(path) || parts.includes('..')) return refuse(`${quoted} is outside of the archive`);
  if (parts.some((part) => part === '' || part === '.'))
    return refuse(`${quoted} is not the shortest form of its path`);
  if (!/^[\x20-\x5b\x5d-\x7e]+$/.test(path))
    return refuse(`${quoted} has characters other than printable ASCII without a backslash`);
  if (path.length > lengthLimit || parts.length > depthLimit || parts.some((part) => part.length > 255))
    return refuse(`${quoted} is too long or has too many folders`);
  if (parts.some((part) => part.startsWith('._')))
    return refuse(`${quoted} is an AppleDouble file, which tar adds on macOS unless COPYFILE_DISABLE=1 is set`);
  return path;
}

/** Refuses a symbolic link unless it is a tag that points to a manifest beside it. */
function checkLink(path: string, target: string, refuse: Refuse): void {
  if (!/^v2\/.+\/manifests\/[^/]+$/.test(path) || !isDigest(target))
    refuse(`${quoteEntry(path)} is a symbolic link; only tags are links, to manifests beside them`);
}

/**
 * The paths in an archive. Refuses a path that another entry would replace during extraction, or that would be written
 * through another entry.
 */
class TarNames {
  /**
   * The spelling of each path, and whether it is a folder, by the path in lower case. Some file systems ignore case.
   */
  readonly #seen = new Map<string, { readonly path: string; readonly isFolder: boolean }>();

  /** Adds a file or a link. */
  addFile(path: string, refuse: Refuse): void {
    this.#addParents(path, refuse);
    const seen = this.#find(path, refuse);
    if (seen?.isFolder === true) refuse(`${quoteEntry(path)} is a file and a folder`);
    if (seen) refuse(`it has ${path} twice`);
    this.#add(path, false);
  }

  /** Adds a folder, which may already exist. */
  addFolder(path: string, refuse: Refuse): void {
    if (path === '') return;
    this.#addParents(path, refuse);
    const seen = this.#find(path, refuse);
    if (seen?.isFolder === false) refuse(`${quoteEntry(path)} is a file and a folder`);
    if (!seen) this.#add(path, true);
  }

  #addParents(path: string, refuse: Refuse): void {
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
      const parent = path.slice(0, end);
      const seen = this.#find(parent, refuse);
      if (seen?.isFolder === false) refuse(`${quoteEntry(path)} is below ${quoteEntry(parent)}, which is not a folder`);
      // The map already has its parents.
      if (seen) return;
      this.#add(parent, true);
    }
  }

  #add(path: string, isFolder: boolean): void {
    this.#seen.set(path.toLowerCase(), { path, isFolder });
  }

  #find(path: string, refuse: Refuse): { readonly isFolder: boolean } | undefined {
    const seen = this.#seen.get(path.toLowerCase());
    if (seen && seen.path !== path) refuse(`${quoteEntry(path)} and ${quoteEntry(seen.path)} differ only in case`);
    return seen;
  }
}

/** A file or a symbolic link in an archive, with the offset and size of its content in bytes. */
export interface ArchiveEntry {
  readonly path: string;
  readonly start: number;
  readonly size: number;
  /** The target of a symbolic link. */
  readonly target?: string;
}

/** The entries of a tar by their paths, and where the tar ends or is damaged. */
export interface TarListing {
  readonly entries: ReadonlyMap<string, ArchiveEntry>;
  /** The end of the tar, or the start of its damage, in bytes. */
  readonly end: number;
  /** Whether another program packed the tar: it has a header that layOutTar does not write. */
  readonly isRepacked: boolean;
  /** The digest of all headers, one after another. */
  readonly headers: Digest;
  readonly damage?: PluginError;
  /** The entry in which a truncated tar ends. */
  readonly cutEntry?: string;
}

/** A tar that is being read. */
interface Tar {
  readonly path: string;
  /** The size in bytes; infinite for a device. */
  readonly size: number;
  /** Reads bytes that are valid until the next call. Returns fewer than requested only at the end. */
  read(start: number, size: number): Promise<Buffer>;
}

/** Open files with a tar, and their size in bytes. */
type TarFile = Pick<RandomAccess, 'read'> & { readonly size: number };

/** The extended headers of an entry: POSIX records, or GNU tar names. */
interface Extension {
  readonly format: TarHeader['format'];
  readonly pax?: PaxRecords;
  readonly longName?: string;
  readonly longTarget?: string;
}

const headerLimit = 200_000;
const extensionLimit = 8 * 1024;
/** The smallest size that has too many octal digits for the header of GNU tar. */
const octalLimit = 8 ** 11;
/** The bytes to read at once. Manifests and links are small and adjacent, so this has the headers of several. */
const windowSize = 16 * 1024;

/**
 * Lists the entries of a tar, and seeks from header to header. Stops at damage, and at the first entry that GNU tar
 * or bsdtar may read differently. Throws `not-readable` and `interrupted`.
 */
export async function listEntries(file: TarFile, path: string, signal: AbortSignal): Promise<TarListing> {
  const tar = openWindow(file, path, signal);
  const reading = new Reading(tar);
  try {
    while (await reading.readEntry());
    return reading.finish();
  } catch (error) {
    if (!isPluginError(error, 'invalid-bundle')) throw error;
    return reading.breakOff(error);
  }
}

/** The state of a listing. */
class Reading {
  readonly #tar: Tar;
  readonly #entries = new Map<string, ArchiveEntry>();
  readonly #names = new TarNames();
  readonly #hash = createHash('sha256');
  #headers = 0;
  #position = 0;
  /** The offset of the first header of the current entry. */
  #first = 0;
  /** The headers of the current entry. They are not read again, because the second read may differ. */
  #bytes: Buffer[] = [];
  #isRepacked = false;
  /** The last content that was skipped, and its entry. */
  #last: { readonly path: string | undefined; readonly first: number; readonly end: number } | undefined;

  constructor(tar: Tar) {
    this.#tar = tar;
  }

  /** Reads the next entry with its extended headers. Returns false at the end of the tar. */
  async readEntry(): Promise<boolean> {
    let extension: Extension | undefined;
    this.#first = this.#position;
    this.#bytes = [];
    for (;;) {
      const block = await this.#readBlock();
      const at = this.#position;
      if (!block) {
        if (extension) this.#refuse('its last header is for no entry');
        this.#position += endSize;
        return false;
      }
      if ((this.#headers += 1) > headerLimit) this.#refuse(`it has more than ${headerLimit} headers`);
      this.#bytes.push(Buffer.from(block));
      const header = decodeHeader(block, (why) => this.#refuse(`at byte ${at}, ${why}`));
      if (header.type === 'file' || header.type === 'folder' || header.type === 'link') {
        this.#addEntry(header, extension);
        return true;
      }
      extension = await this.#extend(header, extension);
    }
  }

  finish(): TarListing {
    return { ...this.#listing(), end: this.#position };
  }

  /** Returns the listing of a tar that is damaged, or refused, from the current entry on. */
  async breakOff(damage: PluginError): Promise<TarListing> {
    const listing = this.#listing();
    const last = this.#last;
    if (!last || (await this.#tar.read(roundToBlock(last.end) - 1, 1)).length > 0)
      return { ...listing, end: this.#first, damage };
    const { path, first, end } = last;
    // The size of a device is unknown, so the entry may already be in the list.
    if (path !== undefined && first < this.#first) this.#entries.delete(path);
    const why = `it is truncated: ${path ?? 'an entry'} would end at byte ${end}`;
    return { ...listing, end: first, damage: damaged(this.#tar.path, why), cutEntry: path };
  }

  #listing(): Pick<TarListing, 'entries' | 'isRepacked' | 'headers'> {
    const headers: Digest = `sha256:${this.#hash.copy().digest('hex')}`;
    return { entries: this.#entries, isRepacked: this.#isRepacked, headers };
  }

  readonly #refuse: Refuse = (why) => {
    throw new PluginError('invalid-bundle', `${this.#tar.path} is refused: ${why}`, {
      hint: 'Create the bundle again. Do not unpack this one: tar programs may extract different files from it.',
    });
  };

  /** Reads the block at the position; undefined if the tar ends there. */
  async #readBlock(): Promise<Buffer | undefined> {
    const at = this.#position;
    const block = await this.#tar.read(at, 512);
    if (block.length === 512 && isHeader(block)) return block;
    if (at === 0) throw noTar(this.#tar.path, block);
    // Two empty blocks end a tar. A single empty block is an erased header.
    const marker = isZero(block) ? await this.#tar.read(at, endSize) : block;
    if (marker.length === endSize && isZero(marker)) return undefined;
    const isShort = marker.length < (isZero(block) ? endSize : 512);
    throw damaged(
      this.#tar.path,
      isShort ? `it is truncated: it ends at byte ${at + marker.length}` : `there is no tar header at byte ${at}`,
    );
  }

  /** Reads the content of a header about the next entry. */
  async #extend(header: TarHeader, before: Extension | undefined): Promise<Extension> {
    const { type, format, size } = header;
    if (size > extensionLimit || header.hasLargeSize) this.#refuse('a name or a pax header exceeds the limit of 8 KiB');
    const { content, padding } = await this.#readContent(size);
    if (!isZero(padding)) this.#refuse('a name or a pax header has bytes after its end');
    const isGnu = type !== 'pax';
    const key = type === 'longName' ? 'longName' : 'longTarget';
    if (isGnu !== (format === 'gnu') || (before && (!isGnu || before.pax || before[key] !== undefined)))
      this.#refuse('it mixes or repeats headers for the same entry');
    if (!isGnu) return { format, pax: readPaxRecords(content, this.#refuse) };
    const text = content.toString('latin1');
    if (text.indexOf('\0') !== size - 1) this.#refuse('a long name does not end with its header');
    return { format, ...before, [key]: text.slice(0, -1) };
  }

  /** Reads the content at the position, and moves the position to its end. */
  async #readContent(size: number): Promise<{ content: Buffer; padding: Buffer }> {
    this.#skip(undefined, size);
    const bytes = await this.#tar.read(this.#position - roundToBlock(size), roundToBlock(size));
    if (bytes.length < roundToBlock(size)) throw damaged(this.#tar.path, 'it is truncated');
    this.#bytes.push(Buffer.from(bytes));
    return { content: bytes.subarray(0, size), padding: bytes.subarray(size) };
  }

  /** Moves the position to the end of a header and its content. */
  #skip(path: string | undefined, size: number): void {
    const start = this.#position + 512;
    this.#last = { path, first: this.#first, end: start + size };
    if (start + roundToBlock(size) > this.#tar.size) throw damaged(this.#tar.path, 'it is truncated');
    this.#position = start + roundToBlock(size);
  }

  #addEntry(header: TarHeader, extension: Extension | undefined): void {
    const refuse: Refuse = (why) => this.#refuse(`at byte ${this.#first}, ${why}`);
    const { pax, longName, longTarget } = extension ?? {};
    const name = pax?.path ?? longName ?? header.name;
    const isLink = header.type === 'link';
    const isFolder = header.type === 'folder';
    if (extension && extension.format !== header.format)
      refuse(`the headers of ${quoteEntry(name)} have different formats`);
    if (!isLink && (pax?.target ?? longTarget) !== undefined)
      refuse(`${quoteEntry(name)} has a link target and is not a link`);
    const path = parseName(name, isFolder, refuse);
    const size = this.#sizeOf(header, pax, path);
    if (size > 0 && header.type !== 'file') refuse(`${quoteEntry(name)} has content and is not a file`);
    const target = isLink ? (pax?.target ?? longTarget ?? header.target) : undefined;
    if (target !== undefined) checkLink(path, target, refuse);
    const start = this.#position + 512;
    const entry = { path, start, size, target };
    const headers = Buffer.concat(this.#bytes);
    this.#isRepacked ||= isFolder || !isOwn(entry, headers);
    this.#skip(path, size);
    this.#hash.update(headers);
    if (isFolder) return void this.#names.addFolder(path, refuse);
    this.#names.addFile(path, refuse);
    this.#entries.set(path, entry);
  }

  /** Returns the size that every tar program reads. Octal digits are too few for a large size. */
  #sizeOf({ size: inHeader, hasLargeSize, format }: TarHeader, pax: PaxRecords | undefined, path: string): number {
    const size = pax?.size ?? inHeader;
    const isLarge = size >= octalLimit;
    const isPlain = !hasLargeSize || (isLarge && (pax?.size !== undefined || format === 'gnu'));
    if (!isPlain || (size !== inHeader && !(isLarge && inHeader === 0)))
      this.#refuse(`tar programs read different sizes of ${quoteEntry(path)}`);
    if (!Number.isSafeInteger(this.#position + 512 + roundToBlock(size)))
      this.#refuse(`the size of ${quoteEntry(path)} is absurd`);
    return size;
  }
}

/** Returns whether layOutTar would write the same headers for the entry. */
function isOwn({ path, target, size }: ArchiveEntry, headers: Buffer): boolean {
  const own = encodeHeader(target === undefined ? { path, content: Buffer.alloc(0) } : { path, target }, size);
  return own.equals(headers);
}

/** Reads a tar through a window, so that adjacent headers need one read. */
function openWindow(file: TarFile, path: string, signal: AbortSignal): Tar {
  let from = 0;
  let window: Buffer = Buffer.alloc(0);
  const read = async (start: number, size: number): Promise<Buffer> => {
    if (start < from || start + size > from + window.length) {
      [from, window] = [start, await readFully(file, path, start, Math.max(size, windowSize), signal)];
    }
    return window.subarray(start - from, start - from + size);
  };
  return { path, size: file.size, read };
}

/** Returns the error for a file that does not begin as a tar does. It names the bundle of a file beside it. */
function noTar(path: string, start: Buffer): PluginError {
  const [, bundle] = /^(.+\.tar)(?:\.sha256|\.yaml)$/s.exec(path) ?? [];
  if (bundle !== undefined)
    return new PluginError('invalid-bundle', `${path} is not an upgrade bundle`, {
      hint: `Give the bundle: ${bundle}`,
    });
  if (start[0] !== 0x1f || start[1] !== 0x8b) return damaged(path, 'it is not a tar');
  return new PluginError('invalid-bundle', `${path} is compressed by gzip, and a bundle is a plain tar`, {
    hint: `Decompress it: gunzip -k ${shellWord(path)}`,
  });
}

function damaged(path: string, why: string): PluginError {
  return new PluginError('invalid-bundle', `${path} is not a complete upgrade bundle: ${why}`, {
    hint: 'Compare it with its .sha256 file, and copy or create it again.',
  });
}
