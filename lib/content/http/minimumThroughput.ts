import type { Clock } from './retry.ts';

/** The minimum throughput of a response, in bytes per second. */
const minimumRate = 1024;

/** Detects a response that is too slow, even if each chunk arrives within the idle timeout. */
export class MinimumThroughput {
  /** The interval in which `isTooSlow` must be called, in milliseconds. */
  readonly interval: number;
  readonly #window: number;
  readonly #clock: Pick<Clock, 'now'>;
  #bytes = 0;
  #since: number;
  #checked: number;

  /** `window` is the time of the average, in milliseconds. */
  constructor(window: number, clock: Pick<Clock, 'now'> = performance) {
    this.#window = window;
    this.#clock = clock;
    this.#since = this.#checked = clock.now();
    this.interval = window / 4;
  }

  /** Restarts the measurement at a number of bytes. */
  restart(bytes: number): void {
    this.#bytes = bytes;
    this.#since = this.#checked = this.#clock.now();
  }

  /**
   * Returns whether a response with this number of bytes is too slow. The idle timeout covers a time without any byte.
   * A time in which this method was not called does not count, because this process was blocked.
   */
  isTooSlow(bytes: number): boolean {
    const now = this.#clock.now();
    const isLate = now - this.#checked > 2 * this.interval;
    this.#checked = now;
    if (isLate) this.restart(bytes);
    if (now - this.#since < this.#window) return false;
    const come = bytes - this.#bytes;
    this.restart(bytes);
    return come > 0 && come < (minimumRate * this.#window) / 1000;
  }

  /** Describes the problem, for a message that begins with the host. */
  get description(): string {
    return `sent less than 1 KiB/s for ${Math.ceil(this.#window / 1000)} s`;
  }
}
