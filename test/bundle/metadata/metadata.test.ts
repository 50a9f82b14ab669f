import { expect } from 'chai';
import {
  encodeMetadata,
  formatMetadata,
  parseMetadata,
  type BundleMetadata,
} from '../../../lib/bundle/metadata/metadata.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { isPluginError } from '../../../lib/errors.ts';

const digest: Digest = `sha256:${'a'.repeat(64)}`;
const metadata: Omit<BundleMetadata, 'size'> = {
  formatVersion: 1,
  version: '4.12.4',
  arch: 'x86_64',
  release: `quay.io/a/b@${digest}`,
  images: [`quay.io/a/b@${digest}`],
  components: { etcd: `quay.io/a/c@${digest}` },
  extraImages: [],
  osImages: [],
  previous: ['4.12.3'],
  blobs: [{ digest, size: 5 }],
  signatures: { [digest]: [{ fingerprint: 'AB', signer: 'Somebody' }] },
  tool: 'test/1',
};

describe('formatMetadata', () => {
  it('states the size of the tar that it is itself a part of', () => {
    for (const rest of [0, 99, 9_999 - 900, 1e9, 1e12]) {
      const bytes = formatMetadata(metadata, (length) => length + rest);
      expect(parseMetadata(bytes, 'a bundle').size).to.equal(bytes.length + rest);
    }
  });

  it('settles where each digit more makes the tar a block larger', () => {
    // Just below a power of ten, where the number of digits may change.
    for (let rest = 99_000; rest < 100_100; rest += 1) {
      const bytes = formatMetadata(metadata, (length) => Math.ceil(length / 512) * 512 + rest);
      expect(parseMetadata(bytes, 'a bundle').size).to.equal(Math.ceil(bytes.length / 512) * 512 + rest);
    }
  });
});

describe('parseMetadata', () => {
  const parse = (changes: Record<string, unknown>): BundleMetadata =>
    parseMetadata(encodeMetadata({ ...metadata, size: 10, ...changes }), 'x.tar');
  const refusal = (action: () => unknown): string => {
    try {
      action();
    } catch (error) {
      if (isPluginError(error, 'invalid-bundle')) return error.message;
      throw error;
    }
    throw new Error('it was taken');
  };

  it('reads the output of formatMetadata', () => {
    expect(parse({})).to.deep.equal({ ...metadata, size: 10 });
  });

  it('refuses a text that is not a JSON object', () => {
    expect(refusal(() => parseMetadata(Buffer.from('root:x:0:0'), 'x.tar'))).to.equal(
      'metadata.json in x.tar is not JSON: malformed at line 1, column 1',
    );
    for (const text of ['', '{', '[]', 'null', '"text"']) {
      expect(refusal(() => parseMetadata(Buffer.from(text), 'x.tar'))).to.match(/^metadata\.json in x\.tar is not /);
    }
  });

  it('refuses formatVersion 2 without a list of releases', () => {
    expect(refusal(() => parse({ formatVersion: 2 }))).to.match(/^metadata\.json in x\.tar /);
  });

  it('reads from 2 to 16 releases, whose risks are in their list', () => {
    const releases = Array.from({ length: 17 }, (_, index) => {
      const own = `quay.io/a/b@sha256:${index.toString(16).padStart(64, '0')}`;
      return { ...metadata, version: `4.12.${index}`, release: own, risks: [], bytes: 1 };
    });
    const parseFirst = (count: number, changes: object = {}): BundleMetadata => {
      const some = releases.slice(0, count);
      const images = [...some.map(({ release }) => release), ...Object.values(metadata.components)];
      const { version, release } = some.at(-1) ?? metadata;
      return parse({ formatVersion: 2, version, release, images, releases: some, ...changes });
    };
    for (const count of [2, 16]) expect(parseFirst(count).releases).to.have.length(count);
    for (const count of [0, 1, 17]) expect(refusal(() => parseFirst(count))).to.match(/ malformed releases$/);
    const risks = [{ name: 'a', message: 'b', url: 'c' }];
    expect(refusal(() => parseFirst(2, { risks }))).to.match(/ malformed releases$/);
  });

  it('names the formatVersion of a later program', () => {
    expect(refusal(() => parse({ formatVersion: 3 }))).to.match(/formatVersion 3; this program reads 1 and 2/);
    for (const odd of [undefined, 'secret', 0, 1e9, { secret: 1 }])
      expect(refusal(() => parse({ formatVersion: odd }))).to.match(
        /has no formatVersion; this program reads 1 and 2$/,
      );
  });

  const malformed: Record<string, unknown[]> = {
    version: [
      undefined,
      4,
      'a\u001b[31m',
      'x'.repeat(2000),
      'eyJhbGciOi.9.secret',
      '4.12.4\n',
      `4.12.4-${'x'.repeat(100)}`,
    ],
    arch: [undefined, '', 'secret x', '../secret', 'X'.repeat(20)],
    release: [
      undefined,
      'quay.io/a/b:tag',
      `secret x@${digest}`,
      `quay.io/a@${digest}\n`,
      `${'x'.repeat(500)}@${digest}`,
    ],
    images: [undefined, 'text', [1], ['quay.io/a/b:tag'], ['secret']],
    components: [undefined, [], { etcd: 1 }, { 'a secret': `quay.io/a@${digest}` }, { etcd: 'secret' }],
    extraImages: [undefined, [null], ['secret'], [metadata.release], [`quay.io/a/c@${digest}`]],
    osImages: ['secret', ['secret']],
    previous: [undefined, ['4\n5'], ['secret']],
    base: ['secret', { version: 'secret', arch: 'x86_64', release: `quay.io/a@${digest}`, blobs: [] }],
    size: [undefined, -1, 1.5, '10'],
    blobs: [undefined, [{ digest: 'sha256:0', size: 1 }], [{ digest, size: -1 }], [null]],
    signatures: [undefined, [], { [digest]: 'text' }, { [digest]: [{ fingerprint: 1, signer: '' }] }],
  };
  for (const [field, values] of Object.entries(malformed)) {
    it(`refuses a malformed ${field}, names it and quotes nothing`, () => {
      for (const value of values) {
        expect(refusal(() => parse({ [field]: value }))).to.match(
          new RegExp(`^metadata\\.json in x\\.tar has malformed ${field}$`),
        );
      }
    });
  }
});
