import type { Context } from '../../context.ts';
import type { Release } from '../../release/release.ts';
import {
  checkReleaseImages,
  finderIn,
  type ImageReader,
  type NamedResult,
} from '../../release/sigstore/releaseCheck.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { readContent } from '../../content/store/store.ts';
import type { BundleImage } from '../images.ts';
import type { Contents } from './contents.ts';
import type { BundleOrigin } from './origin.ts';

/** The largest size of payloads that are kept for the bundle, in bytes. Those of a release have 60 KB. */
const keptLimit = 16 * 1024 * 1024;

/**
 * Checks the images of each release of a bundle against the image policies of that release, before large blobs are
 * fetched. Reads only the signatures from the origin, each once, and adds them to the returned contents. Throws the
 * errors of the origin.
 */
export async function checkContents(
  contents: Contents,
  releases: readonly { readonly release: Pick<Release, 'imagePolicies'>; readonly images: readonly BundleImage[] }[],
  origin: BundleOrigin,
  context: Context,
): Promise<{ readonly contents: Contents; readonly policies: readonly NamedResult[] }> {
  const judged = releases.filter(({ release }) => release.imagePolicies.length > 0);
  if (judged.length === 0) return { contents, policies: [] };
  context.log('info', 'checking the sigstore signatures');
  const { manifests, tags } = contents;
  const payloads = new Map<Digest, Buffer>();
  let room = keptLimit;
  const reader: ImageReader = {
    ...finderIn(manifests, (tag) => tags.get(tag)),
    readPayload: async ({ reference }, descriptor) => {
      const kept = payloads.get(descriptor.digest);
      if (kept) return kept;
      const payload = await readContent(origin.sourceOf(reference), descriptor, descriptor.size);
      if (payload.length <= room) {
        payloads.set(descriptor.digest, payload);
        room -= payload.length;
      }
      return payload;
    },
  };
  const policies: NamedResult[] = [];
  for (const { release, images } of judged)
    policies.push(...(await checkReleaseImages(images, release.imagePolicies, reader, context.signal)));
  return { contents: { ...contents, payloads }, policies };
}
