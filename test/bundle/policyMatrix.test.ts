import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createBundle } from '../../lib/bundle/create/create.ts';
import { openLocalOrigin } from '../../lib/bundle/create/localOrigin.ts';
import { openBundle } from '../../lib/bundle/open.ts';
import { checkSigned } from '../../lib/bundle/signedBundle.ts';
import { verifyBundle } from '../../lib/bundle/verify/verify.ts';
import { isPluginError } from '../../lib/errors.ts';
import { mediaTypes } from '../../lib/oci/descriptor.ts';
import { digestOf, type Digest } from '../../lib/oci/digest.ts';
import { Credentials } from '../../lib/registry/auth/credentials.ts';
import { MirrorSets } from '../../lib/registry/mirrors.ts';
import { releaseRepository } from '../../lib/store/directory.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext } from '../support/context.ts';
import { attachmentPrivateKey, attachmentTag } from '../support/release/attachments.ts';
import { imagePolicyFiles } from '../support/release/imagePolicy.ts';
import { believeAll } from '../support/release/trust.ts';

const otherKey = generateKeyPairSync('ed25519').privateKey;

/** A signature; by default the right one. */
interface Signature {
  readonly name?: string;
  readonly digest?: string;
  readonly key?: KeyObject;
  /** Characters of an optional field. */
  readonly padding?: number;
  readonly mediaType?: string;
  readonly change?: (signature: string) => string;
}

// checkSigned is what push, serve, apply, load and the agents call before they use a bundle.
describe('a sigstore signature, for create, for verify and for every use of a bundle', () => {
  let made: TestBundle;
  let root: string;
  let image: Digest;
  before(async () => {
    const files = imagePolicyFiles();
    made = await makeBundle({ version: '4.21.3', components: ['etcd'], attachments: () => true, files });
    root = await made.unpack();
    image = made.release.images.get('etcd')?.digest ?? made.release.digest;
  });
  after(() => made.remove());

  const put = async (folder: 'blobs' | 'manifests', content: string): Promise<{ digest: Digest; size: number }> => {
    const bytes = Buffer.from(content);
    await writeFile(join(root, 'v2', releaseRepository, folder, digestOf(bytes)), bytes);
    return { digest: digestOf(bytes), size: bytes.length };
  };
  const layerOf = async ({ name, digest, key, padding, mediaType, change }: Signature): Promise<object> => {
    const payload = JSON.stringify({
      critical: {
        identity: { 'docker-reference': name ?? 'quay.io/openshift-release-dev/ocp-v4.0-art-dev' },
        image: { 'docker-manifest-digest': digest ?? image },
        type: 'cosign container image signature',
      },
      optional: padding === undefined ? null : { padding: 'x'.repeat(padding) },
    });
    const signature = sign(null, Buffer.from(payload), key ?? attachmentPrivateKey).toString('base64');
    return {
      mediaType: mediaType ?? 'application/vnd.dev.cosign.simplesigning.v1+json',
      ...(await put('blobs', payload)),
      annotations: { 'dev.cosignproject.cosign/signature': change?.(signature) ?? signature },
    };
  };
  const attach = async (signatures: readonly Signature[]): Promise<void> => {
    const tag = join(root, 'v2', releaseRepository, 'manifests', attachmentTag(image));
    await rm(tag, { force: true });
    if (signatures.length === 0) return;
    const layers = await Promise.all(signatures.map(layerOf));
    const config = { mediaType: 'application/vnd.oci.image.config.v1+json', ...(await put('blobs', '{}')) };
    const manifest = { schemaVersion: 2, mediaType: mediaTypes.ociManifest, config, layers };
    await symlink((await put('manifests', JSON.stringify(manifest))).digest, tag);
  };
  const codeOf = async (action: Promise<unknown>): Promise<string> => {
    try {
      await action;
      return 'good';
    } catch (error) {
      if (!isPluginError(error)) throw error;
      return error.code;
    }
  };

  const trust = () => ({
    ...believeAll,
    ...{ keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false },
  });
  const create = async (): Promise<void> => {
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const origin = await openLocalOrigin(root, { settings, credentials, mirrors: new MirrorSets() }, makeContext());
    const release = {
      version: '4.21.3',
      arch: 'x86_64',
      repository: 'quay.io/openshift-release-dev/ocp-release',
    } as const;
    const request = { release, extraImages: [], output: join(made.folder, 'new'), trust: trust(), tool: 'test/1' };
    try {
      await createBundle({ ...request, dryRun: true, verifyExisting: false }, origin, makeContext());
    } finally {
      await origin.close();
    }
  };
  const open = async (use: (bundle: Awaited<ReturnType<typeof openBundle>>) => Promise<unknown>): Promise<void> => {
    const bundle = await openBundle(root, makeContext());
    try {
      await use(bundle);
    } finally {
      await bundle.close();
    }
  };

  const cases: readonly (readonly [title: string, signatures: readonly Signature[], expected: string])[] = [
    ['the right one', [{}], 'good'],
    ['none', [], 'unsigned'],
    ['by another key', [{ key: otherKey }], 'untrusted'],
    ['for another digest', [{ digest: digestOf('other') }], 'untrusted'],
    ['for another repository', [{ name: 'quay.io/openshift-release-dev/other' }], 'untrusted'],
    ['for another tag', [{ name: 'quay.io/openshift-release-dev/ocp-v4.0-art-dev:other' }], 'good'],
    ['two, of which one is right', [{ key: otherKey }, {}], 'good'],
    ['3 MB', [{ padding: 3_000_000 }], 'good'],
    ['more than 4 MiB', [{ padding: 5_000_000 }], 'untrusted'],
    ['two hundred, of which the last is right', [...Array<Signature>(199).fill({ key: otherKey }), {}], 'good'],
    ['more than a thousand', Array<Signature>(1001).fill({}), 'untrusted'],
    ['16 MiB in total', Array<Signature>(6).fill({ padding: 3_000_000 }), 'untrusted'],
    ['of a wrong media type', [{ mediaType: 'text/plain' }], 'unsigned'],
    ['truncated', [{ change: (signature) => signature.slice(0, -3) }], 'untrusted'],
  ];
  for (const [title, signatures, expected] of cases) {
    it(`is ${expected}: ${title}`, async () => {
      await attach(signatures);
      expect(await codeOf(create()), 'create').to.equal(expected);
      expect(await codeOf(open((bundle) => checkSigned(bundle, trust(), makeContext()))), 'use').to.equal(expected);
      let found = 'good';
      const verify = open(async (bundle) => {
        const { problems } = await verifyBundle(bundle, { trust: trust() }, makeContext());
        found = problems.find(({ subject }) => subject === 'signature')?.kind ?? 'good';
      });
      expect(await codeOf(verify), 'verify').to.equal('good');
      expect(found, 'verify').to.equal(expected);
    });
  }
});
