import type { Context } from '../context.ts';
import { checkReleaseImages, readerOf, type NamedResult } from '../release/sigstore/releaseCheck.ts';
import type { SignedRelease } from '../release/load.ts';
import { listSignedImages } from './bundleTags.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';

/**
 * Checks the images of a bundle against the image policies of its release, offline. Throws the errors of reading the
 * bundle.
 */
export function checkPolicies(bundle: Bundle, signed: SignedRelease, context: Context): Promise<NamedResult[]> {
  const { imagePolicies } = signed.release;
  if (imagePolicies.length === 0) return Promise.resolve([]);
  return checkReleaseImages(
    listSignedImages(bundle, signed),
    imagePolicies,
    readerOf(() => bundle.content),
    context.signal,
  );
}

/** Returns the images that a cluster would refuse, as problems. */
export function findRefusedImages(results: readonly NamedResult[]): Problem[] {
  return results.flatMap(({ name, image, policy, outcome, reasons }) => {
    if (outcome !== 'missing' && outcome !== 'rejected') return [];
    const message = `${name} (${image.digest}) has no valid sigstore signature: ${reasons.join('; ')}`;
    const hint = `Clusters refuse it by the policy ${policy.name} of the release. Create the bundle again from a repository with its signature.`;
    const kind = outcome === 'missing' ? 'unsigned' : 'untrusted';
    return [{ ...describeProblem(kind, 'signature', image.digest, message, hint), images: [name] }];
  });
}
