import { createHash, type Hash } from 'node:crypto';
import { metadataPath, metadataSizeLimit, parseMetadata, type BlobRecord, type BundleMetadata } from '#bundle/metadata';
import type { Bundle } from '#bundle/open';
import { encodeHeader, endSize, roundToBlock, isHeader } from '#content/archive';
import type { Digest } from '#content/oci';
import { releaseRepository } from '#content/store';
import { messageOf } from '#errors';

/** The size of the first header of a tar, in bytes. */
const startSize = 512;

/** The size of the first header and of the largest metadata.json, in bytes. */
export const largestStart = startSize + metadataSizeLimit;

/** What a verified record says about the tar of a bundle. */
export interface BundleOutline {
  /** The size of the tar, in bytes. */
  readonly size: number;
  /** The size and the digest of everything before the first blob; undefined if another program packed the tar. */
  readonly head?: { readonly size: number; readonly digest: Digest };
}

/** Computes the outline of a bundle while its bytes are read in order. */
export class OutlineHash {
  /** The bytes before the first blob; undefined if the tar is not as `create` lays it out. */
  readonly headSize: number | undefined;
  readonly #bundle: Pick<Bundle, 'size'>;
  readonly #hash = createHash('sha256');
  #left: number;

  constructor(bundle: Pick<Bundle, 'metadata' | 'size' | 'files' | 'isRepacked'>) {
    this.#bundle = bundle;
    this.headSize = isLaidOut(bundle) ? sizeOfHead(bundle.metadata) : undefined;
    this.#left = this.headSize ?? 0;
  }

  /** Takes the next bytes of the tar. */
  update(chunk: Buffer): void {
    if (this.#left > 0) this.#hash.update(chunk.subarray(0, this.#left));
    this.#left = Math.max(0, this.#left - chunk.length);
  }

  /** Returns the outline, after all bytes of the head. */
  finish(): BundleOutline {
    const { size } = this.#bundle;
    if (this.headSize === undefined) return { size };
    return { size, head: { size: this.headSize, digest: `sha256:${this.#hash.digest('hex')}` } };
  }
}

function isLaidOut({ metadata, size, files, isRepacked }: ConstructorParameters<typeof OutlineHash>[0]): boolean {
  const { blobs } = metadata;
  const last = files.slice(-blobs.length || files.length);
  const areLast = blobs.every(({ digest, size }, index) => {
    const file = last[index];
    return file?.path === blobPath(digest) && file.size === size;
  });
  return !isRepacked && size === metadata.size && areLast;
}

/** A part of a file, and what its bytes must be. Sizes are in bytes. */
type Part =
  | { readonly kind: 'exact'; readonly size: number; readonly bytes: Buffer }
  /** `isKept`: the plan needs its bytes. */
  | { readonly kind: 'blob'; readonly size: number; readonly digest: Digest; readonly isKept?: boolean }
  /** Kept for the plan, which has no digest of it. */
  | { readonly kind: 'claim'; readonly size: number }
  /** Only the digest of the whole file can prove it. */
  | { readonly kind: 'unknown'; readonly size: number };

/** The parts of a file in order. Gets the kept bytes of each. Throws the reason why they are wrong. */
type Plan = Generator<Part, void, Buffer>;

/**
 * Checks the bytes of a file as they come, against the digests of its parts and of the whole. A wrong part is found at
 * its end, and what was checked before it stays.
 */
export class ContentCheck {
  readonly #plan: () => Plan;
  readonly #digest: Digest | undefined;
  #parts: Plan;
  #part: Part | undefined;
  #whole = createHash('sha256');
  /** The state of `#whole` at the start of the part. */
  #wholeBefore: Hash = this.#whole.copy();
  #hash = createHash('sha256');
  #kept: Buffer[] = [];
  #done = 0;
  #verified = 0;
  #wrong: string | undefined;

  /** `digest`: of the whole file, if it has one. */
  constructor(plan: () => Plan, digest?: Digest) {
    this.#plan = plan;
    this.#digest = digest;
    this.#parts = plan();
    this.#advance(Buffer.alloc(0));
  }

