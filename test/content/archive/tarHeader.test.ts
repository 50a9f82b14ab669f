import { gzipSync, zstdCompressSync } from 'node:zlib';
import { expect } from 'chai';
import { decodeHeader, isHeader, isZero, looksPacked, quoteEntry } from '../../../lib/content/archive/tarHeader.ts';
import { encodeHeader } from '../../../lib/content/archive/tarLayout.ts';
import { makeHeader, setField, type HeaderValues } from '../../support/archive/tarBytes.ts';

const gnu = { magic: 'ustar  \0' };
const refuse = (why: string): never => {
  throw new Error(why);
};
const decode = (fields: HeaderValues, size = 0) => decodeHeader(makeHeader(fields, size), refuse);

describe('isHeader', () => {
  it('compares the checksum, in the spellings of GNU tar and bsdtar only', () => {
    const block = makeHeader({ name: 'a' });
    expect(isHeader(block)).to.equal(true);
    const digits = block.toString('latin1', 148, 154);
    const spelled = (checksum: string): Buffer => makeHeader({ name: 'a', checksum });
    expect(isHeader(spelled(`${digits} \0`))).to.equal(true);
    for (const other of [`${digits}  `, ` ${digits.slice(1)}\0 `, `${digits}\0\0`, '0000000\0', ''])
      expect(isHeader(spelled(other)), JSON.stringify(other)).to.equal(false);
    for (const at of [0, 100, 500]) {
      const changed = Buffer.from(block);
      changed.writeUInt8(changed.readUInt8(at) + 1, at);
      expect(isHeader(changed)).to.equal(false);
    }
    expect(isHeader(Buffer.alloc(512))).to.equal(false);
  });
});

describe('decodeHeader', () => {
  it('returns the type, the name, the target and the size', () => {
    expect(decode({ name: 'a' }, 5)).to.deep.equal({
      format: 'posix',
      type: 'file',
      name: 'a',
      target: '',
      size: 5,
      hasLargeSize: false,
    });
    expect(decode({ name: 'link', type: '2', target: 'sha256:1' })).to.deep.include({
      type: 'link',
      target: 'sha256:1',
    });
    const letters = { '5': 'folder', x: 'pax', L: 'longName', K: 'longTarget' };
    for (const [type, name] of Object.entries(letters)) expect(decode({ name: 'a', type }).type).to.equal(name);
    expect(decode({ name: 'a', ...gnu }).format).to.equal('gnu');
  });

  it('joins the prefix of a POSIX header with the name, and reads names of the full length', () => {
    expect(decode({ name: 'file', prefix: 'a/b' }).name).to.equal('a/b/file');
    expect(decode({ name: 'n'.repeat(100), prefix: 'p'.repeat(155) }).name).to.have.length(256);
  });

  it('decodes the headers that this program writes', () => {
    const entry = { path: `v2/${'a'.repeat(90)}/blobs/x`, content: Buffer.alloc(0) };
    expect(decodeHeader(encodeHeader(entry, 1000), refuse)).to.deep.include({ name: entry.path, size: 1000 });
  });

  it('reads sizes in base 256 that are exact', () => {
    const bytes = Buffer.alloc(12);
    bytes.writeUInt8(0x80);
    bytes.writeUIntBE(9 * 2 ** 30, 6, 6);
    expect(decode({ name: 'a', size: bytes })).to.deep.include({ size: 9 * 2 ** 30, hasLargeSize: true });
    bytes.writeUInt8(0x20, 5);
    expect(() => decode({ name: 'a', size: bytes })).to.throw('a number that tar programs read in different ways');
  });

  const refused: [what: string, fields: HeaderValues, why: string][] = [
    ['of Unix V7', { magic: '' }, 'its format is neither POSIX nor GNU tar'],
    ['with bytes after the POSIX fields', { end: 'x' }, 'its format is neither'],
    ['with the fields of old GNU headers', { ...gnu, prefix: 'x' }, 'its format is neither'],
    ['with bytes after the name', { name: 'a\0b' }, 'its name has bytes after its end'],
    ['with bytes after the target', { type: '2', target: 'a\0b' }, 'a field of an entry has bytes after its end'],
    ['with bytes after the prefix', { prefix: 'a\0b' }, 'bytes after its end'],
    ['with bytes after the owner', { uname: 'a\0b' }, 'bytes after its end'],
    ['of a file with a target', { target: 'x' }, 'an entry has a link target and is not a link'],
    ['with spaces before a number', { size: '          5\0' }, 'in different ways'],
    ['with a number that does not fill its field', { mode: '644\0' }, 'in different ways'],
    ['with a negative number', { size: Buffer.alloc(12, 0xff) }, 'in different ways'],
    ['with a time in base 256', { mtime: Buffer.from([0x80, ...Array<number>(11).fill(1)]) }, 'in different ways'],
    ['with a device number', { major: '0000001\0' }, 'in different ways'],
    ['of a file with a set-user-ID bit', { mode: '0004755\0' }, 'in different ways'],
    ...Object.entries({
      '\0': 'a file in the format of Unix V7',
      '1': 'a hard link',
      '6': 'a named pipe',
      S: 'a sparse file',
      g: 'a global pax header',
      Z: 'of an unknown type',
    }).map(([type, what]): [string, HeaderValues, string] => [
      `of ${what}`,
      { name: 'config/a.yaml', type },
      `"config/a.yaml" is ${what}; a bundle has only files, folders and tags`,
    ]),
  ];
  for (const [what, fields, why] of refused) {
    it(`refuses a header ${what}`, () => {
      expect(() => decode({ name: 'a', ...fields })).to.throw(why);
    });
  }

  it('accepts the set-group-ID bit of a folder, and an empty number as zero', () => {
    expect(decode({ name: 'a/', type: '5', mode: '0002755\0' }).type).to.equal('folder');
    const block = makeHeader({ name: 'a', type: '5' });
    for (const field of ['uid', 'gid', 'size', 'mtime'] as const) setField(block, field, '');
    expect(decodeHeader(block, refuse).size).to.equal(0);
  });
});

