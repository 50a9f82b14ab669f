import type { Digest } from '../../oci/digest.ts';
import type { PlannedImage } from './loadPlan.ts';

/**
 * Images that are to be copied side by side, in the order in which no two copies bring the same layer: what all images of a release are built on
 * comes with the first of them, while the others wait, instead of with each of those that begin at once.
 */
export class CopyQueue {
  readonly #queue: PlannedImage[];
  /** What each copy that is under way brings. */
  readonly #coming = new Map<PlannedImage, readonly Digest[]>();
  readonly #there: Set<string>;
  #change = Promise.withResolvers<undefined>();

  /** `there` are the layers that the store has already. */
  constructor(images: readonly PlannedImage[], there: ReadonlySet<string>) {
    this.#queue = [...images];
    this.#there = new Set(there);
  }

  /** Takes the next image, as soon as nobody else brings a layer of it; undefined when there are no more. */
  async take(): Promise<PlannedImage | undefined> {
    for (;;) {
      const position = this.#queue.findIndex((image) => this.#isFree(image));
      const [image] = position < 0 ? [] : this.#queue.splice(position, 1);
      if (image) this.#coming.set(image, this.#lacking(image));
      if (image || this.#queue.length === 0) return image;
      await this.#change.promise;
    }
  }

  /** Notes that an image is in the store, with all of its layers. */
  note(image: PlannedImage): void {
    for (const digest of image.blobs.keys()) this.#there.add(digest);
  }

  /** Notes that the copy of an image has ended, whatever became of it. */
  end(image: PlannedImage): void {
    this.#coming.delete(image);
    this.#change.resolve(undefined);
    this.#change = Promise.withResolvers();
  }

  #isFree(image: PlannedImage): boolean {
    const lacking = this.#lacking(image);
    return [...this.#coming.values()].every((coming) => !lacking.some((digest) => coming.includes(digest)));
  }

  #lacking({ blobs }: PlannedImage): Digest[] {
    return [...blobs.keys()].filter((digest) => !this.#there.has(digest));
  }
}
