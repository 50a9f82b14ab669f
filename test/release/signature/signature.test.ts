import { expect } from 'chai';
import { generateKey, revokeKey, sign, createMessage, type Key, type PrivateKey } from 'openpgp';
import { digestOf, parseDigest, type Digest } from '../../../lib/content/oci/reference.ts';
import { readKeys, redHatReleaseKey } from '../../../lib/release/signature/keyring.ts';
import { verifySignature, type VerifiedSignature } from '../../../lib/release/signature/signature.ts';
import { makeSigningKey, signDigest, statementOf, type SigningKey } from '../../support/release/signing.ts';
import { itWithSharedData, sharedData } from '../../support/sharedData.ts';

const digest = digestOf('a release');
const other = digestOf('another release');

describe('verifySignature', () => {
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

  it('returns the signer, the digest and the time', async () => {
    const bytes = await signDigest(signer, digest);
    const verdict = await good(bytes);
    expect(verdict).to.deep.include({ digest, bytes, fingerprint: signer.fingerprint });
    expect(verdict.keyId).to.equal(signer.fingerprint.slice(-16));
    expect(verdict.userId).to.equal('Test release key <release@example.com>');
    expect(verdict.created.toISOString()).to.equal('2023-01-31T00:00:00.000Z');
  });

  for (const version of [3, 4] as const) {
    it(`takes version ${version} packets, compressed or not`, async () => {
      const plain = await good(await signDigest(signer, digest, { version }));
      const compressed = await good(await signDigest(signer, digest, { version, compressed: true }));
      expect(compressed.created).to.deep.equal(plain.created);
      expect(plain.fingerprint).to.equal(signer.fingerprint);
    });

    it(`rejects a version ${version} signature of another digest, corrupt, or by a key that is not there`, async () => {
      const bytes = await signDigest(signer, digest, { version });
      const stranger = await readKeys({ name: 'test', content: (await makeSigningKey()).publicKey });
      const corrupt = Buffer.from(bytes);
      corrupt[corrupt.length - 1] = (corrupt.at(-1) ?? 0) ^ 1;
      const reworded = Buffer.from(bytes.toString('latin1').replace('Test signer', 'Test singer'), 'latin1');
      expect(await reason(bytes, other)).to.equal(`is for ${digest}`);
      expect(await reason(bytes, digest, stranger)).to.match(/^was made with another key, [0-9A-F]{16,40}$/);
      expect(await reason(corrupt)).to.match(/^is not genuine/);
      expect(await reason(reworded)).to.match(/^(does not match its statement|is not genuine)/);
    });
  }

  it('does not mind that the key’s validity ended, before or after it signed', async () => {
    const expired = await makeSigningKey({ expired: true });
    const [key] = await readKeys({ name: 'test', content: expired.publicKey });
    const late = { ...expired, created: new Date('2022-01-01') };
    for (const version of [3, 4] as const) {
      await good(await signDigest(expired, digest, { version }), key ? [key] : []);
      await good(await signDigest(late, digest, { version, compressed: true }), key ? [key] : []);
    }
  });

  it('rejects a signature that has expired itself', async () => {
    expect(await reason(await signDigest(signer, digest, { expired: true }))).to.equal(
      'expired on 2023-02-01T00:00:00.000Z',
    );
  });

  it('takes a signature from later than the clock says', async () => {
    await good(await signDigest({ ...signer, created: new Date('2060-01-01') }, digest, { compressed: true }));
  });

  it('takes signatures of subkeys and reports the primary key', async () => {
    const { privateKey, publicKey } = await generateKey({
      type: 'ecc',
      curve: 'nistP256',
      userIDs: { name: 'With a subkey' },
      subkeys: [{ sign: true }],
      format: 'object',
    });
    const verdict = await good(await signWith(privateKey, statementOf(digest)), [publicKey]);
    const [subkey] = publicKey.getSubkeys();
    expect(verdict.fingerprint).to.equal(publicKey.getFingerprint().toUpperCase());
    expect(verdict.keyId).to.equal(subkey?.getKeyID().toHex().toUpperCase());
  });

  it('takes signatures on the curve with the longest numbers, P-521', async () => {
    const userIDs = { name: 'P-521' };
    const { privateKey, publicKey } = await generateKey({ type: 'ecc', curve: 'nistP521', userIDs, format: 'object' });
    await good(await signWith(privateKey, statementOf(digest)), [publicKey]);
  });

  it('rejects signatures of a key that was revoked', async () => {
    const { publicKey } = await revokeKey({ key: signer.privateKey, format: 'object' });
    expect(await reason(await signDigest(signer, digest), digest, [publicKey])).to.match(/cannot be used: .*revoked/);
    expect(await reason(await signDigest(signer, digest, { version: 3 }), digest, [publicKey])).to.match(/revoked/);
  });

  it('rejects hashes weaker than SHA-256', async () => {
    const bytes = await signDigest(signer, digest, { version: 3 });
    // The hash of a version 3 packet is at byte 17. The packet has the last 282 bytes.
    const at = bytes.lastIndexOf(Buffer.from([3, 5, 0])) + 16;
    bytes[at] = 2;
    expect(await reason(bytes)).to.equal('uses a hash weaker than SHA-256 (SHA-1)');
  });

  describe('of genuine release signatures', () => {
    const version3 = parseDigest('sha256:e3f12513a4b22a2d7c0e7c9207f52128113758d9d68c7d06b11a0ac7672966f7');
    const version4 = parseDigest('sha256:edd9824f0404f1a139688017e7001370e2f3fbc088b94da84506653b473fe140');
    const openShiftCi = 'D04761B116203B0C0859B61628B76E05B923888E';
    const rows = [
      { digest: version3, keyring: 'redhat', fingerprint: redHatReleaseKey, foreign: 'simple', created: '2019-04-09' },
      { digest: version4, keyring: 'simple', fingerprint: openShiftCi, foreign: 'redhat', created: '2019-04-22' },
    ];
    const read = (name: string): Promise<Key[]> => readKeys({ name, content: sharedData(`keyrings/${name}.txt`) });

    for (const row of rows) {
      const bytes = (): Buffer => sharedData(`signatures/${row.digest.replace(':', '=')}/signature-1`);

      itWithSharedData(
        `takes ${row.digest.slice(0, 15)}… with its own key, and with both keys in one file`,
        async () => {
          for (const keyring of [row.keyring, 'combined']) {
            const verdict = await verifySignature(bytes(), row.digest, await read(keyring));
            expect(verdict).to.include({ good: true, fingerprint: row.fingerprint, digest: row.digest });
            if (verdict.good) expect(verdict.created.toISOString()).to.match(new RegExp(`^${row.created}`));
          }
        },
      );

      itWithSharedData(`rejects ${row.digest.slice(0, 15)}… with the other key, and for any other digest`, async () => {
        const combined = await read('combined');
        expect(await reason(bytes(), row.digest, await read(row.foreign))).to.match(/was made with another key/);
        expect(await reason(bytes(), row.digest === version3 ? version4 : version3, combined)).to.equal(
          `is for ${row.digest}`,
        );
        expect(await reason(bytes(), digest, combined)).to.equal(`is for ${row.digest}`);
      });
    }
  });
});

async function signWith(privateKey: PrivateKey, text: string): Promise<Buffer> {
  const message = await createMessage({ binary: Buffer.from(text) });
  return Buffer.from(await sign({ message, signingKeys: privateKey, format: 'binary' }));
}
