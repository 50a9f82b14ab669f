import { Readable } from 'node:stream';

/** Content that is made while it is read, so that it need not fit in memory. `size` in bytes; `Infinity` for one that never ends. */
export interface GeneratedBody {
  readonly size: number;
  /** The bytes from offset `start` to the end. */
  open(start: number): Readable;
}

/** Bytes as a test server holds them. */
export type Body = Buffer | GeneratedBody;

/** A manifest as it was put: its bytes and its Content-Type. */
export interface StoredManifest {
  mediaType: string;
  bytes: Buffer;
}

/** One repository: its manifests by digest, its tags as names of digests. */
export interface RepositoryContent {
  manifests: Map<string, StoredManifest>;
  tags: Map<string, string>;
}

/** What a registry holds. Blobs are kept once, by digest, for all repositories. */
export interface RegistryContent {
  blobs: Map<string, Body>;
  repositories: Map<string, RepositoryContent>;
}

/** A registry's content with nothing in it. */
export function emptyContent(): RegistryContent {
  return { blobs: new Map(), repositories: new Map() };
}

/** One repository of some content; made, empty, where it was not there. */
export function repositoryOf(content: RegistryContent, name: string): RepositoryContent {
  let repository = content.repositories.get(name);
  if (!repository) {
    repository = { manifests: new Map(), tags: new Map() };
    content.repositories.set(name, repository);
  }
  return repository;
}

/** How many bytes a body has. */
export function sizeOf(body: Body): number {
  return Buffer.isBuffer(body) ? body.length : body.size;
}

/** A body of `size` bytes (`Infinity` for endless) which repeats `pattern`, the same at every reading. */
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

/** The bytes of a body from `start` up to `end` (not included), in pieces of at most 256 KiB. */
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
