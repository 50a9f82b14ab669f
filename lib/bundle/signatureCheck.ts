import type { SignaturesByDigest } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError } from '../errors.ts';
import type { Digest } from '../content/oci/digest.ts';
import { loadKeyring, type KeyMaterial } from '../release/signature/keyring.ts';
import type { Release } from '../release/release.ts';
import type { VerifiedSignature } from '../release/signature/signature.ts';
import type { FetchFile } from '../content/http/fetchFile.ts';
import { collectSignatures, verifyRelease } from '../release/signature/trust.ts';
import { checkSignatures } from './metadataCheck.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';

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
