import { createHash } from 'node:crypto';
import type { Context } from '../../context.ts';
import { hashFile } from '../files/fileRange.ts';
import type { Digest } from '../oci/digest.ts';
import { openVolume, type Volume } from './volumes.ts';

/** The digests of an archive: of the whole, and of each complete volume. There are no volumes if it is one file. */
export interface ArchiveDigests {
  readonly digest: Digest;
  readonly volumes: readonly Digest[];
}

/** Computes the digest of one volume. Throws the errors of openVolume and of reading, and `interrupted`. */
export async function hashVolume(volume: Volume, { signal }: Pick<Context, 'signal'>): Promise<Digest> {
  await using file = await openVolume(volume, false);
  return await hashFile(file, volume.path, signal);
}

/** Computes the digests of an archive and of its volumes in one pass over its bytes. */
export class VolumeHash {
  readonly #sizes: readonly number[];
  #whole = createHash('sha256');
  #current = createHash('sha256');
  #finished: Digest[] = [];
  /** The number of bytes that the current volume still lacks. */
  #left: number;

  constructor(volumes: readonly Pick<Volume, 'size'>[]) {
    this.#sizes = volumes.length > 1 ? volumes.map(({ size }) => size) : [];
    this.#left = this.#sizes[0] ?? Infinity;
  }

  update(bytes: Uint8Array): void {
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

  /** Returns a copy of the current state. */
  copy(): VolumeHash {
    const copy = new VolumeHash(this.#sizes.map((size) => ({ size })));
    copy.#whole = this.#whole.copy();
    copy.#current = this.#current.copy();
    copy.#finished = [...this.#finished];
    copy.#left = this.#left;
    return copy;
  }

  /** Returns the digests. Call it once, at the end. */
  finish(): ArchiveDigests {
    return { digest: `sha256:${this.#whole.digest('hex')}`, volumes: this.#finished };
  }

  #turn(): void {
    this.#finished.push(`sha256:${this.#current.digest('hex')}`);
    this.#current = createHash('sha256');
    this.#left = this.#sizes[this.#finished.length] ?? Infinity;
  }
}
