/** Refuses a tar: throws an error that names it and gives the reason. */
export type Refuse = (why: string) => never;

/** The subject of a header: an entry, or a record about the next entry. */
type HeaderType = 'file' | 'folder' | 'link' | 'pax' | 'longName' | 'longTarget';

/** A decoded header of 512 bytes. Text is Latin-1, so that every byte is a character. */
export interface TarHeader {
  readonly format: 'posix' | 'gnu';
  readonly type: HeaderType;
  readonly name: string;
  /** The target of a symbolic link; empty for other types. */
  readonly target: string;
  /** The size in bytes. */
  readonly size: number;
  /** Whether the size is in base 256, which only some tar programs read. */
  readonly hasLargeSize: boolean;
}

const types: Readonly<Record<string, HeaderType>> = {
  '0': 'file',
  '2': 'link',
  '5': 'folder',
  x: 'pax',
  L: 'longName',
  K: 'longTarget',
};

/** The names of refused types, for messages. */
const refusedTypes: Readonly<Record<string, string>> = {
  '\0': 'a file in the format of Unix V7',
  '1': 'a hard link',
  '3': 'a character device',
  '4': 'a block device',
  '6': 'a named pipe',
  '7': 'a contiguous file',
  D: 'an incremental dump',
  M: 'a part of a multi-volume archive',
  S: 'a sparse file',
  g: 'a global pax header',
};

const largestId = 2 ** 32 - 1;

/** Returns whether a block is a tar header, by its checksum. */
export function isHeader(block: Buffer): boolean {
  const [, digits] = /^([0-7]{6})(?:\0 | \0)$/.exec(block.toString('latin1', 148, 156)) ?? [];
  if (digits === undefined) return false;
  const inField = block.subarray(148, 156);
  return Number.parseInt(digits, 8) === sum(block) - sum(inField) + inField.length * 0x20;
}

/**
 * Decodes a header that GNU tar, bsdtar or this program wrote. Refuses every field that tar programs read in different
 * ways: another number format, bytes after the end of a text, an unknown format or type.
 */
export function decodeHeader(block: Buffer, refuse: Refuse): TarHeader {
  const format = readFormat(block);
  if (format === undefined) return refuse('its format is neither POSIX nor GNU tar');
  const letter = block.toString('latin1', 156, 157);
  const name = readText(block, 0, 100) ?? refuse('its name has bytes after its end');
  const type = types[letter];
  if (type === undefined) {
    const what = refusedTypes[letter] ?? 'of an unknown type';
    return refuse(`${quoteEntry(name)} is ${what}; a bundle has only files, folders and tags`);
  }
  const prefix = format === 'posix' ? readText(block, 345, 500) : '';
  const target = readText(block, 157, 257);
  const texts = [prefix, target, readText(block, 265, 297), readText(block, 297, 329)];
  if (prefix === undefined || target === undefined || texts.includes(undefined))
    return refuse(`a field of ${quoteEntry(name)} has bytes after its end`);
  // bsdtar writes the target of the next entry into the header of its long name.
  if (target !== '' && (type === 'file' || type === 'folder'))
    return refuse(`${quoteEntry(name)} has a link target and is not a link`);
  const size = readNumber(block, 124, 136);
  if (size === undefined || !isWholeNumbers(block, type))
    return refuse(`${quoteEntry(name)} has a number that tar programs read in different ways`);
  const path = prefix === '' ? name : `${prefix}/${name}`;
  return { format, type, name: path, target, size, hasLargeSize: (block[124] ?? 0) >= 0x80 };
}

function readFormat(block: Buffer): TarHeader['format'] | undefined {
  const magic = block.toString('latin1', 257, 265);
  if (magic === 'ustar\x0000') return isZero(block.subarray(500)) ? 'posix' : undefined;
  // Old GNU headers have more fields here, for sparse files and incremental dumps.
  if (magic === 'ustar  \0') return isZero(block.subarray(345)) ? 'gnu' : undefined;
  return undefined;
}

/** Checks the numbers for owner, mode and time. A tar program that rejects one of them would skip the entry. */
function isWholeNumbers(block: Buffer, type: HeaderType): boolean {
  const [mode, uid, gid, mtime, major, minor] = [
    readNumber(block, 100, 108),
    readNumber(block, 108, 116),
    readNumber(block, 116, 124),
    (block[136] ?? 0) < 0x80 ? readNumber(block, 136, 148) : undefined,
    readNumber(block, 329, 337),
    readNumber(block, 337, 345),
  ];
  if (mode === undefined || uid === undefined || gid === undefined || mtime === undefined) return false;
  // No file of a mirror directory has a set-user-ID bit.
  const isPlain = type === 'file' ? mode <= 0o777 : mode <= 0o7777;
  return isPlain && uid <= largestId && gid <= largestId && major === 0 && minor === 0;
}

/** Reads a text that ends at its first NUL or at the end of its field; undefined if other bytes follow the NUL. */
function readText(block: Buffer, start: number, end: number): string | undefined {
  const field = block.subarray(start, end);
  const length = field.indexOf(0);
  if (length < 0) return field.toString('latin1');
  return isZero(field.subarray(length)) ? field.toString('latin1', 0, length) : undefined;
}

/** Reads octal digits that fill their field up to a terminator, or a number in base 256. An empty field is zero. */
function readNumber(block: Buffer, start: number, end: number): number | undefined {
  const field = block.subarray(start, end);
  if (isZero(field)) return 0;
  if (field[0] === 0x80) {
    const large = field.subarray(1).reduce((total, byte) => total * 256 + byte, 0);
    return Number.isSafeInteger(large) ? large : undefined;
  }
  const [, digits] = /^([0-7]+)(?:[ \0]| \0)?$/.exec(field.toString('latin1')) ?? [];
  return digits === undefined ? undefined : Number.parseInt(digits, 8);
}

/**
 * Quotes the name of an entry for a message if a bundle may have such a name. Other names are not quoted, because they
 * may be any bytes of an unverified file.
 */
export function quoteEntry(name: string): string {
  return /^(?:metadata\.json|(?:config|v2)\/[\w:./-]{1,200})$/.test(name) ? JSON.stringify(name) : 'an entry';
}

/** The first bytes of gzip, zstd (with a frame to skip, too), xz, bzip2 and lz4, in Latin-1. */
const packed = /^(?:\x1f\x8b|\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18|\xfd7zXZ|BZh|\x04\x22\x4d\x18)/;

/**
 * Returns whether some content is a tar of any tar program, or compressed, by its first 512 bytes. Some runtimes unpack
 * both under any media type.
 */
export function looksPacked(head: Buffer): boolean {
  if (packed.test(head.toString('latin1', 0, 8))) return true;
  if (head.length < 512) return false;
  const field = head.subarray(148, 156);
  const digits = field.toString('latin1').replace(/^[ \0]+|[ \0]+$/g, '');
  const blanks = field.length * 0x20;
  const signed = (bytes: Buffer): number => bytes.reduce((total, byte) => total + ((byte << 24) >> 24), 0);
  const sums = [sum(head) - sum(field) + blanks, signed(head) - signed(field) + blanks];
  return /^[0-7]+$/.test(digits) && sums.includes(Number.parseInt(digits, 8));
}

/** Returns whether all bytes are zero, also if there are none. */
export function isZero(bytes: Buffer): boolean {
  // Compares each byte with the next, which is much faster than a loop.
  return bytes.length === 0 || (bytes[0] === 0 && bytes.subarray(1).equals(bytes.subarray(0, -1)));
}

function sum(bytes: Buffer): number {
  let total = 0;
  for (const byte of bytes) total += byte;
  return total;
}