  /** The number of bytes from the start whose parts are complete and right. */
  get verified(): number {
    return this.#verified;
  }

  /** The number of bytes that were checked, with those of the incomplete part. */
  get position(): number {
    return this.#verified + this.#done;
  }

  /** Why the bytes are wrong, as the rest of a sentence about the file; undefined while they are right. */
  get wrong(): string | undefined {
    return this.#wrong;
  }

  /** Whether all parts are complete and right. */
  get isComplete(): boolean {
    return this.#part === undefined && this.#wrong === undefined;
  }

  /** Checks the next bytes. Does nothing once the bytes are wrong. */
  update(bytes: Buffer): void {
    for (let rest = bytes; rest.length > 0 && this.#wrong === undefined;) {
      const part = this.#part;
      if (!part) {
        this.#wrong = `it has more than ${this.#verified} bytes`;
        return;
      }
      const own = rest.subarray(0, part.size - this.#done);
      if (part.kind === 'exact' && !own.equals(part.bytes.subarray(this.#done, this.#done + own.length))) {
        this.#wrong = `it differs from what create writes at byte ${this.position}`;
        return;
      }
      this.#whole.update(own);
      if (part.kind === 'blob') this.#hash.update(own);
      // The chunk is valid during this call only.
      if (part.kind === 'claim' || (part.kind === 'blob' && part.isKept)) this.#kept.push(Buffer.from(own));
      this.#done += own.length;
      rest = rest.subarray(own.length);
      if (this.#done === part.size) this.#finish(part);
    }
  }

  /** Takes the end of the bytes: they are wrong if parts are missing. */
  end(): void {
    if (!this.isComplete) this.#wrong ??= `it ends at byte ${this.position}`;
  }

  /** Forgets everything after the verified parts. The next bytes are those from `verified` on. */
  rewind(): void {
    this.#wrong = undefined;
    this.#whole = this.#wholeBefore.copy();
    this.#startPart();
  }

  /** Forgets everything, also what was verified against a claim. */
  restart(): void {
    this.#wrong = undefined;
    this.#verified = 0;
    this.#whole = createHash('sha256');
    this.#parts = this.#plan();
    this.#advance(Buffer.alloc(0));
  }

  #finish(part: Part): void {
    const actual = `sha256:${this.#hash.digest('hex')}`;
    if (part.kind === 'blob' && actual !== part.digest) {
      const end = this.position;
      this.#wrong = `the digest of bytes ${this.#verified} to ${end} is ${actual}, not ${part.digest}`;
      return;
    }
    this.#verified += this.#done;
    this.#advance(Buffer.concat(this.#kept));
  }

  /** Goes to the next part that has bytes, and compares the digest of the whole after the last one. */
  #advance(kept: Buffer): void {
    try {
      const { value, done } = this.#parts.next(kept);
      this.#part = done === true ? undefined : value;
      this.#wholeBefore = this.#whole.copy();
      this.#startPart();
      if (this.#part?.size === 0) this.#finish(this.#part);
      else if (!this.#part) this.#compareWhole();
    } catch (error) {
      // Everything before it may be wrong too, because only claims described it.
      this.restart();
      this.#wrong = messageOf(error);
    }
  }

  #compareWhole(): void {
    const actual = `sha256:${this.#whole.copy().digest('hex')}`;
    if (this.#digest !== undefined && actual !== this.#digest)
      throw new Error(`the digest of all its bytes is ${actual}, not ${this.#digest}`);
  }

  #startPart(): void {
    this.#done = 0;
    this.#hash = createHash('sha256');
    this.#kept = [];
  }
}

/** Checks blobs that follow one another, each by its digest. */
export function checkSequence(blobs: readonly BlobRecord[]): ContentCheck {
  return new ContentCheck(function* () {
    for (const { digest, size } of blobs) yield { kind: 'blob', size, digest };
  });
}

/**
 * Checks the tar of a bundle: metadata.json and its other small files, then each blob by its digest, with every byte
 * between them. Without an outline, metadata.json is the claim of a sender, and only the digest of the whole proves it.
 * `size`: of the tar, in bytes. `isAnyTar`: of a tar that another program packed, check only the digest of the whole.
 */
export function checkTar(
  digest: Digest,
  size: number,
  { head, isAnyTar = false }: Pick<BundleOutline, 'head'> & { readonly isAnyTar?: boolean | undefined } = {},
): ContentCheck {
  return new ContentCheck(function* () {
    const start = head
      ? yield { kind: 'blob', size: head.size, digest: head.digest, isKept: true }
      : yield { kind: 'claim', size: startSize };
    const header = start.subarray(0, startSize);
    if (isAnyTar && !isOwnStart(header)) {
      if (!isHeader(header) || size <= startSize) throw new Error('it is not a tar');
      return void (yield { kind: 'unknown', size: size - startSize });
    }
    const length = readMetadataSize(header);
    const padding = roundToBlock(length) - length;
    const content = head ? start.subarray(startSize, startSize + length) : yield { kind: 'claim', size: length };
    const metadata = parseMetadata(content, 'it');
    if (metadata.size !== size) throw new Error(`its metadata.json states ${metadata.size} bytes, not ${size}`);
    const headSize = sizeOfHead(metadata);
    if (head && head.size !== headSize) throw new Error(`its first blob begins at byte ${headSize}, not ${head.size}`);
    const rest = headSize - startSize - length;
    if (rest < padding) throw new Error('its metadata.json states too few bytes');
    if (!head) yield { kind: 'unknown', size: rest };
    for (const { digest, size } of metadata.blobs) {
      yield exactly(blobHeader({ digest, size }));
      yield { kind: 'blob', size, digest };
      yield exactly(Buffer.alloc(roundToBlock(size) - size));
    }
    yield exactly(Buffer.alloc(endSize));
  }, digest);
}

/** Checks a file of which only the size in bytes and the digest are known. */
export function checkWhole(digest: Digest, size: number): ContentCheck {
  return new ContentCheck(function* () {
    yield { kind: 'unknown', size };
  }, digest);
}

/**
 * Returns the size of the tar that its metadata.json states, in bytes; undefined if that is incomplete or malformed.
 * `start`: the first `largestStart` bytes of a tar, or fewer.
 */
export function readStatedSize(start: Buffer): number | undefined {
  try {
    const end = startSize + readMetadataSize(start.subarray(0, startSize));
    return end <= start.length ? parseMetadata(start.subarray(startSize, end), 'it').size : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the size of everything in the tar of a bundle before the first blob, in bytes, as `create` lays it out. */
function sizeOfHead({ size, blobs }: Pick<BundleMetadata, 'size' | 'blobs'>): number {
  const taken = blobs.map((blob) => blobHeader(blob).length + roundToBlock(blob.size));
  return taken.reduce((rest, bytes) => rest - bytes, size - endSize);
}

function exactly(bytes: Buffer): Part {
  return { kind: 'exact', size: bytes.length, bytes };
}

function blobPath(digest: Digest): string {
  return `v2/${releaseRepository}/blobs/${digest}`;
}

function blobHeader({ digest, size }: BlobRecord): Buffer {
  return encodeHeader({ path: blobPath(digest), content: Buffer.alloc(0) }, size);
}

function isOwnStart(header: Buffer): boolean {
  try {
    return readMetadataSize(header) > 0;
  } catch {
    return false;
  }
}

/** Reads the size of metadata.json from the first header of a tar, which must be as `create` writes it. */
function readMetadataSize(header: Buffer): number {
  const [digits = ''] = /^[0-7]+/.exec(header.toString('latin1', 124, 136)) ?? [];
  const size = Number.parseInt(digits, 8);
  const isOwn = encodeHeader({ path: metadataPath, content: Buffer.alloc(0) }, size || 0).equals(header);
  if (!isOwn || size > metadataSizeLimit) throw new Error(`it does not begin with ${metadataPath}`);
  return size;
}
