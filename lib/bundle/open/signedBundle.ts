import type { SignaturesByDigest } from '#config/signatures';
import type { Digest } from '#content/oci';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { PluginError, withHint, firstMessage } from '#errors';
import { findRelease, loadRelease, type SignedRelease } from '#release/load';
import { requireVerified, type NamedResult } from '#release/sigstore';
import { readBundledConfig } from '../metadata/bundledConfig.ts';
import { announceMirrors, checkConfig, signatureSubjectOf, type ConfigVerdict } from '../metadata/configCheck.ts';
import { type BundleMetadata, splitReleases } from '../metadata/metadata.ts';
import { readBundleTags } from '../metadata/originalNames.ts';
import type { Bundle, Problem } from './bundle.ts';
import {
  checkListing,
  checkReleaseFacts,
  checkExtraImages,
  checkPolicies,
  findUnsigned,
  verifyUntrusted,
  type VerifyTrust,
} from './signatureCheck.ts';

/**
 * A bundle whose releases are signed by a trusted key, and the checked parts of the bundle. `release` is the last one,
 * and `signatures` are those of all releases.
 */
export interface SignedBundle extends SignedRelease {
  /** All releases in the order of the updates. */
  readonly releases: readonly SignedRelease[];
  readonly config: ConfigVerdict;
  /**
   * The tags of the releases and their images by the signed payloads, and the tags of extra images as `create` writes
   * them.
   */
  readonly tags: ReadonlyMap<string, Digest>;
  /** The images by digest that the release signature does not cover. */
  readonly extraImages: readonly string[];
  /** The sigstore signatures of the images, by the image policies of their releases. */
  readonly policies: readonly NamedResult[];
}

/**
 * Checks that a trusted key signed each release in a bundle, and that metadata.json, the tags and the configuration
 * agree with the releases. Their images can then be trusted if their digests are checked. Reads only the configuration,
 * the payloads and the tags, and uses no network unless `trust` names a store. Throws `unsigned` and `untrusted` unless
 * unsigned releases are allowed, `invalid-bundle` for a contradiction, and the errors of reading the payload.
 */
export async function checkSigned(bundle: Bundle, trust: VerifyTrust, context: Context): Promise<SignedBundle> {
  try {
    const { metadata, content, form, path } = bundle;
    const config = await readBundledConfig(bundle, context);
    refuse(bundle, config.problems);
    requireListing(bundle);
    const releases = await checkReleases({ path, metadata, content, signatures: config.signatures }, trust, context);
    checkExtraImages(bundle, trust);
    const { release } = releases.at(-1) ?? releases[0];
    const payloads = releases.map((each) => each.release);
    const subject = signatureSubjectOf(payloads);
    const signatures = new Map(releases.flatMap((each) => [...each.signatures]));
    const own = [...signatures.values()].flat();
    for (const each of payloads) refuse(bundle, findUnsigned(each, config.signatures, own, trust));
    const others =
      form === 'tar' ? [] : await verifyUntrusted(config.signatures, subject.digests, payloads, trust, context);
    const lenient = trust.allowUnsigned;
    const verdict = checkConfig(bundle, config, subject, { good: [...own, ...others], lenient });
    refuse(bundle, verdict.problems);
    announceMirrors(verdict, context);
    const tags = await readBundleTags(bundle, releases, context);
    const policies = await checkAttachments(bundle, releases, trust, context);
    const { extraImages } = metadata;
    return { release, signatures, releases, config: verdict, tags, extraImages, policies };
  } catch (error) {
    const hint = `Do not use it. Copy it again from its source. 'verify' lists every problem of it.`;
    throw withHint(error, bundle.path, hint);
  }
}

/**
 * Checks the sigstore signatures of the images by the image policies of their signed releases. Throws `unsigned` and
 * `untrusted` unless unsigned releases are allowed, and the errors of reading the bundle.
 */
export async function checkAttachments(
  bundle: Bundle,
  releases: readonly SignedRelease[],
  { allowUnsigned }: Pick<VerifyTrust, 'allowUnsigned'>,
  context: Context,
): Promise<NamedResult[]> {
  const policies = await checkPolicies(bundle, releases, context);
  requireVerified(policies, bundle.path, allowUnsigned, context);
  return policies;
}

/** Throws `invalid-bundle` if metadata.json of a bundle contradicts its entries. */
export function requireListing(bundle: Bundle): void {
  refuse(bundle, checkListing(bundle));
}

/** The input of checkReleases: a bundle, or the stored part of one. */
export interface ReleaseEvidence extends Pick<Bundle, 'path' | 'metadata'> {
  /** Has the manifest and the payload of the release. */
  readonly content: ContentSource;
  /** All signatures that came with the release, unverified. */
  readonly signatures: SignaturesByDigest;
}

/**
 * Verifies the signature of each release of a bundle, and that the metadata agrees with the payloads. Returns the
 * releases in the order of the updates. Throws the errors of checkSigned.
 */
export async function checkReleases(
  evidence: ReleaseEvidence,
  trust: VerifyTrust,
  context: Context,
): Promise<[SignedRelease, ...SignedRelease[]]> {
  const [first, ...others] = splitReleases(evidence.metadata);
  const checked: [SignedRelease, ...SignedRelease[]] = [await checkRelease(evidence, first, trust, context)];
  for (const metadata of others) checked.push(await checkRelease(evidence, metadata, trust, context));
  return checked;
}

async function checkRelease(
  { path, content, signatures }: ReleaseEvidence,
  metadata: BundleMetadata,
  trust: VerifyTrust,
  context: Context,
): Promise<SignedRelease> {
  const foundRelease = await findRelease({ image: metadata.release }, () => content);
  const signed = await loadRelease(foundRelease, {}, { ...trust, known: signatures, offline: true }, context);
  refuse({ path }, checkReleaseFacts(metadata, signed.release));
  return signed;
}

function refuse({ path }: Pick<Bundle, 'path'>, problems: readonly Problem[]): void {
  const message = firstMessage(problems);
  if (message === undefined) return;
  const code = problems[0]?.kind === 'untrusted' ? 'untrusted' : 'invalid-bundle';
  throw new PluginError(code, `${path}: ${message}`);
}
