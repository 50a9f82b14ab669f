import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../../context.ts';
import { messageOf } from '../../errors.ts';

/** The time to wait for a device, in milliseconds. A disc needs seconds to start. */
const defaultLimit = 20_000;

/**
 * The devices and folders with a read that has not ended. Such a read cannot be interrupted, and on a hung network disk
 * it may never end. So it continues in the background, and the device is skipped meanwhile.
 */
export class HungDevices {
  readonly #limit: number;
  readonly #context: Context;
  readonly #hung = new Set<string>();

  /** `limit`: the time to wait for each device, in milliseconds. */
  constructor(limit = defaultLimit, context: Context) {
    this.#limit = limit;
    this.#context = context;
  }

  /** Returns why a device is skipped; undefined if it is not. */
  reasonFor(path: string): string | undefined {
    return this.#hung.has(path) ? `${path} does not answer: it is skipped until it does` : undefined;
  }

  /**
   * Runs a read of a device. Returns undefined if it takes longer than the limit, or if an earlier one has not ended.
   * Throws the errors of `read`, and `interrupted`.
   */
  async attempt<T>(path: string, read: () => Promise<T>): Promise<T | undefined> {
    if (this.#hung.has(path)) return undefined;
    const { signal, log } = this.#context;
    const ended = new AbortController();
    const reading = read().finally(() => {
      ended.abort();
    });
    reading.catch(() => undefined);
    const either = AbortSignal.any([signal, ended.signal]);
    const isLate = await sleep(this.#limit, true, { signal: either }).catch(() => false);
    if (!isLate) {
      if (!ended.signal.aborted) checkInterrupted(signal);
      return reading;
    }
    this.#hung.add(path);
    void reading
      .catch((error: unknown) => {
        log('debug', `${path}: ${messageOf(error)}`);
      })
      .finally(() => {
        this.#hung.delete(path);
      });
    return undefined;
  }
}
