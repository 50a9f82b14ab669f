import type { Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';

const pieceSize = 64 * 1024;
const gzip = Buffer.from([0x1f, 0x8b]);
const zstd = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);

/**
 * Decompresses gzip, zstd or plain bytes, chunk by chunk. Passes every unpacked byte to `take`, in pieces of at most 64
 * KiB of compressed content. An error of `take` stops it.
 */
export class Decompressor {
  readonly #take: (bytes: Buffer) => void;
  /** The first bytes, until they show the format. */
  #head: Buffer | undefined = Buffer.alloc(0);
  /** Undefined for plain bytes. */
  #stream: Transform | undefined;
  #failure: Error | undefined;

  constructor(take: (bytes: Buffer) => void) {
    this.#take = take;
  }

  /** Decompresses a chunk. Throws the error of `take`, or that of the format. */
  async write(chunk: Buffer): Promise<void> {
    if (!this.#head) return this.#pass(chunk);
    this.#head = Buffer.concat([this.#head, chunk]);
    if (this.#head.length >= zstd.length) await this.#begin(this.#head);
  }

  /** Decompresses the rest. Throws what `write` throws, and an error if the compressed bytes are truncated. */
  async end(): Promise<void> {
    if (this.#head) await this.#begin(this.#head);
    await this.#wait((stream) => stream.end());
  }

  /** Stops the decompression without an error. */
  close(): void {
    this.#stream?.destroy();
  }

  #begin(head: Buffer): Promise<void> {
    this.#head = undefined;
    const options = { chunkSize: pieceSize };
    if (startsWith(head, gzip)) this.#stream = createGunzip(options);
    else if (startsWith(head, zstd)) this.#stream = createZstdDecompress(options);
    this.#stream?.on('error', (error) => (this.#failure ??= error));
    this.#stream?.on('data', (bytes: Buffer) => {
      if (this.#failure) return;
      try {
        this.#take(bytes);
      } catch (error) {
        this.#failure = error as Error;
        this.close();
      }
    });
    return this.#pass(head);
  }

  async #pass(chunk: Buffer): Promise<void> {
    if (this.#stream) return this.#wait((stream, done) => stream.write(chunk, done));
    this.#take(chunk);
  }

  /** Calls `act`, and waits until it is done or the stream is closed. A failed stream never calls back. */
  async #wait(act: (stream: Transform, done: () => void) => void): Promise<void> {
    const stream = this.#stream;
    if (!stream || stream.closed) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        stream.off('close', done);
        resolve();
      };
      stream.on('close', done);
      act(stream, done);
    });
    if (this.#failure) throw this.#failure;
  }
}

/** Returns whether bytes are gzip or zstd. */
export function isCompressed(bytes: Buffer): boolean {
  return startsWith(bytes, gzip) || startsWith(bytes, zstd);
}

function startsWith(bytes: Buffer, start: Buffer): boolean {
  return bytes.subarray(0, start.length).equals(start);
}
