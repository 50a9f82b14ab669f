import type { IncomingHttpHeaders } from 'node:http';
import { isPluginError, PluginError } from '#errors';
import { isConnectionLost } from '../http/networkErrors.ts';
import { TransientError } from '../http/retry.ts';
import { refuseEncoding, type RequestSubject } from './refusals.ts';

/** What servers answer to a range that they do not send. */
const rangeRefusals = [400, 405, 406, 416, 501];

/** The state of a download of content of a known size, over one or more responses. Sizes and offsets are in bytes. */
export class Resumption {
  readonly #subject: RequestSubject;
  readonly #size: number;
  #offset: number;
  #skip = 0;
  /** Whether the server refuses ranges. */
  #isRangeless = false;
  /** Whether a body with the content is being received. */
  #begun = false;
  /** The offset at which the last body ended early. */
  #cutAt: number | undefined;

  constructor(subject: RequestSubject, size: number, start: number) {
    this.#subject = subject;
    this.#size = size;
    this.#offset = start;
  }

  get isComplete(): boolean {
    return this.#offset === this.#size;
  }

  /** Headers of a request for the missing part. A server that refuses ranges is asked for all of the content. */
  get headers(): Record<string, string> {
    return this.#offset === 0 || this.#isRangeless ? {} : { Range: `bytes=${this.#offset}-` };
  }

  /**
   * Checks the head of a response. Returns whether its body is the content or its missing part. Throws `size-mismatch`
   * if it states another size, and `server-error` if it starts at another byte.
   */
  begin(status: number, headers: IncomingHttpHeaders): boolean {
    if (this.#offset > 0 && !this.#isRangeless && rangeRefusals.includes(status)) {
      this.#isRangeless = true;
      throw new TransientError('server-error', this.#sentence(`was refused from byte ${this.#offset} on`), {});
    }
    if (status !== 200 && status !== 206) return false;
    refuseEncoding(this.#subject, headers);
    let announced = headers['content-length'] && Number(headers['content-length']);
    // A server that ignores Range sends the content from its first byte.
    this.#skip = status === 200 ? this.#offset : 0;
    if (status === 206) {
      const [, first, total] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(headers['content-range'] ?? '') ?? [];
      if (Number(first) !== this.#offset) throw this.#error('server-error', `was not sent from byte ${this.#offset}`);
      announced = total === '*' ? undefined : Number(total);
    }
    if (typeof announced === 'number' && announced !== this.#size) throw this.#mismatch(`has ${announced} bytes, not`);
    this.#begun = true;
    return true;
  }

  /** Counts a chunk of a body, and returns the new part of it. Throws `size-mismatch` if the body exceeds the size. */
  take(chunk: Buffer): Buffer {
    const fresh = this.#skip === 0 ? chunk : chunk.subarray(Math.min(this.#skip, chunk.length));
    this.#skip -= chunk.length - fresh.length;
    this.#offset += fresh.length;
    if (this.#offset > this.#size) throw this.#mismatch('has more than');
    return fresh;
  }

  /** Records the end of a body. Throws a TransientError if the content is incomplete. */
  finish(): void {
    if (!this.isComplete) throw this.#cutOff();
  }

  /**
   * Adds the received size to the error of a connection that was lost during a body; returns other errors unchanged.
   */
  explain(error: unknown): unknown {
    const isCut = this.#begun && isPluginError(error, 'unreachable') && isConnectionLost(error);
    this.#begun = false;
    return isCut ? this.#cutOff(error) : error;
  }

  #cutOff(cause?: unknown): TransientError {
    // A network may lose a connection at any byte. If it is the same byte again, the source is incomplete.
    const again = this.#cutAt === this.#offset;
    this.#cutAt = this.#offset;
    const message = `was interrupted after ${this.#offset} of ${this.#size} bytes${again ? ' each time' : ''}`;
    return new TransientError(again ? 'size-mismatch' : 'unreachable', this.#sentence(message), {
      hint: again
        ? 'The registry, or a proxy in front of it, has only a part of it. Push the image again, or name another ' +
          'source.'
        : 'Check the network, then run the same command again: it resumes where it stopped.',
      cause,
    });
  }

  #mismatch(has: string): PluginError {
    return this.#error('size-mismatch', `${has} the ${this.#size} bytes of its descriptor`);
  }

  #error(code: 'size-mismatch' | 'server-error', says: string): PluginError {
    return new PluginError(code, this.#sentence(says));
  }

  #sentence(says: string): string {
    const { registry, repository, what } = this.#subject;
    return `${registry}/${repository}: ${what} ${says}`;
  }
}
