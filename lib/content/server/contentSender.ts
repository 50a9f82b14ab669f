import type { ServerResponse } from 'node:http';
import { PluginError } from '#errors';

/** Limits for slow clients. */
export interface SendLimits {
  /** The time in which a client may accept no data, in milliseconds; default 60 s. */
  readonly idleTimeout?: number;
  /** The minimum rate in bytes per second; default 4 KiB. */
  readonly minimumRate?: number;
  /** The time limit for one response in milliseconds; default: none. */
  readonly maximumTime?: number;
}

/** Reads `size` bytes of content from `start`. A chunk may be overwritten when the next chunk is read. */
export type ReadPart = (start: number, size: number) => AsyncIterable<Buffer>;

// Data for a client that stops reading stays in memory. So each response begins with small parts,
// and only a few at a time continue with large parts, which need two chunks of a megabyte.
const smallPart = 128 * 1024;
const largePart = 16 * 1024 * 1024;
const largeLimit = 16;
// A TLS connection keeps memory of the size of its largest write until it is closed.
const tlsPart = 64 * 1024;

/** Sends content to the clients of one server, within limits of memory and time. */
export class ContentSender {
  readonly #limits: Required<SendLimits>;
  #large = 0;

  constructor({
    idleTimeout: grace = 60_000,
    minimumRate: leastRate = 4096,
    maximumTime: longest = Infinity,
  }: SendLimits = {}) {
    this.#limits = { idleTimeout: grace, minimumRate: leastRate, maximumTime: longest };
  }

  /**
   * Sends a response of `size` bytes. `check` gets each chunk before it is sent, with the number of remaining bytes. If
   * it throws at the last chunk, the client never gets all of corrupt content. A client that disconnects is not a
   * failure. Throws the errors of `read` and `check`, `size-mismatch` if the content ends early, and `unreachable` for
   * a client that is too slow.
   */
  async send(
    read: ReadPart,
    size: number,
    response: ServerResponse,
    check: (part: Buffer, remaining: number) => void = () => undefined,
  ): Promise<void> {
    const end = performance.now() + this.#limits.maximumTime;
    for (let done = 0; done < size && !response.destroyed;) {
      const isLarge = done > 0 && this.#large < largeLimit;
      if (isLarge) this.#large += 1;
      try {
        const length = Math.min(isLarge ? largePart : smallPart, size - done);
        await this.#sendPart(read(done, length), length, response, end, (chunk, remaining) => {
          check(chunk, size - done - length + remaining);
        });
        done += length;
      } finally {
        if (isLarge) this.#large -= 1;
      }
    }
    await this.finish(response);
  }

  /**
   * Ends a response, and waits until it is sent or the client has disconnected. Throws `unreachable` for a client
   * that is too slow.
   */
  async finish(response: ServerResponse): Promise<void> {
    if (!response.writableFinished) {
      await this.#within(this.#limits.idleTimeout, response, (done) => void response.end(done));
    }
  }

  async #sendPart(
    chunks: AsyncIterable<Buffer>,
    size: number,
    response: ServerResponse,
    end: number,
    check: (chunk: Buffer, remaining: number) => void,
  ): Promise<void> {
    const { idleTimeout: grace, minimumRate: leastRate } = this.#limits;
    let remaining = size;
    let written = Promise.resolve();
    for await (const each of chunks) {
      const chunk = each.subarray(0, remaining);
      remaining -= chunk.length;
      check(chunk, remaining);
      // The previous chunk was sent while this one was read.
      await written;
      if (response.destroyed) return;
      const time = Math.min(grace + (chunk.length * 1000) / leastRate, end - performance.now());
      written = this.#write(chunk, response, performance.now() + time);
      if (remaining === 0) return void (await written);
      // Reading may fail before this promise is awaited.
      written.catch(() => undefined);
    }
    throw new PluginError('size-mismatch', `the content ends ${remaining} bytes early`);
  }

  async #write(chunk: Buffer, response: ServerResponse, end: number): Promise<void> {
    const step = response.socket && 'encrypted' in response.socket ? tlsPart : chunk.length;
    for (let at = 0; at < chunk.length && !response.destroyed; at += step) {
      const part = chunk.subarray(at, at + step);
      await this.#within(end - performance.now(), response, (done) => void response.write(part, done));
    }
  }

  /** Waits until a write is sent or the client has disconnected, up to a time in milliseconds. */
  #within(time: number, response: ServerResponse, write: (done: () => void) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        clearTimeout(timer);
        response.off('close', settle);
        resolve();
      };
      const timer = setTimeout(
        () => {
          reject(new PluginError('unreachable', 'the client does not take the answer in time'));
          response.destroy();
        },
        Math.max(0, time),
      );
      response.once('close', settle);
      if (response.destroyed) settle();
      else write(settle);
    });
  }
}
