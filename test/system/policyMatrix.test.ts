import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createBundle } from '../../lib/bundle/create.ts';
import { openLocalProvider } from '../../lib/bundle/create/releaseProvider.ts';
import { identifyBundle } from '../../lib/bundle/open/identity.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { verifyBundle } from '../../lib/bundle/verify.ts';
import { digestOf, type Digest } from '../../lib/content/oci/reference.ts';
import { Credentials } from '../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../lib/content/registry/mirrors.ts';
import { releaseRepository } from '../../lib/content/store/directory.ts';
import { isPluginError } from '../../lib/errors.ts';
import { BundleCache } from '../../lib/update/agent/bundleCache.ts';
import { repositoryOf, startRegistry, type TestRegistry } from '../fakes/registry/registry.ts';
import { repack } from '../support/archive/repack.ts';
import { storageIn } from '../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { runProgram } from '../support/content/creation.ts';
import { makeContext } from '../support/context.ts';
import { hasPeer } from '../support/peers.ts';
import { attachmentKey, attachmentTag } from '../support/release/attachments.ts';
import { imagePolicyFiles } from '../support/release/imagePolicy.ts';
import { PolicyJudge } from '../support/release/policyJudge.ts';
import {
  makeAttachment,
  signatureCases,
  type AttachmentBytes,
  type SignatureCase,
} from '../support/release/signatureCases.ts';
import { acceptUnsigned } from '../support/release/trust.ts';