describe('quoteEntry', () => {
  it('quotes names that a bundle may have, and no others', () => {
    for (const name of ['metadata.json', 'config/a/b.yaml', 'v2/a/blobs/sha256:00', 'v2/a/manifests/4.12.4-x86_64'])
      expect(quoteEntry(name)).to.equal(`"${name}"`);
    for (const name of ['setup.sh', 'config/\u001b[31m', 'config/a b', 'v2/', `v2/${'a'.repeat(201)}`])
      expect(quoteEntry(name)).to.equal('an entry');
  });
});

describe('looksPacked', () => {
  it('recognizes compressed content by its first bytes', () => {
    const heads = ['fd377a585a00', '04224d18', '502a4d18', '5f2a4d18'].map((hex) => Buffer.from(hex, 'hex'));
    for (const head of [gzipSync('x'), zstdCompressSync('x'), Buffer.from('BZh9'), ...heads])
      expect(looksPacked(head)).to.equal(true);
  });

  it('recognizes a tar by a checksum in any spelling, also of signed bytes', () => {
    const head = Buffer.alloc(512);
    head.write('\u00e4', 0, 'latin1');
    const sums = { unsigned: 0xe4 + 8 * 0x20, signed: 0xe4 - 256 + 8 * 0x20 };
    const spelled = (text: string): Buffer => {
      const bytes = Buffer.from(head);
      bytes.write(text, 148);
      return bytes;
    };
    for (const sum of Object.values(sums).map((each) => each.toString(8)))
      for (const text of [sum, ` ${sum}\0`, `${sum.padStart(6, '0')}\0 `])
        expect(looksPacked(spelled(text)), text).to.equal(true);
    for (const text of ['', '777', `x${sums.unsigned.toString(8)}`])
      expect(looksPacked(spelled(text)), text).to.equal(false);
    expect(looksPacked(spelled(sums.unsigned.toString(8)).subarray(0, 511))).to.equal(false);
  });

  it('does not take the text of an attachment for a tar', () => {
    for (const text of ['{"critical": {}}'.padEnd(600), '', 'SPDXVersion: SPDX-2.3', '<bom/>'])
      expect(looksPacked(Buffer.from(text).subarray(0, 512))).to.equal(false);
  });
});

describe('isZero', () => {
  it('is true for zeros of any length, and for no bytes', () => {
    for (const length of [0, 1, 2, 1000]) expect(isZero(Buffer.alloc(length))).to.equal(true);
    for (const at of [0, 1, 999]) expect(isZero(Buffer.alloc(1000).fill(1, at, at + 1))).to.equal(false);
    expect(isZero(Buffer.alloc(4, 7))).to.equal(false);
  });
});
