import { PluginError } from '../errors.ts';
import type { BundleMetadata } from './metadata.ts';
import type { Bundle } from './bundle.ts';
import { describeProblem, type Problem } from './problem.ts';
import type { VerifyTrust } from './signatureCheck.ts';

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
