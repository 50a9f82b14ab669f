import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { attachmentPrivateKey } from './attachments.ts';

/** A signature of an image; by default the right one. */
interface Signature {
  /** The name of the image in the signature. */
  readonly name?: string;
  readonly digest?: Digest;
  readonly key?: KeyObject;
  /** Characters of an optional field. */
  readonly padding?: number;
  readonly mediaType?: string;
  readonly change?: (signature: string) => string;
}

/** The signatures of an image, and the expected result: an error code, or `good`. */
export interface SignatureCase {
  readonly title: string;
  readonly signatures: readonly Signature[];
  readonly expected: 'good' | 'unsigned' | 'untrusted';
  /** Clusters accept it; the limits of this program refuse it. */
  readonly isStricter?: true;
}

/** The bytes of a sigstore attachment. */
export interface AttachmentBytes {
  readonly manifest: Buffer;
  /** The payloads and the configuration. */
  readonly blobs: readonly Buffer[];
}

const repository = 'quay.io/openshift-release-dev/ocp-v4.0-art-dev';
const otherKey = generateKeyPairSync('ed25519').privateKey;

/** The cases of an image of a test release, with a policy that accepts any tag of its repository. */
export const signatureCases: readonly SignatureCase[] = [
  { title: 'the right one', signatures: [{}], expected: 'good' },
  { title: 'none', signatures: [], expected: 'unsigned' },
  { title: 'by another key', signatures: [{ key: otherKey }], expected: 'untrusted' },
  { title: 'for another digest', signatures: [{ digest: digestOf('other') }], expected: 'untrusted' },
  { title: 'for another repository', signatures: [{ name: `${repository}-2` }], expected: 'untrusted' },
  { title: 'for another tag', signatures: [{ name: `${repository}:other` }], expected: 'good' },
  { title: 'two, of which one is right', signatures: [{ key: otherKey }, {}], expected: 'good' },
  { title: '3 MB', signatures: [{ padding: 3_000_000 }], expected: 'good' },
  { title: 'more than 4 MiB', signatures: [{ padding: 5_000_000 }], expected: 'untrusted' },
  {
    title: 'a thousand, of which the last is right',
    signatures: [...Array<Signature>(999).fill({ key: otherKey }), {}],
    expected: 'good',
  },
  {
    title: 'more than a thousand',
    signatures: Array<Signature>(1001).fill({}),
    expected: 'untrusted',
    isStricter: true,
  },
  {
    title: 'more than 16 MiB in total',
    signatures: Array<Signature>(6).fill({ padding: 3_000_000 }),
    expected: 'untrusted',
    isStricter: true,
  },
  { title: 'of a wrong media type', signatures: [{ mediaType: 'text/plain' }], expected: 'unsigned' },
  {
    title: 'truncated base64',
    signatures: [{ change: (signature) => signature.slice(0, -3) }],
    expected: 'untrusted',
  },
  {
    title: 'a truncated signature',
    signatures: [{ change: (signature) => signature.slice(0, -4) }],
    expected: 'untrusted',
  },
];

/** Returns the attachment of an image with some signatures; undefined for none. */
export function makeAttachment(image: Digest, signatures: readonly Signature[]): AttachmentBytes | undefined {
  if (signatures.length === 0) return undefined;
  const config = Buffer.from('{"architecture":"","os":"","config":{},"rootfs":{"type":"layers","diff_ids":[]}}');
  const layers = signatures.map(({ name, digest, key, padding, mediaType, change }) => {
    const payload = Buffer.from(
      JSON.stringify({
        critical: {
          identity: { 'docker-reference': name ?? repository },
          image: { 'docker-manifest-digest': digest ?? image },
          type: 'cosign container image signature',
        },
        optional: padding === undefined ? null : { padding: 'x'.repeat(padding) },
      }),
    );
    const signature = sign(null, payload, key ?? attachmentPrivateKey).toString('base64');
    const annotations = { 'dev.cosignproject.cosign/signature': change?.(signature) ?? signature };
    return { payload, mediaType: mediaType ?? 'application/vnd.dev.cosign.simplesigning.v1+json', annotations };
  });
  const describe = (bytes: Buffer): object => ({ digest: digestOf(bytes), size: bytes.length });
  const manifest = {
    schemaVersion: 2,
    mediaType: mediaTypes.ociManifest,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...describe(config) },
    layers: layers.map(({ payload, ...rest }) => ({ ...rest, ...describe(payload) })),
  };
  return { manifest: Buffer.from(JSON.stringify(manifest)), blobs: [config, ...layers.map(({ payload }) => payload)] };
}
