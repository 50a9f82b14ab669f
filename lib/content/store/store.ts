import { createHash, type Hash } from 'node:crypto';
import { pipeline, Transform, type Readable } from 'node:stream';
import { isPluginError, PluginError } from '#errors';
import type { Piece } from '../files/fileRange.ts';
import { manifestSizeLimit, parseManifest, type Descriptor, type Manifest } from '../oci/descriptor.ts';
import type { Digest } from '../oci/reference.ts';

/**
 * The content of one repository, for reading. Implemented by Registry, Directory and Archive. Each is opened with a
 * Context, and its signal ends every call with `interrupted`.
 */
export interface ContentSource {
  /** The name of this store in messages: `quay.io/openshift-release-dev/ocp-release`, or a path. */
  readonly name: string;

  /** Returns the descriptor of a manifest by tag or digest: its media type, digest and size. Throws `not-found`. */
  resolve(tagOrDigest: string): Promise<Descriptor>;

  /**
   * Returns the bytes of a blob or manifest from offset `start` (default 0) as a stream. The stream fails at its end
   * with `digest-mismatch` or `size-mismatch` if the content differs from the descriptor. If `start` is not 0, only the
   * size is checked. The caller consumes or destroys the stream. Throws `not-found`.
   */
  fetch(descriptor: Descriptor, start?: number): Promise<Readable>;

  /** Returns whether the content exists, without reading it. */
  exists(descriptor: Descriptor): Promise<boolean>;

  /** Returns the tags of the repository, in no order; empty if there are none. */
  tags(): Promise<string[]>;

  /**
   * Returns the tags of the repository, if the source is remote, and if some pages have them all. Otherwise undefined:
   * the registry may not list its tags.
   */
  knownTags?(pages: number): Promise<ReadonlySet<string> | undefined>;

  /**
   * Lists the manifests that refer to an image by the API of OCI 1.1. Undefined if the source is local or lacks the
   * API.
   */
  referrers?(subject: Digest): Promise<readonly Descriptor[] | undefined>;
}

/** A source on this machine, which can be read from any byte on. */
export interface LocalContent {
  /**
   * Reads a blob or manifest from `start` to before `end`, unverified, on demand. Each chunk is overwritten by the one
   * after the next, so callers copy the bytes that they keep. Fails with `not-found`, `not-readable` and `interrupted`.
   */
  chunks(descriptor: Descriptor, start: number, end: number): AsyncIterable<Buffer>;
}

/** The content of one repository, for reading and writing. */
export interface ContentStore extends ContentSource {
  /**
   * Stores content by its digest. This is idempotent and atomic: content is stored completely and verified, or not at
   * all. `open` returns the bytes, and is called again for each attempt. Push the content of a manifest before the
   * manifest. Throws `digest-mismatch` and `size-mismatch` if the bytes differ from the descriptor.
   */
  push(descriptor: Descriptor, open: () => Promise<Readable>): Promise<void>;

  /** Sets a tag to an existing manifest, or moves an existing tag. */
  tag(descriptor: Descriptor, tag: string): Promise<void>;

  /** Syncs pushed content to disk, and closes files and connections. */
  close(): Promise<void>;
}

/**
 * Reads a manifest, a configuration or other small content, and verifies it against its descriptor. Throws `too-large`
 * above the limit (bytes) before reading, `digest-mismatch` and `size-mismatch`.
 */
export async function readContent(
  source: Pick<ContentSource, 'name' | 'fetch'>,
  descriptor: Descriptor,
  limit: number = manifestSizeLimit,
): Promise<Buffer> {
  if (descriptor.size > limit) {
    const message = `${descriptor.digest} in ${source.name} has ${descriptor.size} bytes, more than the limit of ${limit}`;
    throw new PluginError('too-large', message);
  }
  const chunks: Buffer[] = [];
  for await (const chunk of await source.fetch(descriptor)) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

/** Reads and parses a manifest. Throws `invalid-manifest` and the errors of readContent. */
export async function readImageManifest(
  source: Pick<ContentSource, 'name' | 'fetch'>,
  descriptor: Descriptor,
): Promise<Manifest> {
  return parseManifest(await readContent(source, descriptor), `${descriptor.digest} in ${source.name}`);
}

/**
 * Returns a stream with the same bytes. The stream fails with `size-mismatch` or `digest-mismatch` if they differ from
 * the descriptor. If `start` is not 0, only the size is checked, because the digest is unknown.
 */
export function verifyStream(stream: Readable, descriptor: Descriptor, where: string, start = 0): Readable {
  const verifier = new Verifier(descriptor, where, start);
  let isComplete = false;
  const finish = (): void => {
    if (!isComplete) verifier.finish();
    isComplete = true;
  };
  const check = new Transform({
    readableHighWaterMark: 1024 * 1024,
    transform(chunk: Buffer, _encoding, done) {
      const error = attempt(() => {
        verifier.update(chunk);
        // Verify before the last bytes move on. Otherwise the destination would receive all of a
        // corrupt blob and detect the fault first.
        if (verifier.length === descriptor.size) finish();
      });
      done(error, chunk);
    },
    flush(done) {
      done(attempt(finish));
    },
  });
  // The returned stream has the error. The callback only prevents a second throw.
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

/** Returns whether an error says that content is corrupt, or that its file cannot be read. */
export function isDamage(error: unknown): error is PluginError {
  return isPluginError(error) && ['digest-mismatch', 'size-mismatch', 'not-readable'].includes(error.code);
}

/**
 * Verifies bytes against a descriptor: pass each chunk to `update`, then call `finish`. `update` throws `size-mismatch`
 * for too many bytes; `finish` for too few, and `digest-mismatch` for another digest. `where` is for messages. If
 * `start` is not 0, only the size is checked, because the digest is unknown.
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

  /** The number of bytes so far, including the bytes before the start. */
  get length(): number {
    return this.#length;
  }

  update(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#length += chunk.length;
    if (this.#length > this.#descriptor.size) throw this.#wrongSize('more');
    this.#hash?.update(chunk);
  }

  /** Returns whether the bytes match the descriptor. Call it once at the end, instead of `finish`. */
  matches(): boolean {
    return this.#length === this.#descriptor.size && this.#digest() === this.#descriptor.digest;
  }

  finish(): void {
    if (this.#length < this.#descriptor.size) throw this.#wrongSize(`${this.#length} bytes, fewer`);
    const digest = this.#digest();
    if (digest !== this.#descriptor.digest) {
      const message = `${this.#where}: the content of ${this.#descriptor.digest} is corrupt (its digest is ${digest})`;
      throw new PluginError('digest-mismatch', message);
    }
  }

  #digest(): Digest {
    return this.#hash ? `sha256:${this.#hash.digest('hex')}` : this.#descriptor.digest;
  }

  #wrongSize(has: string): PluginError {
    const { digest, size } = this.#descriptor;
    const message = `${this.#where}: ${digest} has ${has} than the ${size} bytes it should have`;
    return new PluginError('size-mismatch', message);
  }
}

/** The place of content in one or more files, and the number of bytes that already exist. */
export interface ContentPlace {
  readonly path: string;
  readonly pieces: readonly Piece[];
  readonly present: number;
  /** The memory of the WriteTurn of all writers of the file. */
  readonly writing?: SharedArrayBuffer;
}