describe('a sigstore signature, in each use of a bundle', () => {
  let made: TestBundle;
  let image: Digest;
  let registry: TestRegistry;
  let judge: PolicyJudge;
  let isJudged: boolean;

  before(async () => {
    const files = imagePolicyFiles();
    made = await makeBundle({ version: '4.21.3', components: ['etcd'], attachments: () => true, files });
    image = made.release.images.get('etcd')?.digest ?? made.release.digest;
    registry = await startRegistry();
    made.release.addTo(registry.content);
    judge = await PolicyJudge.open();
    isJudged = await judge.isAble(...subject());
  });
  after(async () => {
    await registry.stop();
    await judge.close();
    await made.remove();
  });

  /** Returns the image and the policy of the release for skopeo. */
  function subject(): Parameters<PolicyJudge['accepts']> {
    const { componentRepository: repository } = made.release;
    const keyData = Buffer.from(attachmentKey).toString('base64');
    const rule = { type: 'sigstoreSigned', keyData, signedIdentity: { type: 'matchRepository' } };
    return [`docker://quay.io/${repository}@${image}`, 'quay.io/openshift-release-dev', rule, registry.host];
  }

  /** Copies the bundle with another attachment of the image. */
  function bundleWith(attachment: AttachmentBytes | undefined): Promise<string> {
    const root = `v2/${releaseRepository}`;
    return repack(made.path, join(made.folder, 'case.tar'), (bundle) => {
      const { files, metadata } = bundle;
      files.delete(`${root}/manifests/${attachmentTag(image)}`);
      if (!attachment) return;
      const own = attachment.blobs.map((blob) => [digestOf(blob), blob.length] as const);
      const blobs = new Map([...metadata.blobs.map(({ digest, size }) => [digest, size] as const), ...own]);
      bundle.metadata = { ...metadata, blobs: [...blobs].map(([digest, size]) => ({ digest, size })) };
      const digest = digestOf(attachment.manifest);
      files.set(`${root}/manifests/${digest}`, attachment.manifest);
      files.set(`${root}/manifests/${attachmentTag(image)}`, digest);
      for (const blob of attachment.blobs) files.set(`${root}/blobs/${digestOf(blob)}`, blob);
    });
  }

  function publish(attachment: AttachmentBytes | undefined): void {
    const { manifests, tags } = repositoryOf(registry.content, made.release.componentRepository);
    tags.delete(attachmentTag(image));
    if (!attachment) return;
    const { manifest: bytes, blobs } = attachment;
    manifests.set(digestOf(bytes), { mediaType: 'application/vnd.oci.image.manifest.v1+json', bytes });
    tags.set(attachmentTag(image), digestOf(bytes));
    for (const blob of blobs) registry.content.blobs.set(digestOf(blob), blob);
  }

  const trust = () => ({
    ...acceptUnsigned,
    keyrings: [made.keyFile],
    fingerprints: [made.key.fingerprint],
    allowUnsigned: false,
  });

  async function create(path: string): Promise<void> {
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    await using origin = await openLocalProvider(
      path,
      { settings, credentials, mirrors: new MirrorSets() },
      makeContext(),
    );
    const repository = 'quay.io/openshift-release-dev/ocp-release';
    const release = { version: '4.21.3', arch: 'x86_64', repository } as const;
    const request = { extraImages: [], output: join(made.folder, 'new'), trust: trust(), tool: 'test/1' };
    await createBundle({ ...request, releases: [release], dryRun: true, verifyExisting: false }, origin, makeContext());
  }

  async function verify(path: string): Promise<string> {
    await using bundle = await openBundle(path, makeContext());
    const { problems } = await verifyBundle(bundle, { trust: trust() }, makeContext());
    return problems.find(({ subject: of }) => of === 'signature')?.kind ?? 'good';
  }

  /** Verifies a bundle as the agent of a node does before it loads the images. */
  async function useOnNode(path: string): Promise<void> {
    const cache = new BundleCache(made.folder, trust());
    const found = { path, device: made.folder };
    const { bundle } = await cache.verify(found, digestOf(await readFile(path)), makeContext());
    await bundle[Symbol.asyncDispose]();
  }

  async function codeOf(action: Promise<unknown>): Promise<string> {
    try {
      await action;
      return 'good';
    } catch (error) {
      if (!isPluginError(error)) throw error;
      return error.code;
    }
  }

  async function runCommand(verb: string, args: readonly string[], env?: NodeJS.ProcessEnv): Promise<string> {
    const given = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const { code, stdout, stderr } = await runProgram(made.folder, verb, [...args, ...given, '-o=json'], env);
    if (code === 0) {
      const { sigstore } = JSON.parse(stdout) as { sigstore: { name: string; outcome: string }[] };
      return sigstore.some(({ name, outcome }) => name === 'etcd' && outcome === 'verified') ? 'good' : stdout;
    }
    return stderr.includes(': 1 image has no valid sigstore signature: etcd\n') ? 'refused' : stderr;
  }

  /** Loads the image. A store that has it already is kept, which saves most of the time. */
  async function load(path: string, { expected }: SignatureCase): Promise<string> {
    if (!hasPeer('skopeo') || process.getuid?.() !== 0) return expected === 'good' ? expected : 'refused';
    return runCommand('load', [path, '--images=etcd'], await storageIn(made.folder));
  }

  for (const each of signatureCases) {
    it(`is ${each.expected}: ${each.title}`, async () => {
      const attachment = makeAttachment(image, each.signatures);
      const path = await bundleWith(attachment);
      const results = {
        create: await codeOf(create(path)),
        verify: await verify(path),
        apply: await codeOf(identifyBundle(path, trust(), makeContext())),
        agent: await codeOf(useOnNode(path)),
        load: await load(path, each),
        push: await runCommand('push', [path, `--to=${registry.host}/pushed`, '--insecure']),
      };
      const [code, words] = [each.expected, each.expected === 'good' ? 'good' : 'refused'];
      expect(results).to.deep.equal({ create: code, verify: code, apply: code, agent: code, load: words, push: words });
      if (!isJudged) return;
      publish(attachment);
      const isGood = each.expected === 'good' || each.isStricter === true;
      expect(await judge.accepts(...subject()), 'skopeo').to.equal(isGood);
    });
  }
});
