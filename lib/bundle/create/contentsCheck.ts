import type { Context } from '../../context.ts';
import type { Release } from '../../release/release.ts';
import {
  checkReleaseImages,
  finderIn,
  type ImageReader,
  type NamedResult,
} from '../../release/sigstore/releaseCheck.ts';
import { readContent } from '../../store/store.ts';
import type { Contents } from './contents.ts';
import type { Origin } from './origin.ts';

/**
 * Checks the images of a bundle against the image policies of its release, before large blobs are fetched. Only the signatures are read from
 * the origin. Throws what that does.
 */
export function checkContents(
  { images, manifests, tags }: Contents,
  { imagePolicies }: Pick<Release, 'imagePolicies'>,
  origin: Origin,
  context: Context,
): Promise<NamedResult[]> {
  if (imagePolicies.length === 0) return Promise.resolve([]);
  context.log('info', 'checking the sigstore signatures');
  const reader: ImageReader = {
    readManifest: finderIn(manifests, (tag) => tags.get(tag)),
    readPayload: ({ reference }, descriptor) => readContent(origin.sourceOf(reference), descriptor, descriptor.size),
  };
  return checkReleaseImages(images, imagePolicies, reader, context.signal);
}
