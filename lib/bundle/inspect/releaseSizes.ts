import type { Digest } from '../../content/oci/digest.ts';
import { digestIn } from '../../content/oci/reference.ts';
import { type BundledRelease, type BundleMetadata, splitReleases } from '../metadata.ts';

/** One of several releases of a bundle. Sizes are in bytes by its manifests, and count each content once. */
export interface InspectedRelease extends Pick<BundledRelease, 'version' | 'release' | 'risks'> {
  readonly images: number;
  /** The size of the content of its images. */
  readonly size: number;
  /** The size of the content that no earlier release of the bundle has. */
  readonly added: number;
}

/** Adds up the content of each release of a bundle. */
export class ReleaseSizes {
  readonly #metadata: BundleMetadata;
  readonly #digests: readonly ReadonlySet<string>[];
  readonly #contents: readonly Map<Digest, number>[];

  constructor(metadata: BundleMetadata) {
    this.#metadata = metadata;
    this.#digests = splitReleases(metadata).map(({ images }) => new Set(images.map(digestIn)));
    this.#contents = this.#digests.map(() => new Map());
  }

  /** Adds the content of an image to each release that has the image. Sizes are in bytes. */
  add(image: Digest, content: Iterable<readonly [Digest, { readonly size: number }]>): void {
    const own = this.#contents.filter((_, index) => this.#digests[index]?.has(image));
    for (const [digest, { size }] of content) for (const each of own) each.set(digest, size);
  }

  /** Lists the releases in the order of the updates; undefined for a bundle with one release. */
  list(): InspectedRelease[] | undefined {
    const countedBlobs = new Set<Digest>();
    return this.#metadata.releases?.map(({ version, release, risks }, index) => {
      let [size, added] = [0, 0];
      for (const [digest, bytes] of this.#contents[index] ?? []) {
        size += bytes;
        if (!countedBlobs.has(digest)) added += bytes;
        countedBlobs.add(digest);
      }
      return { version, release, risks, images: this.#digests[index]?.size ?? 0, size, added };
    });
  }
}
