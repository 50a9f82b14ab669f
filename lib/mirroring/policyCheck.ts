import type { Context } from '../context.ts';
import type { MirrorImage } from '../release/mirror/mirrorGroup.ts';
import type { Release } from '../release/release.ts';
import { checkReleaseImages, findRefused, readerOf } from '../release/sigstore/releaseCheck.ts';
import { namedImages } from './images.ts';

/**
 * Warns if a cluster would refuse images that are about to be mirrored, by the image policies of their release. It is no error, because `oc adm
 * release mirror` mirrors them too, and clusters before 4.21 accept them.
 */
export async function warnOfRefusedImages(
  images: readonly MirrorImage[],
  release: Release,
  context: Context,
): Promise<void> {
  if (release.imagePolicies.length === 0) return;
  const sources = new Map(images.map(({ name, source }) => [name, source]));
  const results = await Promise.all(
    namedImages(release, false).map(async ([name, reference]) => {
      const source = sources.get(name);
      const image = { name, reference: { ...reference, digest: reference.digest ?? release.digest } };
      if (!source) return [];
      return checkReleaseImages(
        [image],
        release.imagePolicies,
        readerOf(() => source),
        context.signal,
      );
    }),
  );
  const refusal = findRefused(results.flat(), release.pullspec);
  if (refusal) context.log('warn', `${refusal.message}. ${refusal.hint ?? ''}`);
}
