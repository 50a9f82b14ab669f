import { mock } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../lib/content/http/retry.ts';

interface Sleeper {
  readonly until: number;
  wake(): void;
}

/** A clock that tests advance. A sleeper wakes at its time, or if its signal is aborted. */
export class TestClock implements Clock {
  #now = 0;
  readonly #sleepers = new Set<Sleeper>();

  now(): number {
    return this.#now;
  }

  sleep(time: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        this.#sleepers.delete(sleeper);
        signal.removeEventListener('abort', abort);
        settle();
      };
      const sleeper = {
        until: this.#now + time,
        wake: () => {
          end(resolve);
        },
      };
      const abort = (): void => {
        end(() => {
          reject(signal.reason as Error);
        });
      };
      if (signal.aborted) return abort();
      signal.addEventListener('abort', abort);
      this.#sleepers.add(sleeper);
    });
  }

  /** Advances by a number of milliseconds, in steps in which a server of this process can respond. */
  async advance(time: number, step = 20): Promise<void> {
    for (const end = this.#now + time; this.#now < end;) {
      this.#now = Math.min(end, this.#now + step);
      for (const sleeper of this.#sleepers) if (sleeper.until <= this.#now) sleeper.wake();
      await sleep(1);
    }
  }

  /** Advances until a condition is true. */
  async advanceUntil(holds: () => boolean): Promise<void> {
    while (!holds()) await this.advance(20);
  }
}

/**
 * Runs work with a stopped Date. Advances it by `time` (ms) when the condition is true, so that a time limit of the
 * work ends in that state, on a machine of any speed.
 */
export async function runOutOfTime<T>(time: number, holds: () => boolean, work: () => Promise<T>): Promise<T> {
  mock.timers.enable({ apis: ['Date'], now: Date.now() });
  const ended = new AbortController();
  try {
    const working = work().finally(() => {
      ended.abort();
    });
    while (!ended.signal.aborted && !holds()) await sleep(5);
    mock.timers.setTime(Date.now() + time);
    return await working;
  } finally {
    mock.timers.reset();
  }
}
