import { PluginError } from '#errors';
import type { ContentStore } from '../store/store.ts';
import type { Image } from './copy.ts';

/** An image to copy that may be the image of a release. */
export interface OrderedImage extends Image {
  readonly isRelease?: boolean;
}

/** The images that were copied to a store. */
export interface CopiedImages {
  readonly store: ContentStore;
  readonly images: readonly Pick<Image, 'name' | 'root' | 'manifests' | 'tags'>[];
}

/** Guards copies against other runs, which may remove images from the same stores. */
export interface CopyGuard {
  /** Called before anything is copied. Throws if images are being removed. */
  readonly beforeCopies: (stores: readonly ContentStore[]) => Promise<void>;
  /** Called with all images except those of releases, before these are copied. Throws if any of them was removed. */
  readonly beforeReleases: (copied: readonly CopiedImages[]) => Promise<void>;
  /** Called with all images after those of releases are copied. Returns whether all are there. */
  readonly areThere: (copied: readonly CopiedImages[]) => Promise<boolean>;
}

/** The images for one store, and the function that copies some of them; `isEmpty` as in CopyOptions. */
interface StoreCopy<Copied extends OrderedImage> {
  readonly store: ContentStore;
  readonly images: readonly Copied[];
  readonly copy: (images: readonly Copied[], isEmpty: boolean) => Promise<void>;
}

/** The number of times that images are copied if they are removed meanwhile. */
const attempts = 3;

/**
 * Copies images to stores. Copies release images last, and only if everything else succeeded, because clients expect
 * all components of a release tag. If images are removed while a release is tagged, copies them again. Throws
 * `conflict` if they are removed each time, and the errors of the copies and of the guard.
 */
export async function copyReleasesLast<Copied extends OrderedImage>(
  stores: readonly StoreCopy<Copied>[],
  guard?: CopyGuard,
): Promise<void> {
  await guard?.beforeCopies(stores.map(({ store }) => store));
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    await copyAll(stores, false, attempt === 1);
    // Afterwards the release may have its tag, and an error would leave it incomplete.
    if (attempt === 1) await guard?.beforeReleases(stores.map((each) => ({ ...each, images: select(each, false) })));
    await copyAll(stores, true, false);
    if ((await guard?.areThere(stores)) !== false) return;
  }
  const names = stores.map(({ store }) => store.name).join(', ');
  throw new PluginError('conflict', `another program removes images from ${names} while they are copied`, {
    hint: 'Wait for it to end, and run the same command again: it copies what is missing.',
  });
}

async function copyAll<Copied extends OrderedImage>(
  stores: readonly StoreCopy<Copied>[],
  isRelease: boolean,
  isFirst: boolean,
): Promise<void> {
  for (const each of stores) {
    const images = select(each, isRelease);
    if (images.length > 0) await each.copy(images, isFirst && (await each.store.knownTags?.(1))?.size === 0);
  }
}

function select<Copied extends OrderedImage>({ images }: StoreCopy<Copied>, isRelease: boolean): Copied[] {
  return images.filter((image) => (image.isRelease ?? false) === isRelease);
}
