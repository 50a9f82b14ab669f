import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import {
  blobBytes,
  expectFailure,
  openWorkshop,
  sign,
  type Workshop,
  type WorkshopOptions,
} from '../../support/content/creation.ts';
import { buildRelease } from '../../support/release/release.ts';
import { makeSigningKey, signatureStore, signDigest, writeSignatureStore } from '../../support/release/signing.ts';

let workshop: Workshop;
const open = async (options?: WorkshopOptions): Promise<void> => {
  workshop = await openWorkshop(options);
};
const close = (): Promise<void> => workshop.close();

describe('create and who signed the release', () => {
  afterEach(close);

  const expectNothingFetched = (): void => {
    // Only the configuration of the payload, and the layer that names keys and stores, are read.
    const blobs = workshop.registry.requests.filter(({ path }) => path.includes('/blobs/'));
    expect(new Set(blobs.map(({ path }) => path)).size).to.be.at.most(2);
  };

  it('refuses an unsigned release before the first blob of an image is fetched', async () => {
    await open({ signed: false });
    await expectFailure(await workshop.create(), workshop.output, [
      /^error \([a-z-]+\): no signature of sha256:[0-9a-f]{64} was found: http:\S+ has no signature/m,
      /^try: --signature-store, --allow-unsigned/m,
    ]);
    expectNothingFetched();
  });

  it('accepts an unsigned release if that is allowed, and warns', async () => {
    await open({ signed: false });
    const { code, stdout, stderr } = await workshop.create({ 'allow-unsigned': true });
    expect(code, stderr).to.equal(0);
    expect(stderr).to.match(/^warning: no signature of .*unsigned releases are allowed/m);
    expect(stdout).to.match(/Signed by +not signed/);
  });

  it('does not take the unsigned bundle of an earlier run for a good one', async () => {
    await open({ signed: false });
    await workshop.make({ 'allow-unsigned': true });
    const { code, stderr } = await workshop.create();
    expect(code).to.equal(1);
    expect(stderr).to.match(/^error \([a-z-]+\): no signature of/m);
  });

  it('names the fingerprint of a key that is not trusted, and the option that trusts it', async () => {
    await open();
    const { fingerprint } = workshop.key;
    await expectFailure(await workshop.create({ 'trust-fingerprint': undefined }), workshop.output, [
      new RegExp(`^error \\([a-z-]+\\): .* is signed by ${fingerprint} \\(Test release key`, 'm'),
      new RegExp(`^hint: .* Trust ${fingerprint} only .*\ntry: --trust-fingerprint$`, 'm'),
    ]);
    expectNothingFetched();
  });

  it('refuses a signature by an unknown key', async () => {
    await open({ signed: false });
    await sign(workshop, [workshop.release.digest], await makeSigningKey({ name: 'Somebody else', type: 'ecc' }));
    await expectFailure(await workshop.create(), workshop.output, [
      /^error \([a-z-]+\): cannot verify sha256:/m,
      /^hint: /m,
    ]);
    expectNothingFetched();
  });

  it('refuses the signature of another digest', async () => {
    await open({ signed: false });
    const other = buildRelease({ version: '4.12.3' }).digest;
    const files = signatureStore(new Map([[workshop.release.digest, [await signDigest(workshop.key, other)]]]), '/');
    for (const [path, bytes] of files) (workshop.signatures.files as Map<string, Buffer>).set(path, bytes);
    await expectFailure(await workshop.create(), workshop.output, [
      /^error \([a-z-]+\): cannot verify sha256:/m,
      new RegExp(other),
    ]);
    expectNothingFetched();
  });

  it('says that no signature store could be asked', async () => {
    await open();
    await workshop.signatures.stop();
    await expectFailure(await workshop.create(), workshop.output, [
      /^error \([a-z-]+\): no signature of .* cannot be reached/m,
      /^hint: No signature store could be reached.*\ntry: --signature-store/m,
    ]);
    expectNothingFetched();
  });

  it('checks the signature before the payload is read if key and store are given', async () => {
    await open({ signed: false });
    const store = join(workshop.folder, 'store');
    const keyring = await workshop.write('key.asc', workshop.key.publicKey);
    await mkdir(store);
    const outcome = await workshop.create({ 'signature-store': store, 'signature-keyring': keyring });
    await expectFailure(outcome, workshop.output, [/^error \([a-z-]+\): no signature of/m, /has no signature/]);
    expect(blobBytes(workshop.registry)).to.equal(0);
  });

  it('takes keys and signatures from a file and a folder', async () => {
    await open({ release: { verification: { publicKey: '', stores: [] } }, signed: false });
    const { release, key, folder } = workshop;
    const keyring = await workshop.write('key.asc', key.publicKey);
    await writeSignatureStore(
      folder,
      signatureStore(new Map([[release.digest, [await signDigest(key, release.digest)]]]), 'store/'),
    );
    await workshop.make({ 'signature-store': join(folder, 'store'), 'signature-keyring': keyring });
    await workshop.make({
      'signature-store': `file://${folder}/store`,
      'signature-keyring': keyring,
      output: `${folder}/b`,
    });
  });

  it('refuses a keyring without a key, and an invalid fingerprint', async () => {
    await open();
    const keyring = await workshop.write('key.asc', 'not a key');
    await expectFailure(await workshop.create({ 'signature-keyring': keyring }), workshop.output, [
      /key\.asc holds no OpenPGP public key/,
    ]);
    const outcome = await workshop.create({ 'trust-fingerprint': '199E2F91FD431D51' });
    await expectFailure(outcome, workshop.output, [/not the fingerprint of a key/, /^hint: /m], { exit: 2 });
  });
});

