import type { Refuse } from './tarHeader.ts';

/** The records of a pax header for the next entry. Text is Latin-1, as in TarHeader; the size is in bytes. */
export interface PaxRecords {
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
export function readPaxRecords(bytes: Buffer, refuse: Refuse): PaxRecords {
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
