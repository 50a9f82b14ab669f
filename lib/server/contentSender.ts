import type { ServerResponse } from 'node:http';
import { PluginError } from '../errors.ts';

/** How slow the clients of a server may be. */
export interface SendLimits {
  /** Milliseconds for which a client may take nothing; default 60 s. */
  readonly idleTimeout?: number;
  /** Bytes per second that a client has to take; default 4 KiB. */
  readonly minimumRate?: number;
  /** Milliseconds for one answer; by default as long as it takes. */
  readonly maximumTime?: number;
}

/** Reads bytes of some content, `size` of them from `start` on. A chunk may be overwritten when the one after it has been read. */
export type ReadPart = (start: number, size: number) => AsyncIterable<Buffer>;

// A client that stops reading keeps what was read for it in memory. So every answer begins with small parts, and only a few
// at a time go on with large ones, which hold two chunks of a megabyte.
const smallPart = 128 * 1024;
const largePart = 16 * 1024 * 1024;
const largeLimit = 16;

/** Sends content to the clients of one server: in memory that does not grow with their number, and not for ever. */
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
   * Sends `size` bytes, which is all that the answer has. `check` sees each chunk before it goes out, and how many bytes are left then: if it
   * throws at the last one, damaged content never arrives whole. A client that goes away is no failure. Throws what reading and
   * the check throw, `size-mismatch` if the content ends early, and `unreachable` for a client that is too slow.
   */
  async send(
    read: ReadPart,
    size: number,
    response: ServerResponse,
    check: (part: Buffer, left: number) => void = () => undefined,
  ): Promise<void> {
    const end = performance.now() + this.#limits.maximumTime;
    for (let done = 0; done < size && !response.destroyed;) {
      const isLarge = done > 0 && this.#large < largeLimit;
      if (isLarge) this.#large += 1;
      try {
        const length = Math.min(isLarge ? largePart : smallPart, size - done);
        await this.#sendPart(read(done, length), length, response, end, (chunk, left) => {
          check(chunk, size - done - length + left);
        });
        done += length;
      } finally {
        if (isLarge) this.#large -= 1;
      }
    }
    await this.finish(response);
  }

  /** Ends an answer, and waits until it is out or the client has gone away. Throws `unreachable` for a client that is too slow. */
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
    check: (chunk: Buffer, left: number) => void,
  ): Promise<void> {
    const { idleTimeout: grace, minimumRate: leastRate } = this.#limits;
    let left = size;
    let written = Promise.resolve();
    for await (const each of chunks) {
      const chunk = each.subarray(0, left);
      left -= chunk.length;
      check(chunk, left);
      // What was written last goes out while this one was being read.
      await written;
      if (response.destroyed) return;
      const time = Math.min(grace + (chunk.length * 1000) / leastRate, end - performance.now());
      written = this.#within(time, response, (done) => void response.write(chunk, done));
      if (left === 0) return void (await written);
      // Reading may fail before anybody waits for this.
      written.catch(() => undefined);
    }
    throw new PluginError('size-mismatch', `the content ends ${left} bytes early`);
  }

  /** Waits until something that was written is out or the client has gone away, for so many milliseconds at most. */
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
        Math.max(0, Math.min(time, 2 ** 31 - 1)),
      );
      response.once('close', settle);
      if (response.destroyed) settle();
      else write(settle);
    });
  }
}
