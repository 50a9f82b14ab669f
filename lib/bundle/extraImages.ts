import { PluginError } from '../errors.ts';
import type { BundleMetadata } from './metadata.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';
import type { VerifyTrust } from './signatureCheck.ts';

const hint = 'Create the bundle without extra images, or do not require that the signature covers all images.';

/** Says how many images of a bundle the signature of its release does not cover; undefined where it covers all of them. */
export function describeExtraImages({ length }: readonly string[]): string | undefined {
  if (length === 0) return undefined;
  return `${length === 1 ? '1 image' : `${length} images`} not covered by the release signature`;
}

/** The images of a bundle that the signature of its release does not cover, as problems. */
export function findExtraImages({ extraImages }: Pick<BundleMetadata, 'extraImages'>): Problem[] {
  return extraImages.map((image) =>
    describeProblem('unsigned', 'signature', image, `${image} is not covered by the release signature`, hint),
  );
}

/** Refuses a bundle with images that the signature of the release does not cover, if only covered ones are wanted. Throws `unsigned`. */
export function checkExtraImages({ path, metadata }: Bundle, { requireSignedImages }: VerifyTrust): void {
  const words = describeExtraImages(metadata.extraImages);
  if (requireSignedImages !== true || words === undefined) return;
  const more = metadata.extraImages.length > 5 ? ', …' : '';
  const named = metadata.extraImages.slice(0, 5).join(', ') + more;
  throw new PluginError('unsigned', `${path} has ${words}: ${named}`, {
    hint,
  });
}
