import { deflateSync } from 'node:zlib';
import { expect } from 'chai';
import type { Key } from 'openpgp';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readKeys } from '../../../lib/release/signature/keyring.ts';
import { verifySignature, type VerifiedSignature } from '../../../lib/release/signature/signature.ts';
import { makeSigningKey, signDigest, statementOf, type SigningKey } from '../../support/release/signing.ts';

const digest = digestOf('a release');

describe('a signed message', () => {
  let signer: SigningKey;
  let keys: Key[];
  before(async () => {
    signer = await makeSigningKey();
    keys = await readKeys({ name: 'test', content: signer.publicKey });
  });

  const good = async (bytes: Buffer, by = keys): Promise<VerifiedSignature> => {
    const verdict = await verifySignature(bytes, digest, by);
    if (!verdict.good) throw new Error(verdict.reason);
    return verdict;
  };
  const reason = async (bytes: Buffer, of: Digest = digest, by = keys): Promise<string> => {
    const verdict = await verifySignature(bytes, of, by);
    return verdict.good ? 'good' : verdict.reason;
  };

  describe('of the signed statement', () => {
    const statement = (change: (value: Record<string, Record<string, unknown>>) => void): string => {
      const value = JSON.parse(statementOf(digest)) as Record<string, Record<string, unknown>>;
      change(value);
      return JSON.stringify(value);
    };
    const cases: [string, string, RegExp][] = [
      ['is not JSON', 'release', /not JSON/],
      ['is not an object', '[]', /lacks critical/],
      [
        'has another type',
        statement(({ critical }) => (critical ? (critical['type'] = 'x') : 0)),
        /not one of a container/,
      ],
      [
        'names no image',
        statement(({ critical }) => (critical ? (critical['identity'] = { 'docker-reference': '' }) : 0)),
        /no image/,
      ],
      ['has no digest', statement(({ critical }) => (critical ? (critical['image'] = {}) : 0)), /for no digest/],
      ['has another field', statement((value) => (value['more'] = {})), /unknown field “more”/],
      [
        'has another critical field',
        statement(({ critical }) => (critical ? (critical['more'] = 1) : 0)),
        /unknown field “more”/,
      ],
      [
        'has another optional field',
        statement(({ optional }) => (optional ? (optional['more'] = 1) : 0)),
        /unknown field “more”/,
      ],
    ];
    for (const [title, text, expected] of cases) {
      it(`rejects one that ${title}`, async () => {
        expect(await reason(await signDigest(signer, digest, { statement: text }))).to.match(expected);
      });
    }

    it('takes one without the optional part', async () => {
      const text = statement((value) => delete value['optional']);
      await good(await signDigest(signer, digest, { statement: text }));
    });
  });

  describe('of bytes that are no signature', () => {
    it('gives a reason for anything, and never throws', async () => {
      const bytes = await signDigest(signer, digest, { version: 3 });
      expect(await reason(Buffer.alloc(0))).to.equal('is empty');
      expect(await reason(Buffer.from('<html>not found</html>'))).to.equal('is not binary OpenPGP');
      for (let length = 1; length < bytes.length; length += 7) {
        expect(await reason(bytes.subarray(0, length)), String(length)).not.to.equal('good');
      }
    });

    it('refuses data that would inflate without bounds, or is compressed twice', async () => {
      const bomb = Buffer.concat([Buffer.from([0xa3, 2]), deflateSync(Buffer.alloc(8 * 1024 * 1024))]);
      const twice = Buffer.concat([Buffer.from([0xa3, 2]), deflateSync(Buffer.from([0xa3, 0]))]);
      expect(await reason(bomb)).to.equal('decompresses to more than 1048576 bytes');
      expect(await reason(twice)).to.equal('is compressed more than once, or in part');
      expect(await reason(Buffer.from([0xa3, 3, 0]))).to.equal('cannot be decompressed');
      expect(await reason(Buffer.from([0xa3, 4, 0]))).to.match(/unsupported algorithm.*compression algorithm 4/);
    });

    it('refuses a second document beside the signed one', async () => {
      const bytes = await signDigest(signer, digest);
      const literal = Buffer.concat([Buffer.from([0xcb, 6 + 2]), Buffer.from('b\0\0\0\0\0{}')]);
      expect(await reason(Buffer.concat([literal, bytes]))).to.match(/holds 2 documents/);
    });
  });
});
