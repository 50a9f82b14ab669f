import type { Context, TransferEvent } from '../../context.ts';
import { childrenOf } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import type { Contents } from '../create/contents.ts';
import type { BundleImage } from '../images.ts';

/** Counts what becomes of the blobs of a push, and tells a listener the plan as it turns out: what is there need not be moved. */
export class PushTally {
  readonly #contents: Contents;
  readonly #images: ReadonlySet<string>;
  readonly #onEvent: Context['onEvent'];
  readonly #total: number;
  readonly #settled = new Set<string>();
  readonly #moving = new Set<string>();
  #present = 0;
  #uploaded = 0;
  #mounted = 0;
  #bytes = 0;

  /** Announces the plan at once. Only the given images count as such; sigstore attachments do not. */
  constructor(contents: Contents, images: readonly BundleImage[], onEvent: Context['onEvent']) {
    this.#contents = contents;
    this.#images = new Set(images.map(({ name }) => name));
    this.#onEvent = onEvent;
    this.#total = [...contents.blobs.values()].reduce((sum, { descriptor }) => sum + descriptor.size, 0);
    this.#plan();
  }

  /** Takes an event of the copy. */
  readonly count = (event: TransferEvent): void => {
    if (event.kind === 'image' && !this.#images.has(event.name)) return;
    if (event.kind === 'skipped') this.#skip(event.digest);
    if (event.kind === 'stored' && this.#contents.blobs.has(event.digest as Digest)) {
      this.#settled.add(event.digest);
      // What arrived without a byte having moved was taken over from another repository.
      if (this.#moving.has(event.digest) || event.size === 0) this.#uploaded += 1;
      else this.#mount(event.size);
    }
    if (event.kind === 'bytes') {
      this.#moving.add(event.digest);
      this.#bytes += event.bytes;
    }
    this.#onEvent(event);
  };

  /** The counts; what is there and was neither uploaded nor mounted was skipped. */
  result(): { blobs: { uploaded: number; mounted: number; skipped: number }; bytes: number } {
    const [uploaded, mounted] = [this.#uploaded, this.#mounted];
    return {
      blobs: { uploaded, mounted, skipped: this.#contents.blobs.size - uploaded - mounted },
      bytes: this.#bytes,
    };
  }

  #plan(): void {
    const { images, blobs } = { images: this.#images.size, blobs: this.#contents.blobs.size };
    this.#onEvent({ kind: 'plan', images, blobs, bytes: this.#total, present: this.#present });
  }

  #mount(size: number): void {
    this.#mounted += 1;
    this.#present += size;
    this.#plan();
  }

  /** A manifest that is there has everything below it there. */
  #skip(digest: string): void {
    const visit = (node: Digest): void => {
      if (this.#settled.has(node)) return;
      this.#settled.add(node);
      if (!this.#moving.has(node)) this.#present += this.#contents.blobs.get(node)?.descriptor.size ?? 0;
      const stored = this.#contents.manifests.get(node);
      if (stored) for (const child of childrenOf(stored.manifest)) visit(child.digest);
    };
    visit(digest as Digest);
    this.#plan();
  }
}