describe('create and credentials', () => {
  const password = 'correct-horse-battery';
  const users = [
    ['a password', { basic: { username: 'ci', password } }],
    ['tokens', { bearer: { username: 'ci', password } }],
  ] as const;
  afterEach(close);

  for (const [how, options] of users) {
    describe(`where a registry wants ${how}`, () => {
      beforeEach(() => open(options));

      it('uses a pull secret', async () => {
        await workshop.make({ 'pull-secret': await workshop.writePullSecret('ci', password, 'other.example') });
      });

      it('says which registry refuses the credentials', async () => {
        const secret = await workshop.writePullSecret('ci', 'wrong-wrong-wrong');
        await expectFailure(
          await workshop.create({ 'pull-secret': secret }),
          workshop.output,
          [
            /^error \([a-z-]+\): .*127\.0\.0\.1:\d+ refuses the credentials .* from \S*pull-secret/m,
            /^try: --pull-secret/m,
          ],
          {
            secrets: ['wrong-wrong-wrong', Buffer.from('ci:wrong-wrong-wrong').toString('base64')],
          },
        );
      });

      it('says which registry wants credentials', async () => {
        await expectFailure(await workshop.create(), workshop.output, [
          /^error \([a-z-]+\): .*127\.0\.0\.1:\d+/m,
          /^try: --pull-secret/m,
        ]);
      });
    });
  }

  it('shows no secret, however much it tells', async () => {
    await open({ bearer: { username: 'ci', password } });
    const secret = await workshop.writePullSecret('ci', password);
    const { code, stdout, stderr } = await workshop.create({ 'pull-secret': secret, verbose: true });
    expect(code, stderr).to.equal(0);
    for (const each of [password, Buffer.from(`ci:${password}`).toString('base64'), 'Bearer ', 'Basic ']) {
      expect(stdout + stderr).not.to.include(each);
    }
    const tokens = workshop.registry.requests.map(({ headers }) => headers.authorization?.split(' ')[1] ?? '');
    for (const token of new Set(tokens.filter((each) => each !== ''))) expect(stdout + stderr).not.to.include(token);
  });
});

describe('create and TLS', function () {
  let authority: Authority;
  before(async () => {
    authority = await makeAuthority();
  });
  after(() => authority.remove());
  afterEach(close);

  const openSecure = async (expired = false): Promise<void> => {
    const { key, certificate } = await authority.issue({ expired });
    await open({ tls: { key, cert: certificate } });
  };

  it('names the options for an authority that is not trusted', async () => {
    await openSecure();
    await expectFailure(await workshop.create({ insecure: undefined }), workshop.output, [
      /^error \([a-z-]+\): the certificate of 127\.0\.0\.1:\d+ is not trusted/m,
      /^try: --certificate-authority, --insecure/m,
    ]);
  });
});
