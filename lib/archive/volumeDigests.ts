import { createHash } from 'node:crypto';
import type { Digest } from '../oci/digest.ts';
import type { Volume } from './volumes.ts';

/** The digests of an archive: of the whole, and of each of its volumes that was read whole, none where it is one file. */
export interface ArchiveDigests {
  readonly digest: Digest;
  readonly volumes: readonly Digest[];
}

/** Takes the digests of an archive and of its volumes in one go, fed with its bytes in their order. */
export class VolumeHash {
  readonly #sizes: readonly number[];
  #whole = createHash('sha256');
  #current = createHash('sha256');
  #finished: Digest[] = [];
  /** How many bytes of the volume that is being read are still to come. */
  #left: number;

  constructor(volumes: readonly Pick<Volume, 'size'>[]) {
    this.#sizes = volumes.length > 1 ? volumes.map(({ size }) => size) : [];
    this.#left = this.#sizes[0] ?? Infinity;
  }

  update(bytes: Buffer): void {
    this.#whole.update(bytes);
    if (this.#sizes.length === 0) return;
    for (let rest = bytes; rest.length > 0;) {
      const own = rest.subarray(0, this.#left);
      this.#current.update(own);
      this.#left -= own.length;
      rest = rest.subarray(own.length);
      if (this.#left === 0) this.#turn();
    }
  }

  /** The same, as far as it has come, to go on from here a second time. */
  copy(): VolumeHash {
    const copy = new VolumeHash(this.#sizes.map((size) => ({ size })));
    copy.#whole = this.#whole.copy();
    copy.#current = this.#current.copy();
    copy.#finished = [...this.#finished];
    copy.#left = this.#left;
    return copy;
  }

  /** To be called once, at the end. */
  finish(): ArchiveDigests {
    return { digest: `sha256:${this.#whole.digest('hex')}`, volumes: this.#finished };
  }

  #turn(): void {
    this.#finished.push(`sha256:${this.#current.digest('hex')}`);
    this.#current = createHash('sha256');
    this.#left = this.#sizes[this.#finished.length] ?? Infinity;
  }
}
