import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { readMessage, verify } from 'openpgp';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { requirePeer, run, runSuccessfully } from '../peers.ts';
import {
  makeSigningKey,
  signatureStore,
  signDigest,
  signOversized,
  statementOf,
  writeSignatureStore,
  type SigningKey,
} from './signing.ts';

const digest = digestOf('a release');

describe('signDigest', () => {
  let rsa: SigningKey;
  let ecc: SigningKey;

  before(async () => {
    rsa = await makeSigningKey();
    ecc = await makeSigningKey({ type: 'ecc' });
  });

  it('makes a message that openpgp verifies, with the statement inside', async () => {
    for (const key of [rsa, ecc]) {
      const message = await readMessage({ binaryMessage: new Uint8Array(await signDigest(key, digest)) });
      const verificationKeys = key.privateKey.toPublic();
      const verified = await verify({ message, verificationKeys, expectSigned: true });
      const { data, signatures } = verified as { data: unknown; signatures: unknown[] };
      expect(data).to.equal(statementOf(digest));
      expect(signatures).to.have.length(1);
    }
  });

  it('makes the same bytes again from the same key and digest', async () => {
    for (const options of [{}, { version: 3 as const, compressed: true }]) {
      expect(await signDigest(rsa, digest, options)).to.deep.equal(await signDigest(rsa, digest, options));
    }
  });

  describe('read by gpg', function () {
    requirePeer(this, 'gpg');
    let home: string;

    before(async () => {
      home = await mkdtemp(join(tmpdir(), 'gpg-'));
    });

    after(async () => {
      if (home) await rm(home, { recursive: true, force: true });
    });

    async function statusOf(key: SigningKey, signature: Buffer): Promise<string> {
      const keyring = join(home, `${key.fingerprint}.gpg`);
      const common = [
        '--homedir',
        home,
        '--batch',
        '--no-default-keyring',
        '--keyring',
        keyring,
        '--trust-model=always',
      ];
      await runSuccessfully('gpg', [...common, '--no-autostart', '--import'], { input: key.publicKey });
      const file = join(home, 'signature-1');
      await writeFile(file, signature);
      return (await run('gpg', [...common, '--no-autostart', '--status-fd=1', '--verify', file])).stdout;
    }

    const variants = {
      'version 4': {},
      'version 4, compressed': { compressed: true },
      'version 3': { version: 3 },
      'version 3, compressed': { version: 3, compressed: true },
    } as const;
    for (const [name, options] of Object.entries(variants)) {
      it(`is good: ${name}`, async () => {
        expect(await statusOf(rsa, await signDigest(rsa, digest, options))).to.include('[GNUPG:] GOODSIG');
      });
    }

    it('is good: an elliptic curve', async () => {
      expect(await statusOf(ecc, await signDigest(ecc, digest))).to.include('[GNUPG:] GOODSIG');
    });

    it('is good: an oversized one', async () => {
      const signature = await signOversized(rsa, digest);
      expect(signature.length).to.be.above(50 * 1024);
      expect(await statusOf(rsa, signature)).to.include('[GNUPG:] GOODSIG');
    });

    it('is of an expired key', async () => {
      const expired = await makeSigningKey({ expired: true });
      expect(await statusOf(expired, await signDigest(expired, digest))).to.include('[GNUPG:] EXPKEYSIG');
    });

    it('is an expired signature', async () => {
      const signature = await signDigest(rsa, digest, { expired: true });
      expect(await statusOf(rsa, signature)).to.include('[GNUPG:] EXPSIG');
    });

    it('is of another key', async () => {
      expect(await statusOf(ecc, await signDigest(rsa, digest))).to.include('[GNUPG:] NO_PUBKEY');
    });
  });
});

describe('signatureStore', () => {
  it('numbers the signatures of a digest from 1', async () => {
    const store = signatureStore(new Map([[digest, [Buffer.from('one'), Buffer.from('two')]]]));
    const hex = digest.slice('sha256:'.length);
    expect([...store.keys()]).to.deep.equal([`sha256=${hex}/signature-1`, `sha256=${hex}/signature-2`]);
    const folder = await mkdtemp(join(tmpdir(), 'signatures-'));
    await writeSignatureStore(folder, store);
    expect(await readFile(join(folder, `sha256=${hex}/signature-2`), 'utf8')).to.equal('two');
    await rm(folder, { recursive: true });
  });
});
