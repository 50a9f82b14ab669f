import { open, type FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { checkInterrupted } from '../../context.ts';
import { isPluginError, messageOf, PluginError } from '../../errors.ts';

const chunkSize = 256 * 1024;

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
