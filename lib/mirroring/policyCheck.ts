import type { Context } from '../context.ts';
import type { MirrorGroup } from '../release/mirror/mirrorGroup.ts';
import type { Release } from '../release/release.ts';
import {
  checkReleaseImages,
  finderIn,
  readerOf,
  requireVerified,
  type NamedResult,
} from '../release/sigstore/releaseCheck.ts';
import { namedImages } from './images.ts';

/**
 * Checks images that are about to be mirrored against the image policies of their release, which clusters enforce from
 * 4.21 on. Reads only the signatures from the sources. Throws what requireVerified throws.
 */
export async function checkPlannedImages(
  groups: readonly MirrorGroup[],
  release: Release,
  allowUnsigned: boolean,
  context: Context,
): Promise<NamedResult[]> {
  if (release.imagePolicies.length === 0) return [];
  const planned = new Map(groups.flatMap(({ images }) => images.map((each) => [each.image.name, each])));
  const checked = await Promise.all(
    namedImages(release, false).map(async ([name, reference]) => {
      const { image, graph } = planned.get(name) ?? {};
      if (!image || !graph) return [];
      const reader = {
        ...readerOf(() => image.source),
        ...finderIn(graph.manifests, (tag) => graph.attachments.get(tag)?.digest),
      };
      const named = { name, reference: { ...reference, digest: image.digest } };
      return checkReleaseImages([named], release.imagePolicies, reader, context.signal);
    }),
  );
  const results = checked.flat();
  requireVerified(results, release.pullspec, allowUnsigned, context);
  return results;
}
