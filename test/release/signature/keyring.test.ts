import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { readKey, type Key } from 'openpgp';
import { isPluginError, messageOf } from '../../../lib/errors.ts';
import { loadKeyring, parseFingerprint, readKeys, redHatReleaseKey } from '../../../lib/release/signature/keyring.ts';
import { fingerprintOf } from '../../../lib/release/signature/signature.ts';
import { makeContext } from '../../support/context.ts';
import { makeSigningKey, type SigningKey } from '../../support/release/signing.ts';
import { itWithSharedData, sharedData } from '../../support/sharedData.ts';

const codeOf = async (run: () => unknown): Promise<string> => {
  try {
    await run();
  } catch (error) {
    return isPluginError(error) ? error.code : messageOf(error);
  }
  return 'nothing';
};
const fingerprints = (keys: readonly Key[]): string[] => keys.map(fingerprintOf);

describe('parseFingerprint', () => {
  it('accepts the output of gpg, with and without spaces', () => {
    for (const text of [
      redHatReleaseKey.toLowerCase(),
      `0x${redHatReleaseKey}`,
      '567E 347A D004 4ADE 55BA  8A5F 199E 2F91 FD43 1D51\n',
    ]) {
      expect(parseFingerprint(text)).to.equal(redHatReleaseKey);
    }
    expect(parseFingerprint('ab'.repeat(32))).to.equal('AB'.repeat(32));
  });

  it('refuses key IDs and other texts', async () => {
    for (const text of ['', '199E2F91FD431D51', 'FD431D51', 'G'.repeat(40), `${redHatReleaseKey}0`]) {
      expect(await codeOf(() => parseFingerprint(text)), text).to.equal('usage');
    }
  });
});

describe('readKeys and loadKeyring', () => {
  const context = makeContext();
  let folder: string;
  let one: SigningKey;
  let two: SigningKey;
  const path = (name: string): string => join(folder, name);

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'keyring-'));
    one = await makeSigningKey({ type: 'ecc', name: 'One' });
    two = await makeSigningKey({ type: 'ecc', name: 'Two' });
    await writeFile(path('one'), one.publicKey);
    await writeFile(path('both'), `pub   a comment\n\n${one.publicKey}\nanother\n${two.publicKey}`);
    await writeFile(path('nonsense'), 'not a key');
  });
  after(() => rm(folder, { recursive: true }));
  beforeEach(() => context.lines.splice(0));

  it('reads several armored blocks with text around them, and binary keys', async () => {
    const binary = Buffer.concat(
      await Promise.all([one, two].map(async ({ publicKey }) => (await readKey({ armoredKey: publicKey })).write())),
    );
    const armored = await readKeys({ name: 'both', content: `text\n${one.publicKey}text\r\n${two.publicKey}` });
    expect(fingerprints(armored)).to.deep.equal([one.fingerprint, two.fingerprint]);
    expect(fingerprints(await readKeys({ name: 'binary', content: binary }))).to.deep.equal(fingerprints(armored));
  });

  it('leaves a block out that it cannot read, as long as there is another', async () => {
    const broken = one.publicKey.replace(/\n\n.{40}/, `\n\n${'A'.repeat(40)}`);
    expect(fingerprints(await readKeys({ name: 'x', content: broken + two.publicKey }))).to.deep.equal([
      two.fingerprint,
    ]);
    expect(await codeOf(() => readKeys({ name: 'x', content: broken }))).to.equal('invalid-file');
    expect(await codeOf(() => readKeys({ name: 'x', content: '' }))).to.equal('invalid-file');
  });

  it('is not kept busy by beginnings without an end', async () => {
    const content = '-----BEGIN PGP PUBLIC KEY BLOCK-----'.repeat(200_000);
    expect(await codeOf(() => readKeys({ name: 'x', content }))).to.equal('invalid-file');
  });

  it('gives no secret keys away', async () => {
    const [key] = await readKeys({ name: 'x', content: Buffer.from(one.privateKey.write()) });
    expect(key?.isPrivate()).to.equal(false);
  });

  it('counts keys by their fingerprints only, from any source', async () => {
    const system = path('one');
    const others = [{ name: 'payload', content: two.publicKey }];
    const ring = async (...trusted: string[]): Promise<string[]> =>
      fingerprints((await loadKeyring({ system, others }, trusted, context)).trusted);
    expect(await ring()).to.deep.equal([]);
    expect(await ring(two.fingerprint.toLowerCase())).to.deep.equal([two.fingerprint]);
    expect(await ring(two.fingerprint, one.fingerprint)).to.deep.equal([one.fingerprint, two.fingerprint]);
    const named = await loadKeyring({ files: [path('both')], system: path('absent') }, [one.fingerprint], context);
    expect(fingerprints(named.trusted)).to.deep.equal([one.fingerprint]);
    expect(fingerprints(named.untrusted)).to.deep.equal([two.fingerprint]);
  });

  it('takes a key’s bytes from the first place that has it', async () => {
    const { trusted } = await loadKeyring(
      { files: [path('one')], system: path('both'), others: [{ name: 'payload', content: one.publicKey }] },
      [one.fingerprint],
      context,
    );
    expect(trusted).to.have.length(1);
  });

  it('throws for a file that was named, and only warns for a payload’s', async () => {
    expect(await codeOf(() => loadKeyring({ files: [path('absent')] }, [], context))).to.equal('not-readable');
    expect(await codeOf(() => loadKeyring({ files: [path('nonsense')] }, [], context))).to.equal('invalid-file');
    const others = [{ name: 'verifier-public-key-x', content: 'nonsense' }];
    await loadKeyring({ system: path('absent'), others }, [], context);
    expect(context.lines).to.have.length(1);
    expect(context.lines[0]).to.match(/^warn: verifier-public-key-x holds no OpenPGP public key/);
  });

  itWithSharedData('trusts Red Hat’s release key 2 and not the other key of the file', async () => {
    const combined = { name: 'combined', content: sharedData('keyrings/combined.txt') };
    const { trusted, untrusted } = await loadKeyring({ system: path('absent'), others: [combined] }, [], context);
    expect(fingerprints(trusted)).to.deep.equal([redHatReleaseKey]);
    expect(untrusted).to.have.length(1);
  });
});
