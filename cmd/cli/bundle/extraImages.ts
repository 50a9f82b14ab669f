import { describeExtraImages } from '../../../lib/bundle/extraImages.ts';
import type { SkippedImage } from '../../../lib/bundle/metadata.ts';
import { listBelow } from '../../../lib/lines.ts';
import type { Terminal } from '../terminal.ts';

/** The number of images that are listed. */
const shown = 20;

/** Warns of the images that the release signature does not cover. */
export function warnOfExtraImages(images: readonly string[], { log }: Pick<Terminal, 'log'>): void {
  const words = describeExtraImages(images);
  if (words === undefined) return;
  const more = images.length > shown ? [`and ${images.length - shown} more`] : [];
  log('warn', listBelow(`${words}:`, [...images.slice(0, shown), ...more]));
}

/** Returns rows of a result that list the images that the release signature does not cover; none if it covers all. */
export function listExtraImages(images: readonly string[]): string[][] {
  const words = describeExtraImages(images);
  if (words === undefined) return [];
  const more = images.length - shown;
  const rest = more > 0 ? [['', `… and ${more} more: -o json lists them all`]] : [];
  return [['Not signed', words], ...images.slice(0, shown).map((image) => ['', image]), ...rest];
}

/** Returns rows of a result that list the images of operators that the bundle lacks; none if there are none. */
export function listSkippedImages(images: readonly SkippedImage[] = []): string[][] {
  return images.map(({ image, operators }, index) => [
    index === 0 ? 'Skipped' : '',
    `${image}, which ${operators.join(', ')} needs`,
  ]);
}
