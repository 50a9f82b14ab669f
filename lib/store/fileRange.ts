import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { checkInterrupted } from '../context.ts';
import { describeReadError } from './fileContent.ts';

const chunkSize = 1024 * 1024;

/**
 * Streams `size` bytes of an open file from the offset `start` on, unverified; it ends early where the file does. Many
 * streams of one file may be read side by side; none of them closes it. The stream fails with `not-readable` and
 * `interrupted`. `path` is for the message.
 */
export function readRange(file: FileHandle, path: string, start: number, size: number, signal: AbortSignal): Readable {
  const read = async function* (): AsyncGenerator<Buffer> {
    for (let done = 0; done < size;) {
      checkInterrupted(signal);
      const length = Math.min(chunkSize, size - done);
      const { bytesRead, buffer } = await file
        .read(Buffer.allocUnsafeSlow(length), 0, length, start + done)
        .catch((error: unknown) => {
          throw describeReadError(error, `byte ${String(start + done)} of ${path}`);
        });
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
      done += bytesRead;
    }
  };
  return Readable.from(read(), { objectMode: false, highWaterMark: chunkSize });
}

/** Writes all of some bytes at an offset of an open file: a disk that is almost full takes only a part at first. */
export async function writeFully(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}
