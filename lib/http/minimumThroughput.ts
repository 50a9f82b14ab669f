import type { Clock } from './retry.ts';

/** What an answer has to bring on average, in bytes per second: nothing that is worth waiting for comes more slowly. */
const minimumRate = 1024;

/** Notices an answer that comes in drops, each in time, so that no limit on silence ever ends it. */
export class MinimumThroughput {
  /** How often somebody has to look, in milliseconds. */
  readonly interval: number;
  readonly #window: number;
  readonly #clock: Pick<Clock, 'now'>;
  #bytes = 0;
  #since: number;
  #checked: number;

  /** `window` is the time over which the average is taken, in milliseconds. `clock` measures it. */
  constructor(window: number, clock: Pick<Clock, 'now'> = performance) {
    this.#window = window;
    this.#clock = clock;
    this.#since = this.#checked = clock.now();
    this.interval = window / 4;
  }

  /** Begins anew, from so many bytes on: what went before says nothing about the server. */
  restart(bytes: number): void {
    this.#bytes = bytes;
    this.#since = this.#checked = this.#clock.now();
  }

  /**
   * Tells whether an answer of which so many bytes have come is too slow. Bytes of which none has come for that time are no affair
   * of this, nor are times in which nobody looked: it was us who were held up.
   */
  isTooSlow(bytes: number): boolean {
    const now = this.#clock.now();
    const late = now - this.#checked > 2 * this.interval;
    this.#checked = now;
    if (late) this.restart(bytes);
    if (now - this.#since < this.#window) return false;
    const come = bytes - this.#bytes;
    this.restart(bytes);
    return come > 0 && come < (minimumRate * this.#window) / 1000;
  }

  /** What the server did, for a message that begins with its name. */
  get description(): string {
    return `sent less than 1 KiB/s for ${Math.ceil(this.#window / 1000)} s`;
  }
}
