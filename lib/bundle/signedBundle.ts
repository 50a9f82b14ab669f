import { readAllSignatures, type SignaturesByDigest } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { findRelease, loadRelease, type SignedRelease } from '../release/load.ts';
import type { ContentSource } from '../store/store.ts';
import { compareRelease } from './agreement.ts';
import type { Bundle } from './open.ts';
import { placeOf } from './place.ts';
import type { VerifyTrust } from './vouching.ts';

/**
 * Makes sure that somebody trusted signed the release in a bundle, and that metadata.json says of it what it says itself,
 * so that all its images may be believed as far as their digests are checked. Reads the signatures and the payload only,
 * and asks no network unless `trust` names a store. Throws `unsigned` and `untrusted` unless unsigned releases are
 * allowed, `invalid-bundle` for metadata that contradicts the release, and what reading the payload does.
 */
export async function checkSigned(bundle: Bundle, trust: VerifyTrust, context: Context): Promise<SignedRelease> {
  try {
    const { metadata, content, path } = bundle;
    return await checkRelease({ path, metadata, content, signatures: await readSignatures(bundle) }, trust, context);
  } catch (error) {
    if (!isPluginError(error) || error.hint !== undefined || !error.message.includes(bundle.path)) throw error;
    const hint = `Do not use it: copy it again from where it came from. Its 'verify' command lists everything that is wrong with it.`;
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
  const [first, ...others] = compareRelease(metadata, signed.release);
  if (!first) return signed;
  const more = others.length > 0 ? `, and ${String(others.length)} more contradictions` : '';
  throw new PluginError('invalid-bundle', `${path}: ${first.message}${more}`);
}

/** Reads the signatures in the configuration manifests of a bundle, unverified. Throws what reading them does. */
export async function readSignatures(bundle: Bundle): Promise<SignaturesByDigest> {
  return readAllSignatures(await readBundledConfig(bundle));
}

/** Reads the configuration manifests of a bundle as texts. Throws what reading them does. */
export function readBundledConfig(bundle: Bundle): Promise<{ path: string; text: string }[]> {
  const files = bundle.files.filter((file) => placeOf(file).kind === 'config' && /\.(?:ya?ml|json)$/.test(file.path));
  const texts = files.map(async ({ path }) => {
    return { path: `${path} in ${bundle.path}`, text: (await bundle.read(path)).toString() };
  });
  return Promise.all(texts);
}
