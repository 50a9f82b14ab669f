import { createHash, createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { mediaTypes, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import type { TestContent } from '../content/image.ts';
import { makeBlob, type TestBlob } from '../content/layers.ts';

// An Ed25519 key from fixed bytes (RFC 8410's PKCS #8 frame), so that signatures and their digests
// never change.
/** The key of all test attachments. */
export const attachmentPrivateKey = createPrivateKey({
  key: Buffer.concat([
    Buffer.from('302e020100300506032b657004220420', 'hex'),
    createHash('sha256').update('test attachments').digest(),
  ]),
  format: 'der',
  type: 'pkcs8',
});

/** The PEM public key of all test attachments. */
export const attachmentKey = createPublicKey(attachmentPrivateKey).export({ format: 'pem', type: 'spki' });

/** Returns the tag of an image's sigstore attachment. */
export function attachmentTag(digest: Digest): string {
  return `sha256-${hexOf(digest)}.sig`;
}

/**
 * Adds a sigstore signature of an image in the form of cosign: an OCI image with the tag `sha256-<hex>.sig`. Its layer
 * is the signed statement, and its annotation the signature.
 */
export function addAttachment(
  contents: TestContent,
  image: { registry: string; repository: string; digest: Digest },
): void {
  const { registry, repository, digest } = image;
  const statement = makeBlob(
    Buffer.from(
      JSON.stringify({
        critical: {
          identity: { 'docker-reference': `${registry}/${repository}` },
          image: { 'docker-manifest-digest': digest },
          type: 'cosign container image signature',
        },
        optional: null,
      }),
    ),
  );
  const config = makeBlob(
    Buffer.from(
      JSON.stringify({
        architecture: '',
        created: '0001-01-01T00:00:00Z',
        history: [{ created: '0001-01-01T00:00:00Z' }],
        os: '',
        rootfs: { type: 'layers', diff_ids: [statement.digest] },
        config: {},
      }),
    ),
  );
  contents.addBlob(statement);
  contents.addBlob(config);
  contents.addManifest(
    repository,
    mediaTypes.ociManifest,
    {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', size: config.size, digest: config.digest },
      layers: [
        {
          mediaType: 'application/vnd.dev.cosign.simplesigning.v1+json',
          size: statement.size,
          digest: statement.digest,
          annotations: {
            'dev.cosignproject.cosign/signature': sign(null, statement.read(), attachmentPrivateKey).toString('base64'),
          },
        },
      ],
    },
    attachmentTag(digest),
  );
}

/**
 * Adds content that no cluster requires: an attestation and an SBOM by their tags, and a referrer (OCI 1.1) with the
 * list that registries without the API need.
 */
export function addSupplements(contents: TestContent, image: { repository: string; digest: Digest }): Descriptor {
  const { repository, digest } = image;
  const add = (type: string, more: object, tag?: string): Descriptor => {
    const [layer, config] = [makeBlob(Buffer.from(`${type} of ${digest}`)), makeBlob(Buffer.from('{}'))];
    for (const blob of [layer, config]) contents.addBlob(blob);
    const describe = ({ size, digest: own }: TestBlob) => ({ size, digest: own });
    const manifest = {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.empty.v1+json', ...describe(config) },
      layers: [{ mediaType: type, ...describe(layer) }],
      ...more,
    };
    return contents.addManifest(repository, mediaTypes.ociManifest, manifest, tag);
  };
  add('application/vnd.dsse.envelope.v1+json', {}, attachmentTag(digest).replace('.sig', '.att'));
  add('text/spdx+json', {}, attachmentTag(digest).replace('.sig', '.sbom'));
  const artifactType = 'application/vnd.dev.sigstore.bundle.v0.3+json';
  const subject = { mediaType: mediaTypes.dockerManifest, digest, size: 1 };
  const referrer = add(artifactType, {
    artifactType,
    subject,
    annotations: { 'org.opencontainers.image.created': 'today' },
  });
  addReferrersTag(contents, image, [{ ...referrer, artifactType }]);
  return referrer;
}

/** Adds the tag that lists the referrers of an image. */
export function addReferrersTag(
  contents: TestContent,
  { repository, digest }: { repository: string; digest: Digest },
  manifests: readonly object[],
): void {
  const list = { schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests };
  contents.addManifest(repository, mediaTypes.ociIndex, list, attachmentTag(digest).replace('.sig', ''));
}
