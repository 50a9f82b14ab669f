import type { Context } from '../context.ts';
import { checkReleaseImages, readerOf, type NamedResult } from '../release/sigstore/releaseCheck.ts';
import type { SignedRelease } from '../release/load.ts';
import { listSignedImages } from './bundleTags.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';

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
    const hint = `Clusters refuse it by the policy ${policy.name} of the release. Create the bundle again from a repository with its signature.`;
    const kind = outcome === 'missing' ? 'unsigned' : 'untrusted';
    return [{ ...describeProblem(kind, 'signature', image.digest, message, hint), images: [name] }];
  });
}
