import type { SignaturesByDigest } from '#config/signatures';
import type { FetchFile } from '#content/http';
import { type Digest, sumSizes } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, nameSome, PluginError } from '#errors';
import type { SignedRelease } from '#release/load';
import type { Release } from '#release/release';
import {
  loadKeyring,
  type KeyMaterial,
  type VerifiedSignature,
  collectSignatures,
  verifyRelease,
} from '#release/signature';
import { checkReleaseImages, readerOf, type NamedResult } from '#release/sigstore';
import { describeRelease, metadataPath, type BundleMetadata } from '../metadata/metadata.ts';
import { listSignedImages } from '../metadata/originalNames.ts';
import { type Bundle, describeProblem, type Problem, entryKindOf } from './bundle.ts';

/** The keys, stores and options to verify a bundle with. */
export interface VerifyTrust {
  readonly keyrings: readonly string[];
  readonly fingerprints: readonly string[];
  /** Keys that are in no file, such as those of the agents of a cluster. */
  readonly keys?: readonly KeyMaterial[];
  readonly allowUnsigned: boolean;
  /** Refuse images that the release signature does not cover. */
  readonly requireSignedImages?: boolean;
  /** A signature store to ask if the bundle has no good signature; undefined asks none. */
  readonly store?: string;
  readonly fetchFile: FetchFile;
}

/** Returns problems for the images of a multi-architecture release that have signatures, but none by a trusted key. */
export function findUnsigned(
  release: Release | undefined,
  signaturesByDigest: SignaturesByDigest,
  good: readonly VerifiedSignature[],
  { allowUnsigned }: Pick<VerifyTrust, 'allowUnsigned'>,
): Problem[] {
  if (allowUnsigned) return [];
  return (release?.children ?? [])
    .filter(({ digest }) => signaturesByDigest.has(digest) && !good.some((each) => each.digest === digest))
    .map(({ digest }) => {
      const message = `${digest}, an image of the release, has signatures, but none by a trusted key`;
      return describeProblem('untrusted', 'signature', digest, message);
    });
}

/** Returns the valid signatures of other releases in a mirror directory with several releases. */
export async function verifyUntrusted(
  signaturesByDigest: SignaturesByDigest,
  own: ReadonlyMap<Digest, unknown>,
  releases: readonly Release[],
  trust: VerifyTrust,
  context: Context,
): Promise<VerifiedSignature[]> {
  const others = [...signaturesByDigest].filter(([digest]) => !own.has(digest));
  if (others.length === 0) return [];
  const keys = releases.flatMap((release) => release.verification.keys);
  const keyring = await loadKeyring(
    { files: trust.keyrings, others: [...(trust.keys ?? []), ...keys] },
    trust.fingerprints,
    context,
  );
  const good: VerifiedSignature[] = [];
  for (const [digest, list] of others) {
    const options = { keyring, known: list, fetchFile: trust.fetchFile };
    good.push(...(await collectSignatures(digest, options, context)).good);
  }
  return good;
}

/** A release of a bundle; `release` is undefined if its payload cannot be read. */
interface SignedSubject {
  readonly digest: Digest;
  readonly release: Release | undefined;
}

/**
 * Checks the signatures of each release of a bundle and of its images with trusted keys, which its payload may contain.
 * An image of a release needs no signature, but an existing one must be valid.
 */
export async function verifySignatures(
  bundle: Bundle,
  subjects: readonly SignedSubject[],
  signaturesByDigest: SignaturesByDigest,
  trust: VerifyTrust,
  context: Context,
): Promise<{ signatures: VerifiedSignature[]; problems: Problem[] }> {
  const ownOf = ({ digest, release }: SignedSubject): string[] => [
    digest,
    ...(release?.children ?? []).map((child) => child.digest),
  ];
  const all = new Set(subjects.flatMap(ownOf));
  const signatures: VerifiedSignature[] = [];
  const problems: Problem[] = [];
  for (const [index, subject] of subjects.entries()) {
    const own = new Set(ownOf(subject));
    const isLast = index === subjects.length - 1;
    const listed = Object.entries(bundle.metadata.signatures).filter(
      ([digest]) => own.has(digest) || (isLast && !all.has(digest)),
    );
    const metadata = { ...bundle.metadata, signatures: Object.fromEntries(listed) };
    const judged = await verifyRelated({ ...bundle, metadata }, subject, signaturesByDigest, trust, context);
    signatures.push(...judged.signatures);
    problems.push(...judged.problems);
  }
  return { signatures, problems };
}

