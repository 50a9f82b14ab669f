import { createHash } from 'node:crypto';
import { readSync, writeSync } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { checkInterrupted } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import type { Digest } from '../oci/reference.ts';

const chunkSize = 1024 * 1024;

/** Bytes at offsets: a FileHandle, or several that are read as one. */
export interface RandomAccess {
  read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number; readonly buffer: Buffer }>;
  write(buffer: Buffer, offset: number, length: number, position: number): Promise<{ readonly bytesWritten: number }>;
}

/** A range of an open file: `size` bytes from `position` on. */
export interface Piece {
  readonly path: string;
  readonly fd: number;
  readonly position: number;
  readonly size: number;
}

/**
 * Streams `size` bytes of an open file from the offset `start`, unverified; fewer at the end of the file. Several
 * streams of one file may be read concurrently, and none closes it. The stream fails with `not-readable` and
 * `interrupted`. `path` is for messages.
 */
export function readRange(
  file: Pick<RandomAccess, 'read'>,
  path: string,
  start: number,
  size: number,
  signal: AbortSignal,
): Readable {
  const chunks = read(file, path, start, size, signal, (length) => Buffer.allocUnsafeSlow(length));
  return Readable.from(chunks, { objectMode: false, highWaterMark: chunkSize });
}

/** Buffers of `chunkSize` bytes for reuse. */
const spare: Buffer[] = [];
const spareLimit = 12;

/**
 * Reads `size` bytes of an open file from the offset `start` as readRange does, with at most two buffers. Each chunk is
 * overwritten by the one after the next, and all of them after the end. New buffers for many gigabytes cost more than
 * reading them.
 */
export async function* readChunks(
  file: Pick<RandomAccess, 'read'>,
  path: string,
  start: number,
  size: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const buffers: Buffer[] = [];
  const isLarge = size >= chunkSize;
  let count = 0;
  try {
    yield* read(file, path, start, size, signal, () => {
      const turn = count++ % 2;
      return (buffers[turn] ??= isLarge
        ? (spare.pop() ?? Buffer.allocUnsafeSlow(chunkSize))
        : Buffer.allocUnsafe(size));
    });
  } finally {
    if (isLarge) spare.push(...buffers.slice(0, spareLimit - spare.length));
  }
}

/** Computes the digest of an open file, from its start to its end. Fails as readRange does. */
export async function hashFile(file: Pick<RandomAccess, 'read'>, path: string, signal: AbortSignal): Promise<Digest> {
  const hash = createHash('sha256');
  for await (const chunk of readChunks(file, path, 0, Infinity, signal)) hash.update(chunk);
  return `sha256:${hash.digest('hex')}`;
}

/**
 * Does the same as readChunks, but reads into shared memory, and reads the next chunk while the caller uses the last
 * one.
 */
export async function* readAhead(
  file: Pick<RandomAccess, 'read'>,
  path: string,
  start: number,
  size: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const buffers: Buffer[] = [];
  let count = 0;
  const chunks = read(file, path, start, size, signal, () => {
    return (buffers[count++ % 3] ??= Buffer.from(new SharedArrayBuffer(chunkSize)));
  });
  let next = chunks.next();
  try {
    for (let chunk = await next; chunk.done !== true; chunk = await next) {
      next = chunks.next();
      // The caller may stop before it requests the unreadable chunk.
      next.catch(() => undefined);
      yield chunk.value;
    }
  } finally {
    // Wait, because the caller may then close the file.
    await next.catch(() => undefined);
  }
}

async function* read(
  file: Pick<RandomAccess, 'read'>,
  path: string,
  start: number,
  size: number,
  signal: AbortSignal,
  takeBuffer: (length: number) => Buffer,
): AsyncGenerator<Buffer> {
  for (let done = 0; done < size;) {
    checkInterrupted(signal);
    const length = Math.min(chunkSize, size - done);
    const { bytesRead, buffer } = await file
      .read(takeBuffer(length), 0, length, start + done)
      .catch((error: unknown) => {
        throw describeReadError(error, `byte ${start + done} of ${path}`);
      });
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
    done += bytesRead;
  }
}

