import type { Context } from '../../context.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { blobsOfImage, sizeOf, type PlannedImage } from './loadPlan.ts';

/** Reports the progress of a load. Counts each blob once, even if several images need it. */
export class LoadProgress {
  readonly #context: Context;
  /** The bytes of each blob that are not reported yet. */
  readonly #unreported: Map<Digest, number>;
  #bytes = 0;

  /** Reports the plan, and the images that the store has. */
  constructor(planned: readonly PlannedImage[], missing: readonly PlannedImage[], context: Context) {
    this.#context = context;
    const present = planned.filter((image) => !missing.includes(image));
    const [blobs, stored] = [blobsOfImage(planned), blobsOfImage(present)];
    this.#unreported = new Map([...blobs].filter(([digest]) => !stored.has(digest)));
    const counts = { images: planned.length, blobs: blobs.size };
    context.onEvent({ kind: 'plan', ...counts, bytes: sizeOf(blobs), present: sizeOf(stored) });
    for (const { label } of present) context.onEvent({ kind: 'image', name: label });
  }

  /** Bytes of blobs that were read from the bundle. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Reports bytes of a blob that the server sent. */
  sent(digest: Digest, sent: number): void {
    const bytes = this.#take(digest, sent);
    this.#bytes += bytes;
    if (bytes > 0) this.#context.onEvent({ kind: 'bytes', digest, bytes });
  }

  /** Reports a loaded image, and its layers that the store had from other images. */
  finish({ label, blobs }: PlannedImage): void {
    for (const digest of blobs.keys()) {
      const size = this.#take(digest, Infinity);
      if (size > 0) this.#context.onEvent({ kind: 'skipped', digest, size });
    }
    this.#context.onEvent({ kind: 'image', name: label });
  }

  #take(digest: Digest, bytes: number): number {
    const unreported = this.#unreported.get(digest) ?? 0;
    this.#unreported.set(digest, Math.max(0, unreported - bytes));
    return Math.min(unreported, bytes);
  }
}
