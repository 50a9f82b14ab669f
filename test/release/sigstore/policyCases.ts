import 'reflect-metadata';
import { createPublicKey, sign, type KeyObject } from 'node:crypto';
import { expect } from 'chai';
import { mediaTypes, parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readImagePolicy } from '../../../lib/release/sigstore/imagePolicy.ts';
import { evaluateImage } from '../../../lib/release/sigstore/releaseCheck.ts';
import { emptyContent, startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { PolicyJudge } from '../../support/release/policyJudge.ts';
import {
  makeEntry,
  signerExtensions,
  type EntryOptions,
  type SignerOptions,
} from '../../support/release/sigstoreSigner.ts';
import {
  authorityExtensions,
  makeCertificate,
  makeKey,
  usages,
  type CertificateOptions,
  type TestCertificate,
} from '../../support/x509.ts';

/** An object of a policy. */
export type Json = Record<string, unknown>;
type Kind = 'key' | 'fulcio' | 'pki';

/** What differs from the right signature by a policy. */
export interface Case {
  readonly kind: Kind;
  readonly signer?: SignerOptions;
  readonly leaf?: CertificateOptions;
  readonly intermediate?: CertificateOptions;
  /** The certificates of the chain annotation; none for null. */
  readonly chain?: ((intermediate: string, root: string) => string) | null;
  readonly entry?: EntryOptions;
  /** Values of the policy in the form of skopeo. */
  readonly rule?: Json;
  readonly annotations?: (annotations: Record<string, string>) => Record<string, string>;
  readonly optional?: string;
  readonly key?: KeyObject;
  readonly sign?: (payload: Buffer, key: KeyObject) => Buffer;
  readonly name?: string;
  readonly isUnsigned?: true;
  /** Nodes accept it; this program refuses it. */
  readonly isStricter?: true;
}

/** Encodes text or bytes. */
export const base64 = (text: string | Buffer): string => Buffer.from(text).toString('base64');
/** Returns the public key of a private one, in PEM. */
export const pemOf = (key: KeyObject): string => createPublicKey(key).export({ type: 'spki', format: 'pem' });
/** Returns a change that leaves an annotation out. */
export const without = (key: string) => (all: Record<string, string>) =>
  Object.fromEntries(Object.entries(all).filter(([name]) => name !== key));
/** The annotation with the entry of a Rekor log. */
export const setNotation = 'dev.sigstore.cosign/bundle';
/** The annotation with the certificate of the signer. */
export const certificateNotation = 'dev.sigstore.cosign/certificate';
/** The annotation with the certificates of its issuers. */
export const chainNotation = 'dev.sigstore.cosign/chain';
/** Signs in the form of two numbers one after the other. */
export const plainForm = (payload: Buffer, key: KeyObject): Buffer =>
  sign('sha256', payload, { key, dsaEncoding: 'ieee-p1363' });
/** Adds zeros before both numbers. */
export const widen = (signature: Buffer, by: number): Buffer => {
  const half = signature.length / 2;
  return Buffer.concat([Buffer.alloc(by), signature.subarray(0, half), Buffer.alloc(by), signature.subarray(half)]);
};

/** Prepares signatures of an image, and policies that accept or refuse them. Each verdict is a test of its own. */
export function usePolicyCases() {
  let registry: TestRegistry;
  let host: string;
  let digest: Digest;
  let judge: PolicyJudge;
  let isJudged = false;
  let root: TestCertificate;
  let otherRoot: TestCertificate;
  let shortRoot: TestCertificate;
  let middle: TestCertificate;
  /** Authorities of one name and one key, so that each may have issued each other. */
  let circle: TestCertificate[];
  const [logKey, otherKey] = [makeKey(), makeKey()];
  const counts = { accepted: 0, refused: 0, stricter: 0 };

  before(async () => {
    registry = await startRegistry({ content: emptyContent() });
    host = new URL(registry.url).host;
    ({ manifest: digest } = putImage(registry.content, 'team/app', '1.0'));
    judge = await PolicyJudge.open();
    root = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions() });
    otherRoot = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions() });
    middle = await makeCertificate({ name: 'CN=middle', by: root, extensions: authorityExtensions() });
    shortRoot = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions(0) });
    const key = makeKey();
    const inCircle = Array.from({ length: 16 }, () =>
      makeCertificate({ name: 'CN=circle', key, extensions: authorityExtensions() }),
    );
    circle = await Promise.all(inCircle);
    const { rule } = await attach({ kind: 'key' });
    isJudged = await judge.isAble(source(), `${host}/team`, rule);
  });
  after(async () => {
    await registry.stop();
    await judge.close();
    if (isJudged) console.info(`      beside skopeo: ${JSON.stringify(counts)}`);
  });

  const source = (): string => `docker://${host}/team/app@${digest}`;

  /** Puts a signature of the image into the registry. Returns its parts, and the policy for skopeo. */
  async function attach(own: Case): Promise<{ rule: Json; layers: readonly Descriptor[]; payload: Buffer }> {
    const { kind, optional = 'null' } = own;
    const intermediate = await makeCertificate({
      name: 'CN=intermediate',
      by: root,
      extensions: authorityExtensions(0, [usages.code]),
      ...own.intermediate,
    });
    const key = own.key ?? own.leaf?.key ?? makeKey();
    const leaf = await makeCertificate({
      name: 'CN=leaf',
      by: intermediate,
      from: -60,
      // A certificate of Fulcio must be valid at the time of its entry only, and another one now.
      until: kind === 'pki' ? 86_400 : 540,
      extensions: signerExtensions(own.signer),
      ...(kind !== 'key' && { key }),
      ...own.leaf,
    });
    const name = own.name ?? `${host}/team/app:1.0`;
    const critical = {
      identity: { 'docker-reference': name },
      image: { 'docker-manifest-digest': digest },
      type: 'cosign container image signature',
    };
    const payload = Buffer.from(`{"critical":${JSON.stringify(critical)},"optional":${optional}}`);
    const algorithm = key.asymmetricKeyType === 'ed25519' || key.asymmetricKeyType === 'ed448' ? null : 'sha256';
    const signature = base64(own.sign?.(payload, key) ?? sign(algorithm, payload, key));
    const pem = kind === 'key' ? pemOf(key) : leaf.pem;
    const chain = own.chain === null ? undefined : (own.chain ?? ((a, b) => a + b))(intermediate.pem, root.pem);
    const right = {
      'dev.cosignproject.cosign/signature': signature,
      ...(kind !== 'pki' && {
        [setNotation]: makeEntry(logKey, { pem, signature, payload: String(payload) }, own.entry),
      }),
      ...(kind !== 'key' && { [certificateNotation]: pem }),
      ...(kind !== 'key' && chain !== undefined && { [chainNotation]: chain }),
    };
    const annotations = own.annotations?.(right) ?? right;
    const trust = {
      key: { keyData: base64(pemOf(key)) },
      fulcio: {
        fulcio: {
          caData: base64(root.pem),
          oidcIssuer: 'https://login.example.com',
          subjectEmail: 'signer@example.com',
        },
        rekorPublicKeyData: base64(pemOf(logKey)),
      },
      pki: { pki: { caRootsData: base64(root.pem), subjectEmail: 'signer@example.com' } },
    }[kind];
    const rule = { type: 'sigstoreSigned', ...trust, ...own.rule };
    const layer = { mediaType: 'application/vnd.dev.cosign.simplesigning.v1+json', size: payload.length, annotations };
    return {
      rule,
      payload,
      layers: putAttachment(payload, own.isUnsigned ? [] : [{ ...layer, digest: digestOf(payload) }]),
    };
  }

  function putAttachment(payload: Buffer, layers: readonly object[]): readonly Descriptor[] {
    const tag = `sha256-${hexOf(digest)}.sig`;
    registry.content.repositories.get('team/app')?.tags.delete(tag);
    if (layers.length === 0) return [];
    const contents = new TestContent();
    const config = makeBlob(Buffer.from('{"rootfs":{"type":"layers","diff_ids":[]}}'));
    contents.addBlob(config);
    contents.addBlob(makeBlob(payload));
    const manifest = {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', size: config.size, digest: config.digest },
      layers,
    };
    contents.addManifest('team/app', mediaTypes.ociManifest, manifest, tag);
    contents.addTo(registry.content);
    return parseManifest(Buffer.from(JSON.stringify(manifest)), 'the attachment').layers;
  }

  /** Converts a policy of skopeo to one of OpenShift, as the Machine Config Operator does the other way. */
  function toRootOfTrust(rule: Json): Json {
    const { keyData, rekorPublicKeyData: rekorKeyData, fulcio, pki } = rule as Record<string, Json | undefined>;
    if (fulcio) {
      const { caData, oidcIssuer, subjectEmail } = fulcio;
      const fulcioSubject = { oidcIssuer, signedEmail: subjectEmail };
      return {
        policyType: 'FulcioCAWithRekor',
        fulcioCAWithRekor: { fulcioCAData: caData, rekorKeyData, fulcioSubject },
      };
    }
    if (!pki) return { policyType: 'PublicKey', publicKey: { keyData, rekorKeyData } };
    const { caRootsData, caIntermediatesData, subjectEmail, subjectHostname } = pki;
    const pkiCertificateSubject = { email: subjectEmail, hostname: subjectHostname };
    return { policyType: 'PKI', pki: { caRootsData, caIntermediatesData, pkiCertificateSubject } };
  }

  const identities: Readonly<Record<string, Json>> = {
    matchRepository: { matchPolicy: 'MatchRepository' },
    exactRepository: { matchPolicy: 'ExactRepository', exactRepository: { repository: 'docker.io/team/app' } },
  };

  function expectVerdict(title: string, expected: string, make: () => Case): void {
    it(`${title}: ${expected}`, async () => {
      const own = make();
      const { rule, layers, payload } = await attach(own);
      const identity = (rule['signedIdentity'] as Json | undefined)?.['type'];
      const policy = readImagePolicy(
        {
          apiVersion: 'config.openshift.io/v1',
          kind: 'ClusterImagePolicy',
          metadata: { name: 'test' },
          spec: {
            scopes: [`${host}/team`],
            policy: {
              rootOfTrust: toRootOfTrust(rule),
              ...(typeof identity === 'string' && { signedIdentity: identities[identity] }),
            },
          },
        },
        'a test',
      );
      const image = { reference: { registry: host, repository: 'team/app' }, digest };
      const { outcome, reasons } = await evaluateImage(image, policy, layers, () => Promise.resolve(payload));
      expect(outcome, reasons.join('; ')).to.equal(expected);
      if (!isJudged) return;
      const isAccepted = await judge.accepts(source(), `${host}/team`, rule);
      if (own.isStricter) counts.stricter += 1;
      else counts[isAccepted ? 'accepted' : 'refused'] += 1;
      expect(isAccepted, `skopeo; ours: ${reasons.join('; ')}`).to.equal(own.isStricter ?? expected === 'verified');
    });
  }

  const accept = (title: string, make: () => Case): void => expectVerdict(title, 'verified', make);
  const refuse = (title: string, make: () => Case): void => expectVerdict(title, 'rejected', make);
  const miss = (title: string, make: () => Case): void => expectVerdict(title, 'missing', make);
  const rekorRule = (key: KeyObject = logKey): Json => ({ rekorPublicKeyData: base64(pemOf(key)) });

  return {
    expectVerdict,
    accept,
    refuse,
    miss,
    rekorRule,
    logKey,
    otherKey,
    /** The certificates of authorities, once the tests run. */
    authorities: () => ({ root, otherRoot, shortRoot, middle, circle }),
  };
}
