import { makeFile, makeHeader, makeLong, makePax, paxRecord } from './tarBytes.ts';

const gnu = { magic: 'ustar  \0' };
const target = 'config/zz.yaml';
const sparse = (version: 'major' | 'map', name: string): string =>
  version === 'major'
    ? paxRecord('GNU.sparse.major', '1') + paxRecord('GNU.sparse.minor', '0') + paxRecord('GNU.sparse.name', name)
    : paxRecord('GNU.sparse.name', name) + paxRecord('GNU.sparse.numblocks', '1') + paxRecord('GNU.sparse.map', '0,4');
const large = (sign: number, ...end: number[]): Buffer =>
  Buffer.from([sign, ...Array.from({ length: 11 - end.length }, () => (sign === 0xff ? 0xff : 0)), ...end]);

/** Headers that `create` never writes, with content, for a tar. Tar programs disagree on most of them. */
export const tarAttacks: Readonly<Record<string, Buffer>> = {
  'a sparse name': Buffer.concat([
    makePax(sparse('major', target) + paxRecord('GNU.sparse.realsize', '4')),
    makeFile('config/a', '1\n0\n4\n'.padEnd(512, '\0') + 'evil'),
  ]),
  'a sparse map': Buffer.concat([makePax(sparse('map', target)), makeFile('config/a', 'evil')]),
  'a sparse size': Buffer.concat([makePax(paxRecord('GNU.sparse.size', '9')), makeFile('config/a', 'evil')]),
  'a size of Schily': Buffer.concat([makePax(paxRecord('SCHILY.realsize', '9')), makeFile('config/a', 'evil')]),
  'an old sparse file': makeFile('config/a', 'evil', { ...gnu, type: 'S' }),
  'a pax path before a long name': Buffer.concat([
    makePax(paxRecord('path', 'config/a')),
    makeLong('L', target),
    makeFile('config/b', 'evil', gnu),
  ]),
  'a long name before a pax path': Buffer.concat([
    makeLong('L', target),
    makePax(paxRecord('path', 'config/a')),
    makeFile('config/b', 'evil'),
  ]),
  'two pax headers': Buffer.concat([
    makePax(paxRecord('path', target)),
    makePax(paxRecord('mtime', '1')),
    makeFile('config/a', 'evil'),
  ]),
  'two long names': Buffer.concat([
    makeLong('L', target),
    makeLong('L', 'config/b'),
    makeFile('config/a', 'evil', gnu),
  ]),
  'a long name without its end': Buffer.concat([makeLong('L', target, ''), makeFile('config/a', 'evil', gnu)]),
  'a long name with an end in its middle': Buffer.concat([
    makeLong('L', `${target}\0x`),
    makeFile('config/a', 'evil', gnu),
  ]),
  'a pax header before a header of GNU tar': Buffer.concat([
    makePax(paxRecord('path', target)),
    makeFile('config/a', 'evil', gnu),
  ]),
  'a pax record of a wrong length': Buffer.concat([
    makePax(paxRecord('path', target).replace(/^\d+/, '99')),
    makeFile('config/a', 'evil'),
  ]),
  'a pax record without its line feed': Buffer.concat([
    makePax(paxRecord('path', target).replace('\n', 'x')),
    makeFile('config/a', 'evil'),
  ]),
  'a pax record with a NUL': Buffer.concat([makePax(paxRecord('path', `${target}\0x`)), makeFile('config/a', 'evil')]),
  'a pax record twice': Buffer.concat([
    makePax(paxRecord('path', 'config/b') + paxRecord('path', target)),
    makeFile('config/a', 'evil'),
  ]),
  'a pax record with leading zeros': Buffer.concat([
    makePax(`00${paxRecord('path', target)}`),
    makeFile('config/a', 'evil'),
  ]),
  'a pax size that is no number': Buffer.concat([makePax(paxRecord('size', 'NaN')), makeFile('config/a', 'evil')]),
  'a pax size below zero': Buffer.concat([makePax(paxRecord('size', '-4')), makeFile('config/a', 'evil')]),
  'a pax size that is not that of the header': Buffer.concat([
    makePax(paxRecord('size', '0')),
    makeFile('config/a', `${'x'.repeat(508)}evil`),
  ]),
  'a global pax header': Buffer.concat([makePax(paxRecord('path', target), 'g'), makeFile('config/a', 'evil')]),
  'a pax header for no entry': makePax(paxRecord('path', target)),
  'the other character set': Buffer.concat([
    makePax(paxRecord('hdrcharset', 'BINARY') + paxRecord('path', target)),
    makeFile('config/a', 'evil'),
  ]),
  'an extended attribute': Buffer.concat([
    makePax(paxRecord('SCHILY.xattr.user.x', 'y')),
    makeFile('config/a', 'evil'),
  ]),
  'a size in base 256': makeFile('config/a', 'evil', { ...gnu, size: large(0x80, 4) }),
  'a size below zero in base 256': makeFile('config/a', '', { ...gnu, size: large(0xff, 0xfe) }),
  'a size with a sign': makeFile('config/a', '', { size: '-0000000004\0' }),
  'a size that is no number': makeFile('config/a', '', { size: 'NaN' }),
  'a size of spaces': makeFile('config/a', '', { size: ' '.repeat(12) }),
  'a size with a letter': makeFile('config/a', 'evil', { size: '00000000004x' }),
  'a checksum with a sign': makeHeader({ name: 'config/a', checksum: '+12345\0 ' }),
  'a folder outside': makeHeader({ name: '../out/', type: '5', mode: '0000755\0' }),
  'an absolute folder': makeHeader({ name: '/tmp/out/', type: '5', mode: '0000755\0' }),
  'a folder with content': makeFile('config/f/', 'evil', { type: '5' }),
  'a file with a trailing slash': makeFile('config/f/', 'evil'),
  'a file of Unix V7': makeFile('config/a', 'evil', { type: '\0', magic: '' }),
  'a contiguous file': makeFile('config/a', 'evil', { type: '7' }),
  'a hard link': makeHeader({ name: 'config/a', type: '1', target: 'metadata.json' }),
  'a hard link with content': makeFile('config/a', 'evil', { type: '1', target: 'metadata.json' }),
  'a device node': makeHeader({ name: 'config/a', type: '3', major: '0000001\0', minor: '0000003\0' }),
  'a named pipe': makeHeader({ name: 'config/a', type: '6' }),
  'a part of another volume': makeFile('config/a', 'evil', { ...gnu, type: 'M' }),
  'a volume label': makeHeader({ name: 'label', ...gnu, type: 'V' }),
  'a dump folder': makeFile('config/', 'Yzz.yaml\0\0', { ...gnu, type: 'D' }),
  'an unknown type': makeFile('config/a', 'evil', { type: 'Z' }),
  'a link to a folder above': makeHeader({ name: 'config/l', type: '2', target: '..' }),
  'an entry below a link': Buffer.concat([
    makeHeader({ name: 'v2/openshift/release/manifests/t', type: '2', target: `sha256:${'0'.repeat(64)}` }),
    makeFile('v2/openshift/release/manifests/t/x', 'evil'),
  ]),
  'a file below a file': makeFile('metadata.json/x', 'evil'),
  'a name with an empty part': makeFile('config//a', 'evil'),
  'a name with a dot': makeFile('config/./a', 'evil'),
  'a name that differs in case only': makeFile('Metadata.json', 'evil'),
  'a name with a backslash': makeFile('config\\..\\a', 'evil'),
  'a name with a line feed': makeFile('config/a\nb', 'evil'),
  'a name with a drive': makeFile('c:config/zz.yaml', 'evil'),
  'a name with more after its end': makeFile('config/a\0zz.yaml', 'evil'),
  'an AppleDouble file': makeFile('config/._signature', 'evil'),
  'a set-user-ID file': makeFile('config/a', 'evil', { mode: '0004755\0' }),
  'a prefix of the format of star': makeFile('config/a', 'evil', {
    prefix: `x${'\0'.repeat(130)}02264242000 02264242000 `,
  }),
  'an empty block between entries': Buffer.concat([Buffer.alloc(512), makeFile('config/a', 'evil')]),
};
