import { isDigest, type Digest } from '../../content/oci/digest.ts';
import { digestIn } from '../../content/oci/reference.ts';
import type { Bundle } from '../bundle.ts';
import type { BundledConfig } from '../bundledConfig.ts';
import { type SignatureRecord, splitReleases } from '../metadata.ts';

/** The signatures of a release image. */
export interface InspectedSignature {
  readonly digest: Digest;
  /**
   * `release`, or `4.19.12/release` of several releases; an image of a multi-architecture release:
   * `release for linux/arm64`.
   */
  readonly image: string;
  /** The signers of the good signatures when the bundle was created, by its metadata. */
  readonly signers: readonly SignatureRecord[];
  /** The number of signatures in the bundle’s configuration manifests. */
  readonly held: number;
  /** The first of these manifests. */
  readonly file?: string;
}

/** A release image with the platforms of its manifest list. */
interface NamedPayload {
  readonly subject: { readonly name: string; readonly digest: Digest };
  readonly walk: { readonly platforms: ReadonlyMap<Digest, string> };
}

/** Returns the names of release images, and of their images for single architectures, by digest. */
export function nameSigned(payloads: readonly NamedPayload[]) {
  return new Map(
    payloads.flatMap(({ subject: { name, digest }, walk: { platforms } }) => [
      [digest, name] as const,
      ...[...platforms].map(([child, platform]) => [child, `${name} for ${platform}`] as const),
    ]),
  );
}

/** Lists the signatures in the metadata and in the configuration of a bundle: those of releases first. */
export function listSignatures(
  bundle: Bundle,
  { files }: BundledConfig,
  names: ReadonlyMap<Digest, string>,
): InspectedSignature[] {
  const { signatures } = bundle.metadata;
  const held = new Map<Digest, { count: number; file: string }>();
  for (const { path, signatures: signaturesByDigest } of files) {
    for (const [digest, list] of signaturesByDigest) {
      const { count, file } = held.get(digest) ?? { count: 0, file: path };
      held.set(digest, { count: count + list.length, file });
    }
  }
  const releases = splitReleases(bundle.metadata).map(({ release }) => digestIn(release));
  const digests = new Set([...Object.keys(signatures).filter(isDigest), ...held.keys()]);
  return [...digests]
    .map((digest): InspectedSignature => {
      const image = names.get(digest) ?? 'another image';
      const { count = 0, file } = held.get(digest) ?? {};
      return { digest, image, signers: signatures[digest] ?? [], held: count, file };
    })
    .sort(
      (a, b) =>
        Number(releases.includes(b.digest)) - Number(releases.includes(a.digest)) || (a.image < b.image ? -1 : 1),
    );
}
