import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';

/** How long is waited after a job has failed, in milliseconds: more each time. */
const pauses = { first: 5000, longest: 5 * 60_000 };

/** What there is to do for a bundle. */
export type JobKind = 'verify' | 'fetch' | 'load' | 'pin';

/** What a node does at present, besides looking and reporting: one thing at a time, which may take an hour. */
export class AgentJob {
  readonly #context: Context;
  #running:
    | { readonly kind: JobKind; readonly name: string; readonly stop: AbortController; readonly done: Promise<void> }
    | undefined;
  #failure: { readonly message: string; readonly retryAt: number } | undefined;
  #failures = 0;
  #ended = new AbortController();

  constructor(context: Context) {
    this.#context = context;
  }

  /** Of what kind that is which it is doing; undefined while there is nothing to do. */
  get kind(): JobKind | undefined {
    return this.#running?.kind;
  }

  /** The same in words. */
  get name(): string | undefined {
    return this.#running?.name;
  }

  /** Why the last job failed, if the next has not begun; one sentence with what to do. */
  get failure(): string | undefined {
    return this.#failure?.message;
  }

  /** Is aborted when something came of a job, and already so where that was since the last time this was asked for. */
  get ended(): AbortSignal {
    const { signal } = this.#ended;
    if (signal.aborted) this.#ended = new AbortController();
    return signal;
  }

  /**
   * Begins a job, unless one is running or has failed a moment ago. What it throws is its failure; where nothing came of it, and there is no hurry to try
   * again, it gives false.
   */
  start(kind: JobKind, name: string, work: (context: Context) => Promise<unknown>): void {
    if (this.#running || (this.#failure && performance.now() < this.#failure.retryAt)) return;
    const stop = new AbortController();
    const context = { ...this.#context, signal: AbortSignal.any([this.#context.signal, stop.signal]) };
    this.#context.log('info', name);
    const done = work(context)
      .then(
        (outcome) => {
          this.clearFailure();
          return outcome !== false;
        },
        (error: unknown) => {
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

  /** Ends what is running, and waits for that. */
  async stop(): Promise<void> {
    this.#running?.stop.abort();
    await this.#running?.done;
  }

  /** Forgets that something failed: it may be tried at once. */
  clearFailure(): void {
    this.#failure = undefined;
    this.#failures = 0;
  }

  #fail(name: string, error: unknown): void {
    const hint = isPluginError(error) && error.hint !== undefined ? ` (${error.hint})` : '';
    const message = `${messageOf(error)}${hint}`;
    const pause = Math.min(pauses.longest, pauses.first * 2 ** this.#failures);
    this.#failures += 1;
    this.#failure = { message, retryAt: performance.now() + pause };
    this.#context.log('warn', `${name}: ${message}; trying again in ${Math.round(pause / 1000)} s`);
  }
}
