import { createHash, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { expect } from 'chai';
import { mediaTypes, parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readImagePolicy, type ImagePolicy } from '../../../lib/release/sigstore/imagePolicy.ts';
import { evaluateImage } from '../../../lib/release/sigstore/releaseCheck.ts';
import { emptyContent, startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { PolicyJudge } from '../../support/release/policyJudge.ts';

type Json = Record<string, unknown>;

/** A signature as a layer: the signed payload, the key, and the form of the layer. */
interface TestSignature {
  readonly payload: string;
  readonly key?: KeyObject;
  /** Replaces the signature of `key`. */
  readonly signature?: string | null;
  readonly mediaType?: string;
}

const [right, other] = [
  generateKeyPairSync('rsa', { modulusLength: 2048 }),
  generateKeyPairSync('ec', { namedCurve: 'P-256' }),
];

describe('evaluateImage', () => {
  let registry: TestRegistry;
  let host: string;
  let digest: Digest;
  let judge: PolicyJudge;
  let isJudged = false;

  before(async () => {
    registry = await startRegistry({ content: emptyContent() });
    host = new URL(registry.url).host;
    ({ manifest: digest } = putImage(registry.content, 'team/app', '1.0'));
    judge = await PolicyJudge.open();
    attach([signed(statement())]);
    isJudged = await judge.isAble(...subjectOf(policyWith()));
  });
  after(async () => {
    await registry.stop();
    await judge.close();
  });

  const statement = (changes: { digest?: string; name?: string; type?: string; optional?: unknown } = {}): Json => ({
    critical: {
      identity: { 'docker-reference': changes.name ?? `${host}/team/app:1.0` },
      image: { 'docker-manifest-digest': changes.digest ?? digest },
      type: changes.type ?? 'cosign container image signature',
    },
    optional: 'optional' in changes ? changes.optional : null,
  });
  const signed = (value: Json | string, more: Partial<TestSignature> = {}): TestSignature => ({
    payload: typeof value === 'string' ? value : JSON.stringify(value),
    ...more,
  });

  /** Replaces the signatures of the image. None removes the attachment. */
  function attach(signatures: readonly TestSignature[]): Buffer | undefined {
    const contents = new TestContent();
    const config = makeBlob(
      Buffer.from('{"architecture":"","os":"","config":{},"rootfs":{"type":"layers","diff_ids":[]}}'),
    );
    const layers = signatures.map(({ payload, key = right.privateKey, signature, mediaType }) => {
      const bytes = Buffer.from(payload);
      contents.addBlob(makeBlob(bytes));
      const own = signature === undefined ? sign('sha256', bytes, key).toString('base64') : signature;
      return {
        mediaType: mediaType ?? 'application/vnd.dev.cosign.simplesigning.v1+json',
        size: bytes.length,
        digest: digestOf(bytes),
        ...(own !== null && { annotations: { 'dev.cosignproject.cosign/signature': own } }),
      };
    });
    contents.addBlob(config);
    registry.content.repositories.get('team/app')?.tags.delete(`sha256-${hexOf(digest)}.sig`);
    if (signatures.length === 0) return undefined;
    const manifest = {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', size: config.size, digest: config.digest },
      layers,
    };
    contents.addManifest('team/app', mediaTypes.ociManifest, manifest, `sha256-${hexOf(digest)}.sig`);
    contents.addTo(registry.content);
    return Buffer.from(JSON.stringify(manifest, null, 3));
  }

  function policyWith(signedIdentity?: Json): ImagePolicy {
    const keyData = Buffer.from(right.publicKey.export({ type: 'spki', format: 'pem' })).toString('base64');
    const spec = {
      scopes: [`${host}/team`],
      policy: {
        rootOfTrust: { policyType: 'PublicKey', publicKey: { keyData } },
        ...(signedIdentity && { signedIdentity }),
      },
    };
    return readImagePolicy(
      { apiVersion: 'config.openshift.io/v1', kind: 'ClusterImagePolicy', metadata: { name: 'test' }, spec },
      'a test',
    );
  }

  async function ours(manifest: Buffer | undefined, policy: ImagePolicy, payloads: readonly string[]): Promise<string> {
    const image = { reference: { registry: host, repository: 'team/app' }, digest };
    const layers = manifest ? parseManifest(manifest, 'the attachment').layers : [];
    const content = new Map(payloads.map((payload) => [digestOf(Buffer.from(payload)), Buffer.from(payload)]));
    const readPayload = (layer: Descriptor) => Promise.resolve(content.get(layer.digest));
    return (await evaluateImage(image, policy, layers, readPayload)).outcome;
  }

  /** Returns the image and the policy for skopeo. */
  function subjectOf(policy: ImagePolicy, signedIdentity?: Json): Parameters<PolicyJudge['accepts']> {
    if (policy.trust.kind !== 'key') throw new Error('the policy has no key');
    const keyData = Buffer.from(policy.trust.key.key.export({ type: 'spki', format: 'pem' })).toString('base64');
    const rule = { type: 'sigstoreSigned', keyData, ...(signedIdentity && { signedIdentity }) };
    return [`docker://${host}/team/app@${digest}`, `${host}/team`, rule];
  }

  /** Expects a verdict of some signatures, and the same verdict of skopeo if it is installed. */
  async function compare(
    signatures: readonly TestSignature[],
    policy: ImagePolicy,
    expected: string,
    signedIdentity?: Json,
  ): Promise<void> {
    const manifest = attach(signatures);
    const payloads = signatures.map(({ payload }) => payload);
    expect(await ours(manifest, policy, payloads)).to.equal(expected);
    if (!isJudged) return;
    const accepted = await judge.accepts(...subjectOf(policy, signedIdentity));
    expect(accepted, 'skopeo').to.equal(expected === 'verified');
  }

  const cases: readonly (readonly [title: string, make: () => readonly TestSignature[], expected: string])[] = [
    ['the right signature', () => [signed(statement())], 'verified'],
    ['no signature', () => [], 'missing'],
    ['another key', () => [signed(statement(), { key: other.privateKey })], 'rejected'],
    ['another digest', () => [signed(statement({ digest: digestOf('other') }))], 'rejected'],
    ['another repository', () => [signed(statement({ name: `${host}/team/other:1.0` }))], 'rejected'],
    ['another registry', () => [signed(statement({ name: 'quay.io/team/app:1.0' }))], 'rejected'],
    ['another tag', () => [signed(statement({ name: `${host}/team/app:2.0` }))], 'verified'],
    ['a name by digest', () => [signed(statement({ name: `${host}/team/app@${digest}` }))], 'verified'],
    ['a name without a tag', () => [signed(statement({ name: `${host}/team/app` }))], 'rejected'],
    ['no name', () => [signed(statement({ name: '' }))], 'rejected'],
    [
      'two of which the second is right',
      () => [signed(statement({ digest: digestOf('x') })), signed(statement())],
      'verified',
    ],
    ['two of which none is right', () => [signed(statement({ digest: digestOf('x') })), signed('{}')], 'rejected'],
    [
      'creator and time',
      () => [signed(statement({ optional: { creator: 'a', timestamp: 1700000000, more: [1] } }))],
      'verified',
    ],
    ['a time with a fraction', () => [signed(statement({ optional: { timestamp: 1.5 } }))], 'rejected'],
    ['a creator that is a number', () => [signed(statement({ optional: { creator: 1 } }))], 'rejected'],
    ['optional fields that are a list', () => [signed(statement({ optional: [] }))], 'rejected'],
    ['a GPG statement', () => [signed(statement({ type: 'atomic container signature' }))], 'rejected'],
    ['a field more', () => [signed({ ...statement(), more: 1 })], 'rejected'],
    ['a field less', () => [signed({ critical: statement()['critical'] })], 'rejected'],
    ['a field twice', () => [signed(JSON.stringify(statement()).replace('{', '{"optional":null,'))], 'rejected'],
    ['text after the end', () => [signed(`${JSON.stringify(statement())} {}`)], 'rejected'],
    ['blanks around it', () => [signed(`\n ${JSON.stringify(statement(), null, 2)}\n`)], 'verified'],
    ['no JSON', () => [signed('signed')], 'rejected'],
    ['a wrong media type', () => [signed(statement(), { mediaType: 'application/octet-stream' })], 'missing'],
    ['no annotation', () => [signed(statement(), { signature: null })], 'rejected'],
    ['an empty signature', () => [signed(statement(), { signature: '' })], 'rejected'],
    ['a truncated signature', () => [cutSignature(-4)], 'rejected'],
    ['a signature cut within a group', () => [cutSignature(-1)], 'rejected'],
    ['a signature with line breaks', () => [breakSignature()], 'verified'],
    ['3 MB of payload', () => [signed(statement({ optional: { pad: 'x'.repeat(3_000_000) } }))], 'verified'],
    [
      'a hundred signatures, the last one right',
      () => [
        ...Array.from({ length: 99 }, (_, index) => signed(statement({ digest: digestOf(String(index)) }))),
        signed(statement()),
      ],
      'verified',
    ],
  ];

  const signatureOf = (payload: string): string =>
    sign('sha256', Buffer.from(payload), right.privateKey).toString('base64');
  function cutSignature(end: number): TestSignature {
    const own = signed(statement());
    return { ...own, signature: signatureOf(own.payload).slice(0, end) };
  }
  function breakSignature(): TestSignature {
    const own = signed(statement());
    return { ...own, signature: signatureOf(own.payload).replace(/(.{64})/g, '$1\n') };
  }

  for (const [title, make, expected] of cases) {
    it(`judges ${title} as containers/image does`, async () => {
      await compare(make(), policyWith(), expected);
    });
  }

  const names: readonly (readonly [
    title: string,
    rule: Json,
    skopeo: () => Json,
    name: () => string,
    expected: string,
  ])[] = [
    [
      'any tag of the repository',
      { matchPolicy: 'MatchRepository' },
      () => ({ type: 'matchRepository' }),
      () => `${host}/team/app`,
      'verified',
    ],
    [
      'an exact repository',
      { matchPolicy: 'ExactRepository', exactRepository: { repository: 'quay.io/a/b' } },
      () => ({ type: 'exactRepository', dockerRepository: 'quay.io/a/b' }),
      () => 'quay.io/a/b:1',
      'verified',
    ],
    [
      'another than the exact repository',
      { matchPolicy: 'ExactRepository', exactRepository: { repository: 'quay.io/a/b' } },
      () => ({ type: 'exactRepository', dockerRepository: 'quay.io/a/b' }),
      () => `${host}/team/app:1.0`,
      'rejected',
    ],
    [
      'a short name of docker.io',
      { matchPolicy: 'ExactRepository', exactRepository: { repository: 'docker.io/library/busybox' } },
      () => ({ type: 'exactRepository', dockerRepository: 'docker.io/library/busybox' }),
      () => 'busybox',
      'verified',
    ],
  ];
  for (const [title, rule, skopeo, name, expected] of names) {
    it(`judges the name by the policy: ${title}`, async () => {
      await compare([signed(statement({ name: name() }))], policyWith(rule), expected, skopeo());
    });
  }

  for (const [prefix, signedName, expected] of [
    ['team', 'quay.io/original/app:1.0', 'verified'],
    ['tea', 'quay.io/originalm/app:1.0', 'rejected'],
  ] as const) {
    it(`judges a name that is mapped from ${prefix}`, async () => {
      const remap = { prefix: `${host}/${prefix}`, signedPrefix: 'quay.io/original' };
      const policy = policyWith({ matchPolicy: 'RemapIdentity', remapIdentity: remap });
      const signatures = [signed(statement({ name: signedName }))];
      await compare(signatures, policy, expected, { type: 'remapIdentity', ...remap });
    });
  }

  it('leaves an image unchecked if its signature is in the base of a delta bundle', async () => {
    const manifest = attach([signed(statement())]);
    expect(await ours(manifest, policyWith(), [])).to.equal('unchecked');
  });

  it('takes ECDSA and Ed25519 keys', async () => {
    for (const { publicKey, privateKey } of [other, generateKeyPairSync('ed25519')]) {
      const own = signed(statement());
      const algorithm = privateKey.asymmetricKeyType === 'ed25519' ? null : 'sha256';
      const signature = sign(algorithm, Buffer.from(own.payload), privateKey).toString('base64');
      const base = policyWith();
      const spki = publicKey.export({ type: 'spki', format: 'der' });
      const fingerprint = createHash('sha256').update(spki).digest('hex');
      const policy: ImagePolicy = { ...base, trust: { kind: 'key', key: { key: publicKey, fingerprint } } };
      await compare([{ ...own, signature }], policy, 'verified');
    }
  });
});