async function verifyRelated(
  bundle: Bundle,
  { digest, release }: SignedSubject,
  signaturesByDigest: SignaturesByDigest,
  trust: VerifyTrust,
  context: Context,
): Promise<{ signatures: VerifiedSignature[]; problems: Problem[] }> {
  const others = [...(trust.keys ?? []), ...(release?.verification.keys ?? [])];
  const keyring = await loadKeyring({ files: trust.keyrings, others }, trust.fingerprints, context);
  const signatures: VerifiedSignature[] = [];
  const problems: Problem[] = [];
  const stores = trust.store === undefined ? [] : [trust.store];
  const options = { keyring, known: signaturesByDigest.get(digest) ?? [], stores, fetchFile: trust.fetchFile };
  try {
    signatures.push(...(await verifyRelease(digest, options, context)));
  } catch (error) {
    if (!isPluginError(error) || (error.code !== 'unsigned' && error.code !== 'untrusted')) throw error;
    if (trust.allowUnsigned) context.log('warn', `${error.message}; continuing, because unsigned releases are allowed`);
    else problems.push(describeProblem(error.code, 'signature', digest, error.message, error.hint));
  }
  for (const child of release?.children ?? []) {
    const own = signaturesByDigest.get(child.digest) ?? [];
    const { good } = await collectSignatures(child.digest, { ...options, known: own, stores: [] }, context);
    signatures.push(...good);
  }
  problems.push(...findUnsigned(release, signaturesByDigest, signatures, trust));
  return {
    signatures,
    problems: [
      ...problems,
      ...checkSignatures(bundle, release, signaturesByDigest, signatures, problems.length === 0 ? [] : [digest]),
    ],
  };
}

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

/**
 * Compares the signatures in metadata.json with the existing ones. The digests in `reported` already have a problem.
 */
function checkSignatures(
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
        ? contradiction(`lists a signature of ${digest}, which is not an image of this release`)
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

/**
 * Checks the images of each release of a bundle against the image policies of that release, offline. Throws the errors
 * of reading the bundle.
 */
export async function checkPolicies(
  bundle: Bundle,
  releases: readonly Pick<SignedRelease, 'release'>[],
  context: Context,
): Promise<NamedResult[]> {
  const images = listSignedImages(bundle, releases);
  const results: NamedResult[] = [];
  for (const [index, { release }] of releases.entries()) {
    if (release.imagePolicies.length === 0) continue;
    const reader = readerOf(() => bundle.content);
    results.push(...(await checkReleaseImages(images[index] ?? [], release.imagePolicies, reader, context.signal)));
  }
  return results;
}

/** Returns the images that a cluster would refuse, as problems. */
export function findRefusedImages(results: readonly NamedResult[]): Problem[] {
  return results.flatMap(({ name, image, policy, outcome, reasons }) => {
    if (outcome !== 'missing' && outcome !== 'rejected') return [];
    const message = `${name} (${image.digest}) has no valid sigstore signature: ${reasons.join('; ')}`;
    const hint =
      `Clusters refuse it by the policy ${policy.name} of the release. Create the bundle again from a repository ` +
      'with its signature.';
    const kind = outcome === 'missing' ? 'unsigned' : 'untrusted';
    return [{ ...describeProblem(kind, 'signature', image.digest, message, hint), images: [name] }];
  });
}

const hint = 'Create the bundle without extra images, or do not require that the signature covers all images.';

/** Returns the number of images that the release signature does not cover, in words; undefined if it covers all. */
export function describeExtraImages({ length }: readonly string[]): string | undefined {
  if (length === 0) return undefined;
  return `${length === 1 ? '1 image' : `${length} images`} not covered by the release signature`;
}

/** Returns the images of a bundle that the release signature does not cover, as problems. */
export function findExtraImages({ extraImages }: Pick<BundleMetadata, 'extraImages'>): Problem[] {
  return extraImages.map((image) =>
    describeProblem('unsigned', 'signature', image, `${image} is not covered by the release signature`, hint),
  );
}

/**
 * Throws `unsigned` if only signed images are allowed and the bundle has images that the release signature does not
 * cover.
 */
export function checkExtraImages({ path, metadata }: Bundle, { requireSignedImages }: VerifyTrust): void {
  const words = describeExtraImages(metadata.extraImages);
  if (requireSignedImages !== true || words === undefined) return;
  const more = metadata.extraImages.length > 5 ? ', …' : '';
  const named = metadata.extraImages.slice(0, 5).join(', ') + more;
  throw new PluginError('unsigned', `${path} has ${words}: ${named}`, {
    hint,
  });
}
