import { createHash, type Hash } from 'node:crypto';
import { pipeline, Transform, type Readable } from 'node:stream';
import { PluginError } from '../errors.ts';
import { manifestSizeLimit, type Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/digest.ts';
import type { Piece } from '../files/fileRange.ts';

/**
 * One repository's content, for reading. Implemented by Registry, Directory and Archive. Each is opened
 * with a Context, whose signal ends every call with `interrupted`.
 */
export interface ContentSource {
  /** What to call this store in an error: `quay.io/openshift-release-dev/ocp-release`, or a path. */
  readonly name: string;

  /**
   * The descriptor of the manifest that a tag or a digest names: its true media type, digest and size.
   * Throws `not-found`.
   */
  resolve(tagOrDigest: string): Promise<Descriptor>;

  /**
   * The bytes of a blob or manifest from offset `start` (default 0), as a stream that fails with `digest-mismatch` or
   * `size-mismatch` at its end when the content is not what the descriptor says (only size where `start` is not 0).
   * The caller consumes or destroys it. Throws `not-found`.
   */
  fetch(descriptor: Descriptor, start?: number): Promise<Readable>;

  /** Tells whether the content is there, without reading it. */
  exists(descriptor: Descriptor): Promise<boolean>;

  /** The tags of the repository, in no particular order; empty where there are none. */
  tags(): Promise<string[]>;
}

/** A source whose content lies on this machine. */
export interface LocalContent {
  /**
   * The bytes of a blob or manifest from `start` to before `end`, unverified and read as they are asked for. Each chunk is overwritten with the one
   * after the next, so that none may be kept. Fails with `not-found`, `not-readable` and `interrupted`.
   */
  chunks(descriptor: Descriptor, start: number, end: number): AsyncIterable<Buffer>;
}

/** One repository's content, for reading and writing. */
export interface ContentStore extends ContentSource {
  /**
   * Stores content under its digest: idempotent and atomic, so that it is there whole and verified, or not at all.
   * `open` gives the bytes; it is called again, for a new stream, when an attempt failed halfway. What a manifest
   * points to must be there before it. Throws `digest-mismatch` and `size-mismatch` when the bytes are not the descriptor's.
   */
  push(descriptor: Descriptor, open: () => Promise<Readable>): Promise<void>;

  /** Points a tag at a manifest that is there; moves it when it pointed elsewhere. */
  tag(descriptor: Descriptor, tag: string): Promise<void>;

  /** Makes everything that was pushed durable and lets go of files and connections. */
  close(): Promise<void>;
}

/**
 * Reads a manifest, a configuration or another small piece of content whole, verified against its descriptor.
 * Throws `too-large` above the limit (bytes) before reading anything, `digest-mismatch` and `size-mismatch`.
 */
export async function readContent(
  source: Pick<ContentSource, 'name' | 'fetch'>,
  descriptor: Descriptor,
  limit: number = manifestSizeLimit,
): Promise<Buffer> {
  if (descriptor.size > limit) {
    throw new PluginError(
      'too-large',
      `${descriptor.digest} in ${source.name} has ${descriptor.size} bytes, more than the limit of ${limit}`,
    );
  }
  const chunks: Buffer[] = [];
  for await (const chunk of await source.fetch(descriptor)) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/**
 * A stream with the same bytes, that ends in `size-mismatch` or `digest-mismatch` when they are not the descriptor's.
 * From a `start` other than 0, where the digest cannot be known, only the size is checked.
 */
export function verifyStream(stream: Readable, descriptor: Descriptor, where: string, start = 0): Readable {
  const verifier = new Verifier(descriptor, where, start);
  const check = new Transform({
    readableHighWaterMark: 1024 * 1024,
    transform(chunk: Buffer, _encoding, done) {
      done(
        attempt(() => {
          verifier.update(chunk);
        }),
        chunk,
      );
    },
    flush(done) {
      done(
        attempt(() => {
          verifier.finish();
        }),
      );
    },
  });
  // The error arrives through the returned stream; the callback only keeps it from being thrown a second time.
  return pipeline(stream, check, () => undefined);
}

function attempt(action: () => void): Error | null {
  try {
    action();
    return null;
  } catch (error) {
    return error as Error;
  }
}

/**
 * Checks bytes against a descriptor as they pass: feed every chunk to `update`, then call `finish`.
 * `update` throws `size-mismatch` as soon as there are too many bytes, `finish` when there are too few, and
 * `digest-mismatch` when they are not the ones that the digest names. `where` is for the message. From a `start` other
 * than 0, where the digest cannot be known, only the size is checked.
 */
export class Verifier {
  readonly #descriptor: Pick<Descriptor, 'digest' | 'size'>;
  readonly #where: string;
  readonly #hash: Hash | undefined;
  #length: number;

  constructor(descriptor: Pick<Descriptor, 'digest' | 'size'>, where: string, start = 0) {
    this.#descriptor = descriptor;
    this.#where = where;
    this.#hash = start === 0 ? createHash('sha256') : undefined;
    this.#length = start;
  }

  /** How many bytes have been seen, those before the start included. */
  get length(): number {
    return this.#length;
  }

  update(chunk: Uint8Array): void {
    this.#length += chunk.length;
    if (this.#length > this.#descriptor.size) throw this.#wrongSize('more');
    this.#hash?.update(chunk);
  }

  /** Tells whether the bytes were exactly the descriptor's. To be asked once, at the end, instead of `finish`. */
  matches(): boolean {
    return this.#length === this.#descriptor.size && this.#digest() === this.#descriptor.digest;
  }

  finish(): void {
    if (this.#length < this.#descriptor.size) throw this.#wrongSize(`${this.#length} bytes, fewer`);
    const digest = this.#digest();
    if (digest !== this.#descriptor.digest) {
      throw new PluginError(
        'digest-mismatch',
        `${this.#where}: the content of ${this.#descriptor.digest} is corrupt (its digest is ${digest})`,
      );
    }
  }

  #digest(): Digest {
    return this.#hash ? `sha256:${this.#hash.digest('hex')}` : this.#descriptor.digest;
  }

  #wrongSize(has: string): PluginError {
    const { digest, size } = this.#descriptor;
    return new PluginError(
      'size-mismatch',
      `${this.#where}: ${digest} has ${has} than the ${size} bytes it should have`,
    );
  }
}

/** Where some content belongs, in one file or across several, and how much of it is there already (bytes). */
export interface ContentPlace {
  readonly path: string;
  readonly pieces: readonly Piece[];
  readonly present: number;
  /** The memory of the WriteTurn of those who write into the same file. */
  readonly writing?: SharedArrayBuffer;
}
