import type { Share } from '../screen/screenText.ts';

/** The time before a rest is estimated, in milliseconds: a drive is fast at first. */
const shortest = 10_000;

/** The progress of one task of a node, and an estimate of its rest. */
export class WorkShare {
  readonly #total: number;
  readonly #begin: number;
  readonly #now: () => number;
  readonly #since: number;
  #done: number;

  /** `total` and `done` are in any unit, such as bytes. `now` is a clock in milliseconds. */
  constructor(total: number, done = 0, now = () => performance.now()) {
    [this.#total, this.#done, this.#begin, this.#now, this.#since] = [total, done, done, now, now()];
  }

  /** Notes more of it as done. */
  add(done: number): void {
    this.#done += done;
  }

  /** The share that is done: 99 % until all of it is; undefined if there is nothing to do. */
  get share(): Share | undefined {
    if (this.#total <= 0) return undefined;
    const [elapsed, made] = [this.#now() - this.#since, this.#done - this.#begin];
    const left = Math.max(0, this.#total - this.#done);
    const percent = left > 0 ? Math.min(99, (this.#done / this.#total) * 100) : 100;
    const isKnown = elapsed >= shortest && made > 0 && left > 0;
    return { percent, secondsLeft: isKnown ? ((elapsed / made) * left) / 1000 : undefined };
  }
}
