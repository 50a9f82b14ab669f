import type { SignaturesByDigest } from '../config/signatures.ts';
import { nameSome } from '../failures.ts';
import { sumSizes } from '../content/oci/descriptor.ts';
import type { Digest } from '../content/oci/digest.ts';
import type { Release } from '../release/release.ts';
import type { VerifiedSignature } from '../release/signature/signature.ts';
import { entryKindOf } from './entryKind.ts';
import { describeRelease } from './metadataFacts.ts';
import { metadataPath, type BundleMetadata } from './metadata.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';

/** Compares metadata.json with the signed payload of the release. */
export function checkReleaseFacts(metadata: BundleMetadata, release: Release): Problem[] {
  const facts = describeRelease({ release, signatures: new Map() }, metadata.extraImages, metadata.tool);
  const words = (['version', 'arch'] as const)
    .filter((field) => facts[field] !== metadata[field])
    .map((field) => `says ${field} ${metadata[field]}, and the release is ${facts[field]}`);
  const components = Object.entries({ ...metadata.components, ...facts.components }).flatMap(([name]) => {
    const stated = metadata.components[name];
    const actual = facts.components[name];
    if (stated === actual) return [];
    if (stated === undefined) return [`leaves out the component ${name}`];
    if (actual === undefined) return [`names a component ${name}, which the release does not have`];
    return [`gives the component ${name} another image than the release does: ${stated} instead of ${actual}`];
  });
  // Differences among the components are already reported.
  const lists = components.length > 0 ? (['previous'] as const) : (['images', 'osImages', 'previous'] as const);
  const others = lists.flatMap((field) => compareLists(field, metadata[field], facts[field]));
  return [...words, ...components, ...others].map(contradiction);
}

/**
 * Compares the sizes and the blobs in metadata.json with the entries of a tar, without reading them. None for a
 * directory, which may have more blobs.
 */
export function checkListing({ form, metadata, files, size, isRepacked }: Bundle): Problem[] {
  if (form !== 'tar') return [];
  const { blobs, base, releases } = metadata;
  const listed = blobs.map((blob) => `${blob.digest} of ${blob.size} bytes`);
  const actual = files.flatMap((file) => {
    const kind = entryKindOf(file);
    return kind.kind === 'blob' ? [`${kind.digest} of ${file.size} bytes`] : [];
  });
  const added = releases?.reduce((total, { bytes }) => total + bytes, 0);
  const whole = sumSizes([...blobs, ...(base?.blobs ?? [])]);
  return [
    ...(isRepacked || metadata.size === size
      ? []
      : [`says that the tar has ${metadata.size} bytes, and it has ${size}`]),
    ...compareLists('blobs', listed, actual),
    ...(added === undefined || added === whole
      ? []
      : [`says that the releases add ${added} bytes, and the blobs have ${whole}`]),
  ].map(contradiction);
}

/**
 * Compares the blobs in metadata.json, with those of the base, with the blobs that the images need. Sizes are in bytes.
 */
export function checkBlobs({ blobs, base }: BundleMetadata, needed: ReadonlyMap<Digest, number>): Problem[] {
  const listed = [...blobs, ...(base?.blobs ?? [])].map(({ digest, size }) => `${digest} of ${size} bytes`);
  const actual = [...needed].map(([digest, size]) => `${digest} of ${size} bytes`);
  return compareLists('blobs', listed, actual).map(contradiction);
}

/** Compares the signatures in metadata.json with the existing ones. The digests in `reported` already have a problem. */
export function checkSignatures(
  { described, metadata }: Pick<Bundle, 'described' | 'metadata'>,
  release: Release | undefined,
  signaturesByDigest: SignaturesByDigest,
  good: readonly VerifiedSignature[],
  reported: readonly Digest[],
): Problem[] {
  const inRelease = release && new Set<string>([release.digest, ...release.children.map(({ digest }) => digest)]);
  const absent = Object.keys(metadata.signatures).filter(
    (digest) => !signaturesByDigest.has(digest as Digest) && !reported.includes(digest as Digest),
  );
  const unlisted = good.filter(
    ({ digest, fingerprint, bytes }) =>
      described &&
      signaturesByDigest.get(digest)?.some((each) => each.equals(bytes)) &&
      !metadata.signatures[digest]?.some((record) => record.fingerprint === fingerprint),
  );
  return [
    ...absent.map((digest) =>
      inRelease?.has(digest) === false
        ? contradiction(`lists a signature of ${digest}, which is no image of this release`)
        : describeProblem(
            'missing',
            'signature',
            digest,
            `a signature of ${digest} is missing, which ${metadataPath} lists`,
          ),
    ),
    ...unlisted.map(({ digest, fingerprint }) =>
      contradiction(`does not say that ${digest} is signed by ${fingerprint}, as it is`),
    ),
  ];
}

function compareLists(field: string, stated: readonly string[], actual: readonly string[]): string[] {
  const has = new Set(stated);
  const needs = new Set(actual);
  const lacking = [...needs].filter((each) => !has.has(each));
  const extra = [...has].filter((each) => !needs.has(each));
  return [
    ...(lacking.length > 0 ? [`leaves out of ${field}: ${nameSome(lacking)}`] : []),
    ...(extra.length > 0 ? [`has in ${field} what the release does not: ${nameSome(extra)}`] : []),
    ...(stated.length > has.size && actual.length === needs.size ? [`lists some of ${field} twice`] : []),
  ];
}

function contradiction(words: string): Problem {
  return describeProblem('inconsistent', 'metadata', metadataPath, `${metadataPath} ${words}`);
}
