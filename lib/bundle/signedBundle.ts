import type { SignaturesByDigest } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { firstMessage } from '../failures.ts';
import type { Digest } from '../oci/digest.ts';
import { findRelease, loadRelease, type SignedRelease } from '../release/load.ts';
import type { ContentSource } from '../store/store.ts';
import { checkReleaseFacts } from './metadataCheck.ts';
import { readBundledConfig } from './bundledConfig.ts';
import { readBundleTags } from './bundleTags.ts';
import { announceMirrors, judgeConfig, signatureSubjectOf, type ConfigVerdict } from './configCheck.ts';
import { checkExtraImages } from './extraImages.ts';
import type { Bundle } from './bundle.ts';
import type { Problem } from './problem.ts';
import { checkPolicies } from './policyCheck.ts';
import { requireVerified, type NamedResult } from '../release/sigstore/releaseCheck.ts';
import { findUnsigned, verifyUntrusted, type VerifyTrust } from './signatureCheck.ts';

/** A bundle whose release somebody trusted signed, with what may be believed of the rest. */
export interface SignedBundle extends SignedRelease {
  readonly config: ConfigVerdict;
  /** What the release and its images are called, by the signed payload, and its extra images as create calls them. */
  readonly tags: ReadonlyMap<string, Digest>;
  /** The images that the signature of the release does not cover, by digest. */
  readonly extraImages: readonly string[];
  /** The sigstore signatures of the images, by the image policies of the release. */
  readonly policies: readonly NamedResult[];
}

/**
 * Makes sure that somebody trusted signed the release in a bundle, that metadata.json and the tags say of it what it says itself, and that
 * the configuration is what goes with it, so that all its images may be believed as far as their digests are checked. Reads the
 * configuration, the payload and the tags only, and asks no network unless `trust` names a store. Throws `unsigned` and `untrusted` unless
 * unsigned releases are allowed, `invalid-bundle` for what contradicts the release, and what reading the payload does.
 */
export async function checkSigned(bundle: Bundle, trust: VerifyTrust, context: Context): Promise<SignedBundle> {
  try {
    const { metadata, content, form, path } = bundle;
    const config = await readBundledConfig(bundle, context);
    refuse(bundle, config.problems);
    const known = config.signatures;
    const signed = await checkRelease({ path, metadata, content, signatures: known }, trust, context);
    const { release, signatures } = signed;
    checkExtraImages(bundle, trust);
    const subject = signatureSubjectOf(release);
    const own = [...signatures.values()].flat();
    refuse(bundle, findUnsigned(release, known, own, trust));
    const others = form === 'tar' ? [] : await verifyUntrusted(known, subject.digests, release, trust, context);
    const lenient = trust.allowUnsigned;
    const verdict = judgeConfig(bundle, config, subject, { good: [...own, ...others], lenient });
    refuse(bundle, verdict.problems);
    announceMirrors(verdict, context);
    const tags = await readBundleTags(bundle, signed, context);
    const policies = await checkPolicies(bundle, signed, context);
    requireVerified(policies, path, lenient, context);
    return { ...signed, config: verdict, tags, extraImages: metadata.extraImages, policies };
  } catch (error) {
    if (!isPluginError(error) || error.hint !== undefined || !error.message.includes(bundle.path)) throw error;
    const hint = `Do not use it. Copy it again from its source. 'verify' lists every problem of it.`;
    throw new PluginError(error.code, error.message, { hint, cause: error });
  }
}

/** What checkRelease reads: of a bundle, or of the part of one that is kept. */
export interface ReleaseEvidence extends Pick<Bundle, 'path' | 'metadata'> {
  /** Has the manifest and the payload of the release. */
  readonly content: ContentSource;
  /** All signatures that came with it, not verified. */
  readonly signatures: SignaturesByDigest;
}

/** Verifies the signature of a release and that the metadata agrees with its payload. Throws what checkSigned does. */
export async function checkRelease(
  { path, metadata, content, signatures }: ReleaseEvidence,
  trust: VerifyTrust,
  context: Context,
): Promise<SignedRelease> {
  const found = await findRelease({ image: metadata.release }, () => content);
  const signed = await loadRelease(found, {}, { ...trust, known: signatures, offline: true }, context);
  refuse({ path }, checkReleaseFacts(metadata, signed.release));
  return signed;
}

function refuse({ path }: Pick<Bundle, 'path'>, problems: readonly Problem[]): void {
  const message = firstMessage(problems);
  if (message === undefined) return;
  const code = problems[0]?.kind === 'untrusted' ? 'untrusted' : 'invalid-bundle';
  throw new PluginError(code, `${path}: ${message}`);
}
