import { generateKeyPairSync } from 'node:crypto';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { findRefusedImages } from '../../../lib/bundle/open/signatureCheck.ts';
import { checkSigned } from '../../../lib/bundle/open/signedBundle.ts';
import { verifyBundle } from '../../../lib/bundle/verify.ts';
import { releaseRepository } from '../../../lib/content/store/directory.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { acceptUnsigned } from '../../support/release/trust.ts';

describe('a bundle of a release with an image policy', () => {
  let bundle: TestBundle | undefined;
  const make = async (options: Parameters<typeof makeBundle>[0]): Promise<TestBundle> => {
    bundle = await makeBundle({ version: '4.21.3', attachments: () => true, ...options });
    return bundle;
  };
  afterEach(async () => {
    await bundle?.remove();
    bundle = undefined;
  });

  it('is created if every image has a signature by the key of the policy', async () => {
    const { result, release } = await make({ files: imagePolicyFiles() });
    expect(result.policies?.map(({ outcome }) => outcome)).to.deep.equal(
      Array(release.images.size + 1).fill('verified'),
    );
  });

  it('checks each image of a list, because nodes pull these', async () => {
    const { result } = await make({ files: imagePolicyFiles(), arch: 'multi', components: 1 });
    expect(result.policies?.map(({ name, outcome }) => `${name} ${outcome}`)).to.have.length(4);
    expect(result.policies?.every(({ outcome }) => outcome === 'verified')).to.equal(true);
  });

  it('is created with one request for each signature', async () => {
    const { requests, release } = await make({ files: imagePolicyFiles() });
    const blobs = requests.filter((path) => path.includes('/blobs/'));
    // The files of the release are read first, and fetched into the bundle later.
    const again = blobs.filter((path, index) => blobs.indexOf(path) !== index);
    expect(again.filter((path) => !path.includes(release.releaseRepository))).to.deep.equal([]);
  });

  it('keeps the signatures in a delta bundle, which is checked without its base', async () => {
    const files = imagePolicyFiles();
    // Another release with the same components.
    await using base = await make({ files: { ...files, 'more.yaml': '{}' } });
    const { path, keyFile, key, release } = await make({ files, base: base.path });
    const trust = { ...acceptUnsigned, keyrings: [keyFile], fingerprints: [key.fingerprint], allowUnsigned: false };
    const opened = await openBundle(path, makeContext());
    const { policies } = await verifyBundle(opened, { trust, assumeBase: true }, makeContext());
    await opened[Symbol.asyncDispose]();
    expect(policies.map(({ outcome }) => outcome)).to.deep.equal(Array(release.images.size + 1).fill('verified'));
  });

  it('is not created if an image has none, and the error names it', async () => {
    const error = await failureOf(
      make({ files: imagePolicyFiles(), attachments: (name) => name !== 'etcd', components: ['etcd', 'cli'] }),
      'unsigned',
    );
    expect(error.message).to.match(/1 image has no valid sigstore signature: etcd$/);
    expect(error.hint).to.include('by the policy openshift of the release');
  });

  it('is not created if the signatures are by another key', async () => {
    const { publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const key = publicKey.export({ type: 'spki', format: 'pem' });
    const error = await failureOf(make({ files: imagePolicyFiles({ key }) }), 'untrusted');
    expect(error.message).to.match(/5 images have no valid sigstore signature: release, /);
  });

  it('checks only the images in the scopes of the policy', async () => {
    const scopes = ['quay.io/openshift-release-dev/ocp-release'];
    const { result } = await make({ files: imagePolicyFiles({ scopes }), attachments: (name) => name === 'release' });
    expect(result.policies?.map(({ name }) => name)).to.deep.equal(['release']);
  });

  it('is created without signatures if clusters have the policy in a feature set only', async () => {
    const { result } = await make({
      files: imagePolicyFiles({ featureSet: 'TechPreviewNoUpgrade' }),
      attachments: () => false,
    });
    expect(result.policies).to.deep.equal([]);
  });

  it('is not created without signatures that a policy of Fulcio and Rekor requires', async () => {
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const rootOfTrust = {
      policyType: 'FulcioCAWithRekor',
      fulcioCAWithRekor: {
        fulcioCAData: Buffer.from('CA').toString('base64'),
        rekorKeyData: Buffer.from(publicKey.export({ type: 'spki', format: 'pem' })).toString('base64'),
        fulcioSubject: { oidcIssuer: 'https://login.example.com', signedEmail: 'signer@example.com' },
      },
    };
    const made = make({ files: imagePolicyFiles({ rootOfTrust }), attachments: () => false });
    const failure = await failureOf(made, 'unsigned');
    expect(failure.message).to.contain('5 images have no valid sigstore signature');
  });

  it('is not created with a policy whose key nodes cannot read, and is told its name', async () => {
    const failure = await failureOf(make({ files: imagePolicyFiles({ key: 'garbage' }) }), 'untrusted');
    expect(failure.hint).to.match(/by the policy openshift of the release, because its root of trust cannot be used/);
    expect(String(failure.cause)).to.contain('its key cannot be read');
  });

  it('is checked again offline, by verify and before it is used', async () => {
    const made = await make({ files: imagePolicyFiles() });
    const { path, keyFile, key, release } = made;
    const trust = { ...acceptUnsigned, keyrings: [keyFile], fingerprints: [key.fingerprint], allowUnsigned: false };
    const read = async (place: string): Promise<{ found: string[]; used: unknown }> => {
      await using opened = await openBundle(place, makeContext());
      const { problems } = await verifyBundle(opened, { trust }, makeContext());
      const used = await checkSigned(opened, trust, makeContext()).catch((error: unknown) => error);
      return { found: problems.map(({ kind, subject, images }) => `${kind} ${subject} ${images.join()}`), used };
    };
    const good = await read(path);
    expect(good.found).to.deep.equal([]);
    expect(good.used)
      .to.have.property('policies')
      .with.length(release.images.size + 1);

    const root = await made.unpack();
    const tag = attachmentTag(release.digest);
    const folder = join(root, 'v2', releaseRepository, 'manifests');
    expect(await readdir(folder)).to.include(tag);
    await rm(join(folder, tag));
    const bad = await read(root);
    expect(bad.found).to.include('unsigned signature release');
    expect(bad.used).to.deep.include({ code: 'unsigned' });
  });

  it('has a problem for each image whose signatures are not by the key of the policy', async () => {
    const { result } = await make({ files: imagePolicyFiles(), components: 1 });
    const rejected = (result.policies ?? []).map((each) => ({ ...each, outcome: 'rejected' as const }));
    expect(findRefusedImages(rejected).map(({ kind }) => kind)).to.deep.equal(['untrusted', 'untrusted']);
  });
});
