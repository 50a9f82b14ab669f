import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { BlobRecord } from '#bundle/metadata';
import { descriptorOf, listMissingBlobs, type Bundle } from '#bundle/open';
import { readChunks, readRange, openRegular } from '#content/files';
import { sumSizes, type Descriptor, type Digest } from '#content/oci';
import type { ServedFile } from '#content/server';
import { verifyStream } from '#content/store';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';

/**
 * The base blobs of a delta bundle as one file: one after another, in the order of its metadata. Nodes send them to
 * each other in this form. Undefined for a bundle that is no delta, or that was opened without its whole base.
 */
export async function serveBaseBlobs(bundle: Pick<Bundle, 'content' | 'metadata'>): Promise<ServedFile | undefined> {
  const blobs = bundle.metadata.base?.blobs;
  if (!blobs || (await listMissingBlobs(bundle)).length > 0) return undefined;
  async function* chunks(start: number, size: number): AsyncGenerator<Buffer> {
    for (const { blob, position } of placesOf(blobs ?? [])) {
      const [from, to] = [Math.max(start, position), Math.min(start + size, position + blob.size)];
      if (from < to) yield* bundle.content.chunks(descriptorOf(blob), from - position, to - position);
    }
  }
  return { size: sumSizes(blobs), chunks };
}

/**
 * Reads the base blobs with which a delta bundle was opened. Throws `digest-mismatch`, `interrupted`, and what reading
 * throws.
 */
export async function checkBaseBlobs({ content, metadata }: Bundle, { signal }: Context): Promise<void> {
  for (const blob of metadata.base?.blobs ?? []) {
    const descriptor = descriptorOf(blob);
    if (await content.exists(descriptor))
      for await (const _ of await content.fetch(descriptor)) checkInterrupted(signal);
  }
}

/** The content of a file with base blobs. Close it after use. */
export type BaseBlobs = Bundle['content'] & { close(): Promise<void> };

/**
 * Opens the file with the base blobs of a delta bundle. Undefined if there is none, or if its size differs. Throws what
 * opening a file throws.
 */
export async function openBaseBlobs(
  path: string,
  blobs: readonly BlobRecord[],
  { signal }: Context,
): Promise<BaseBlobs | undefined> {
  const file = await openRegular(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  });
  if (!file) return undefined;
  if ((await file.stat()).size === sumSizes(blobs)) return new BaseFile(path, file, blobs, signal);
  await file.close();
  return undefined;
}

/** Blobs that lie in a file one after another. */
class BaseFile implements BaseBlobs {
  readonly name: string;
  readonly #file: FileHandle;
  readonly #positions: ReadonlyMap<Digest, number>;
  readonly #signal: AbortSignal;

  constructor(path: string, file: FileHandle, blobs: readonly BlobRecord[], signal: AbortSignal) {
    this.name = path;
    this.#file = file;
    this.#positions = new Map(placesOf(blobs).map(({ blob, position }) => [blob.digest, position]));
    this.#signal = signal;
  }

  resolve(digest: string): Promise<Descriptor> {
    return Promise.reject(this.#lack(digest));
  }

  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    const position = this.#positions.get(descriptor.digest);
    if (position === undefined) return Promise.reject(this.#lack(descriptor.digest));
    const bytes = readRange(this.#file, this.name, position + start, descriptor.size - start, this.#signal);
    return Promise.resolve(verifyStream(bytes, descriptor, this.name, start));
  }

  async *chunks({ digest }: Descriptor, start: number, end: number): AsyncGenerator<Buffer> {
    const position = this.#positions.get(digest);
    if (position === undefined) throw this.#lack(digest);
    yield* readChunks(this.#file, this.name, position + start, end - start, this.#signal);
  }

  exists({ digest }: Descriptor): Promise<boolean> {
    return Promise.resolve(this.#positions.has(digest));
  }

  tags(): Promise<string[]> {
    return Promise.resolve([]);
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  #lack(digest: string): PluginError {
    return new PluginError('not-found', `${this.name} does not have ${digest}`);
  }
}

/** Where each blob begins in such a file, in bytes. */
function placesOf(blobs: readonly BlobRecord[]): { readonly blob: BlobRecord; readonly position: number }[] {
  let next = 0;
  return blobs.map((blob) => {
    const position = next;
    next += blob.size;
    return { blob, position };
  });
}
