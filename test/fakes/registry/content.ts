import { Readable } from 'node:stream';

/**
 * Content that is generated when it is read, so that it need not fit in memory. `size` is in bytes; `Infinity` for
 * endless content.
 */
export interface GeneratedBody {
  readonly size: number;
  /** Returns the bytes from offset `start` to the end. */
  open(start: number): Readable;
}

/** Content of a test server. */
export type Body = Buffer | GeneratedBody;

/** A pushed manifest: its bytes and its Content-Type. */
export interface StoredManifest {
  mediaType: string;
  bytes: Buffer;
}

/** One repository: its manifests by digest, and the digests of its tags. */
export interface RepositoryContent {
  manifests: Map<string, StoredManifest>;
  tags: Map<string, string>;
}

/** The content of a registry. Blobs are stored once, by digest, for all repositories. */
export interface RegistryContent {
  blobs: Map<string, Body>;
  repositories: Map<string, RepositoryContent>;
}

/** Returns the content of an empty registry. */
export function emptyContent(): RegistryContent {
  return { blobs: new Map(), repositories: new Map() };
}

/** Returns one repository of some content. Creates it if it does not exist. */
export function repositoryOf(content: RegistryContent, name: string): RepositoryContent {
  let repository = content.repositories.get(name);
  if (!repository) {
    repository = { manifests: new Map(), tags: new Map() };
    content.repositories.set(name, repository);
  }
  return repository;
}

/** Returns the size of a body in bytes. */
export function sizeOf(body: Body): number {
  return Buffer.isBuffer(body) ? body.length : body.size;
}

/** Returns a body of `size` bytes (`Infinity` for endless) that repeats `pattern`. It is the same at each read. */
export function generatedBody(size: number, pattern: Buffer = Buffer.alloc(64 * 1024, 'endless ')): GeneratedBody {
  function* pieces(start: number): Generator<Buffer> {
    for (let at = start; at < size;) {
      const within = at % pattern.length;
      const piece = pattern.subarray(within, Math.min(pattern.length, within + size - at));
      yield piece;
      at += piece.length;
    }
  }
  return { size, open: (start) => Readable.from(pieces(start), { objectMode: false }) };
}

const pieceSize = 256 * 1024;

/** Yields the bytes of a body from `start` to before `end`, in parts of at most 256 KiB. */
export async function* readBody(body: Body, start = 0, end: number = sizeOf(body)): AsyncGenerator<Buffer> {
  let left = end - start;
  const source = Buffer.isBuffer(body) ? [body.subarray(start, end)] : body.open(start);
  for await (const chunk of source as AsyncIterable<Buffer> | Buffer[]) {
    const wanted = chunk.subarray(0, Math.min(chunk.length, left));
    for (let at = 0; at < wanted.length; at += pieceSize) yield wanted.subarray(at, at + pieceSize);
    left -= wanted.length;
    if (left <= 0) return;
  }
}
