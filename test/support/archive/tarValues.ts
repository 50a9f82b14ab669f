import { sampleNames } from './tarSample.ts';

const { digest, otherDigest, folder, tag } = sampleNames;

/** Returns pseudo-random numbers from 0 to below a limit. The same seed gives the same numbers (mulberry32). */
export function makeRandom(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

/** Names of entries, valid and invalid. */
// oxfmt-ignore
export const names = [
  'metadata.json', './metadata.json', 'METADATA.JSON', 'metadata.json/', 'metadata.json/x', './/metadata.json', 'config', 'config/',
  'config/a.yaml', 'config//a.yaml', 'config/./a.yaml', 'config/../a.yaml', '../a.yaml', '/a.yaml', '//a', 'Config/a.yaml',
  'config/b.yaml', 'config/b.yaml/', `${tag}/x`, tag, `${folder}/manifests/latest`, `${folder}/manifests`, 'x', '', '.', './', '..',
  '._metadata.json', 'a\\b', 'config/c', 'config/d e', 'z/y/x', 'a\nb', 'ü', 'a\0b', `${'d/'.repeat(60)}x`, '-x', 'c:x', './c:x',
];

/** Targets of links. */
// oxfmt-ignore
export const targets = [
  digest, otherDigest, `./${digest}`, `../manifests/${digest}`, '/etc/passwd', '../../..', '.', '', 'metadata.json', digest.toUpperCase(),
  `${digest}\0x`,
];

/** Types of entries. */
export const letters = '\0, ,0,1,2,3,4,5,6,7,8,g,x,L,K,S,D,M,V,N,A,X,E,I,Z'.split(',');

/** Values that identify the format of a header. */
// oxfmt-ignore
export const magics = [
  'ustar\x0000', 'ustar  \0', 'ustar\0  ', 'ustar\0\0\0', '', 'ustar 00', 'USTAR\x0000', 'ustar\x0001', 'GNUtar \0',
];

/** Prefixes of names. */
export const prefixes = ['', 'config', 'config/', '/', '..', './', 'x\0y', 'p/'.repeat(40)];

/** Returns ways to write a number into a field, and numbers that are close to it. */
export function spellNumber(value: number, length: number): (string | Buffer)[] {
  const octal = value.toString(8);
  const pad = (digits: number): string => octal.padStart(digits, '0');
  const large = (first: number): Buffer => {
    const bytes = Buffer.alloc(length, first === 0x80 ? 0 : 0xff);
    if (value >= 0 && value < 2 ** 32) bytes.writeUInt32BE(value, length - 4);
    else bytes.writeBigInt64BE(BigInt(value), length - 8);
    bytes[0] = first;
    return bytes;
  };
  // oxfmt-ignore
  return [
    `${pad(length - 1)}\0`, `${pad(length - 1)} `, `${pad(length - 2)} \0`, `${pad(length - 2)}\0 `, pad(length), `${octal} `, octal,
    octal.padStart(length - 1), ` ${octal}\0`, `-${octal}`, `+${octal}`, `0x${octal}`, `${octal}.5`, `${octal}\0${'7'.repeat(length)}`,
    `${octal}9`, '', ' '.repeat(length), '7'.repeat(length), large(0x80), large(0xff), large(0xc0), large(0x81),
    Buffer.alloc(length, 0xff), value.toString().padStart(length - 1, '0'), `\0${pad(length - 2)}`,
  ];
}

/** Keywords of pax records. */
// oxfmt-ignore
export const keywords = [
  'path', 'linkpath', 'size', 'mtime', 'atime', 'ctime', 'uid', 'gid', 'uname', 'gname', 'comment', 'charset', 'hdrcharset',
  'GNU.sparse.name', 'GNU.sparse.major', 'GNU.sparse.minor', 'GNU.sparse.realsize', 'GNU.sparse.size', 'GNU.sparse.numblocks',
  'GNU.sparse.map', 'GNU.sparse.offset', 'GNU.sparse.numbytes', 'GNU.volume.filename', 'GNU.volume.offset', 'GNU.dumpdir',
  'SCHILY.realsize', 'SCHILY.fflags', 'SCHILY.xattr.user.x', 'SCHILY.xattr.security.selinux', 'RHT.security.selinux',
  'SCHILY.filetype', 'SCHILY.acl.access', 'SCHILY.dev', 'SCHILY.ino', 'SCHILY.nlink', 'SCHILY.devmajor', 'LIBARCHIVE.creationtime',
  'LIBARCHIVE.symlinktype', 'LIBARCHIVE.xattr.user.x', 'SUN.holesdata', 'PATH', '',
];

const sizes = '0 3 4 16 512 600 700 00004 +4 -4 4.0 1e3 0x4 Infinity 9663676416 99999999999999999999'.split(' ');

/** Returns values of a pax record. */
export function valuesOf(keyword: string): readonly string[] {
  if (keyword.endsWith('size') || keyword.startsWith('SCHILY.n')) return [...sizes, '', '4 '];
  if (keyword.endsWith('time')) return ['1', '315532800.25', '-1', 'x', '1e9', '', '99999999999999', '1.', '.5'];
  if (keyword === 'uid' || keyword === 'gid') return ['0', '1000', '-1', 'x', '', '4294967295', '1 '];
  if (keyword.includes('map')) return ['0,4', '0,1,3,1', '0', '0,999999999'];
  if (/major|minor|num|dev|ino/.test(keyword)) return ['0', '1', '4'];
  return keyword === 'linkpath' ? targets : names;
}

/** Returns wrong spellings of a pax record. */
export function misspell(record: string): string[] {
  const length = Number.parseInt(record, 10);
  const text = record.replace(/^\d+ /, '');
  const byOne = [length + 1, length - 1].map((wrong) => `${wrong} ${text}`);
  return [
    ...byOne,
    `0${record}`,
    ` ${record}`,
    `${length}\t${text}`,
    text,
    record.replace('\n', '\0'),
    record.slice(0, -1),
    record.replace('=', ''),
    `${record}\0`,
    record + record,
  ];
}
