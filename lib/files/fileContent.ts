import { open, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { checkInterrupted } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';

const chunkSize = 256 * 1024;

/**
 * Streams a file from an offset in bytes, unverified. The file is opened with the first byte that somebody wants, so
 * that a stream nobody reads holds nothing. The stream fails with `not-readable`, `not-found` and `interrupted`.
 */
export function readFileContent(path: string, signal: AbortSignal, start = 0): Readable {
  return readOpenFile(() => open(path, 'r'), path, signal, start);
}

/** Streams what `openFile` opens as readFileContent does; `path` is for the message. */
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
        const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(chunkSize), 0, chunkSize, position);
        if (bytesRead === 0) return;
        yield buffer.subarray(0, bytesRead);
        position += bytesRead;
      }
    } catch (error) {
      throw describeReadError(error, path);
    }
  };
  return Readable.from(read(), { objectMode: false, highWaterMark: chunkSize });
}

/** Turns what the file system said about reading into words: `not-found` or `not-readable`; a PluginError stays as it is. */
export function describeReadError(error: unknown, path: string): PluginError {
  if (isPluginError(error)) return error;
  const code = isMissing(error) ? 'not-found' : 'not-readable';
  return new PluginError(code, `${path} cannot be read: ${messageOf(error)}`, { cause: error });
}

/** Tells whether an error of the file system says that something is not there. */
export function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}
