import type { Image } from './copy.ts';

/** An image to copy that may be the image of a release. */
export interface OrderedImage extends Image {
  readonly isRelease?: boolean;
}

/** The images for one store, and the function that copies some of them. */
interface StoreCopy<Copied extends OrderedImage> {
  readonly images: readonly Copied[];
  readonly copy: (images: readonly Copied[]) => Promise<void>;
}

/**
 * Copies images to stores. Copies release images last, and only if everything else succeeded, because clients expect
 * all components of a release tag. Calls `beforeReleases` in between. Throws the errors of both functions.
 */
export async function copyReleasesLast<Copied extends OrderedImage>(
  stores: readonly StoreCopy<Copied>[],
  beforeReleases?: () => Promise<void>,
): Promise<void> {
  for (const isRelease of [false, true]) {
    if (isRelease) await beforeReleases?.();
    for (const { images, copy } of stores) {
      const wanted = images.filter((image) => (image.isRelease ?? false) === isRelease);
      if (wanted.length > 0) await copy(wanted);
    }
  }
}
