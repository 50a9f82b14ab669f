import type { Context } from '#context';
import { isPluginError, messageOf, type ErrorCode } from '#errors';
import type { Share } from '../screen/screenText.ts';

/** The pauses after failed jobs, in milliseconds. Each pause is twice as long as the one before. */
const pauses = { first: 5000, longest: 5 * 60_000 };

/** The kinds of jobs. */
type JobKind = 'verify' | 'fetch' | 'load' | 'retain' | 'pin' | 'backup';

/** The job of a node. One job runs at a time, and may take an hour. */
export class AgentJob {
  readonly #context: Context;
  #running:
    | { readonly kind: JobKind; readonly name: string; readonly stop: AbortController; readonly done: Promise<void> }
    | undefined;
  #failure: { readonly message: string; readonly code: ErrorCode; readonly retryAt: number } | undefined;
  #failures = 0;
  /** The name of the last job, if it had no result. It is retried all the time, and logged once. */
  #withoutResult: string | undefined;
  #ended = new AbortController();

  constructor(context: Context) {
    this.#context = context;
  }

  /** The kind of the running job; undefined if none runs. */
  get kind(): JobKind | undefined {
    return this.#running?.kind;
  }

  /** A description of the running job; undefined if none runs. */
  get name(): string | undefined {
    return this.#running?.name;
  }

  /** The error of the last job, with its hint; undefined after a success. */
  get failure(): string | undefined {
    return this.#failure?.message;
  }

  /** The code of that error; undefined after a success. */
  get failureCode(): ErrorCode | undefined {
    return this.#failure?.code;
  }

  /** Aborted when a job ends with a result. If one has ended since the last call, it is aborted already. */
  get ended(): AbortSignal {
    const { signal } = this.#ended;
    if (signal.aborted) this.#ended = new AbortController();
    return signal;
  }

  /**
   * Starts a job, unless one is running or the pause after a failure is not over. Keeps an error of `work` as the
   * failure. `work` returns false if it had no result and a retry is not urgent.
   */
  start(kind: JobKind, name: string, work: (context: Context) => Promise<unknown>): void {
    if (this.#running || (this.#failure && performance.now() < this.#failure.retryAt)) return;
    const stop = new AbortController();
    const context = { ...this.#context, signal: AbortSignal.any([this.#context.signal, stop.signal]) };
    this.#context.log(name === this.#withoutResult ? 'debug' : 'info', name);
    const done = work(context)
      .then(
        (outcome) => {
          this.clearFailure();
          this.#withoutResult = outcome === false ? name : undefined;
          return outcome !== false;
        },
        (error: unknown) => {
          this.#withoutResult = undefined;
          if (!context.signal.aborted) this.#fail(name, error);
          return true;
        },
      )
      .then((isEnd) => {
        this.#running = undefined;
        if (isEnd) this.#ended.abort();
      });
    this.#running = { kind, name, stop, done };
  }

  /** Stops the running job, and waits for its end. */
  async stop(): Promise<void> {
    this.#running?.stop.abort();
    await this.#running?.done;
  }

  /** Forgets the last failure, so that a job may start immediately. */
  clearFailure(): void {
    this.#failure = undefined;
    this.#failures = 0;
  }

  #fail(name: string, error: unknown): void {
    const hint = isPluginError(error) && error.hint !== undefined ? ` (${error.hint})` : '';
    const message = `${messageOf(error)}${hint}`;
    const pause = Math.min(pauses.longest, pauses.first * 2 ** this.#failures);
    this.#failures += 1;
    const code = isPluginError(error) ? error.code : 'internal';
    this.#failure = { message, code, retryAt: performance.now() + pause };
    this.#context.log('warn', `${name}: ${message}; trying again in ${Math.round(pause / 1000)} s`);
  }
}

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