/**
 * Reads `size` bytes of an open file from the offset `start` into memory; fewer at the end of the file. Fails as
 * readRange does.
 */
export async function readFully(
  file: Pick<RandomAccess, 'read'>,
  path: string,
  start: number,
  size: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(size);
  let done = 0;
  const rest = (): Buffer => bytes.subarray(done);
  for await (const chunk of read(file, path, start, size, signal, rest)) done += chunk.length;
  return bytes.subarray(0, done);
}

/** Writes all bytes at an offset of an open file. A disk that is almost full first accepts only a part. */
export async function writeFully(file: RandomAccess, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}

/** Fills a buffer from ranges of files, from `offset` bytes after their start, synchronously. */
export function readPieces(pieces: readonly Piece[], buffer: Buffer, offset: number): void {
  eachPiece(pieces, offset, buffer.length, (piece, done, length, position) =>
    readSync(piece.fd, buffer, done, length, position),
  );
}

/** Writes bytes into ranges of files, from `offset` bytes after their start, synchronously. */
export function writePieces(pieces: readonly Piece[], bytes: Buffer, offset: number): void {
  eachPiece(pieces, offset, bytes.length, (piece, done, length, position) =>
    writeSync(piece.fd, bytes, done, length, position),
  );
}

/**
 * Calls `move` for each range until `size` bytes are moved, or `move` moves none. `move` returns the number of moved
 * bytes.
 */
function eachPiece(
  pieces: readonly Piece[],
  offset: number,
  size: number,
  move: (piece: Piece, done: number, length: number, position: number) => number,
): void {
  let start = 0;
  let done = 0;
  for (const piece of pieces) {
    const end = start + piece.size;
    while (done < size && offset + done < end) {
      const at = offset + done - start;
      const moved = move(piece, done, Math.min(size - done, piece.size - at), piece.position + at);
      if (moved === 0) return;
      done += moved;
    }
    start = end;
  }
}

const readSize = 256 * 1024;

/**
 * Streams a file, unverified. Opens the file at the first read, so that an unused stream keeps no file open. The stream
 * fails with `not-readable`, `not-found` and `interrupted`.
 */
export function readFileContent(path: string, signal: AbortSignal): Readable {
  return readOpenFile(() => open(path, 'r'), path, signal);
}

/** Streams the file that `openFile` opens, as readFileContent does. `path` is for messages. */
export function readOpenFile(
  openFile: () => Promise<FileHandle>,
  path: string,
  signal: AbortSignal,
  start = 0,
): Readable {
  const read = async function* (): AsyncGenerator<Buffer> {
    try {
      await using file = await openFile();
      for (let position = start; ;) {
        checkInterrupted(signal);
        const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(readSize), 0, readSize, position);
        if (bytesRead === 0) return;
        yield buffer.subarray(0, bytesRead);
        position += bytesRead;
      }
    } catch (error) {
      throw describeReadError(error, path);
    }
  };
  return Readable.from(read(), { objectMode: false, highWaterMark: readSize });
}

/** Explains an error of reading: `not-found` or `not-readable`. Returns a PluginError unchanged. */
export function describeReadError(error: unknown, path: string): PluginError {
  if (isPluginError(error)) return error;
  const code = isMissing(error) ? 'not-found' : 'not-readable';
  return new PluginError(code, `${path} cannot be read: ${messageOf(error)}`, { cause: error });
}

/** Returns whether an error means that a file does not exist. */
export function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}

/** Returns undefined for the error of a missing file, and throws any other error. For the `catch` of a promise. */
export function ignoreMissing(error: unknown): undefined {
  if (!isMissing(error) && !isPluginError(error, 'not-found')) throw error;
}
