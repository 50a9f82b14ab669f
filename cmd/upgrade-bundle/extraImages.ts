import { describeExtraImages } from '../../lib/bundle/extraImages.ts';

/** Rows of a result that name the images which the signature of the release does not cover; none where it covers all. */
export function listExtraImages(images: readonly string[]): string[][] {
  const words = describeExtraImages(images);
  return words === undefined ? [] : [['Not signed', words], ...images.map((image) => ['', image])];
}
