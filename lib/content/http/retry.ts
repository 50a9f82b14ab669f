import type { IncomingHttpHeaders } from 'node:http';
import { setTimeout as sleepFor } from 'node:timers/promises';
import type { Context } from '#context';
import { isPluginError, PluginError, type ErrorCode } from '#errors';
import { interrupted, isTransientStatus } from './networkErrors.ts';

/** The number of attempts, and the waits between them in milliseconds. */
export interface RetryOptions {
  /** The number of attempts without progress; default 6 (3 if the host may not exist). */
  readonly attempts?: number;
  /** The first wait; default 1 s. It doubles each time up to `longestDelay`, minus a random part. */
  readonly baseDelay?: number;
  /** The longest wait; default 30 s. */
  readonly longestDelay?: number;
  /** The total wait that servers may request with Retry-After for one operation; default 10 min. */
  readonly longestWait?: number;
  /** The clock; by default that of the system. */
  readonly clock?: Clock;
}

/** A clock, in milliseconds since the epoch. */
export interface Clock {
  now(): number;
  /** Waits. Rejects if the signal is aborted. */
  sleep(time: number, signal: AbortSignal): Promise<void>;
}

const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (time, signal) => sleepFor(time, undefined, { signal }),
};

/** An error that another attempt may avoid. `retryAfter` is the wait that the server requested, in milliseconds. */
export class TransientError extends PluginError {
  readonly retryAfter: number | undefined;

  constructor(code: ErrorCode, message: string, options: { hint?: string; retryAfter?: number; cause?: unknown }) {
    super(code, message, options);
    this.retryAfter = options.retryAfter;
  }
}

/** The longest time of a timer, in milliseconds. */
const timerLimit = 2 ** 31 - 1;

/** The wait after which a warning is logged, and the interval of warnings, in milliseconds. */
const warningDelay = 10_000;
const warningInterval = 60_000;

/** The time of the last warning, shared by all operations on one server. */
export interface WaitWarnings {
  last: number;
}

/**
 * The number of bytes that count as progress. Otherwise an operation with one byte for each connection would never end.
 */
const progressSize = 64 * 1024;

/** The retry budget of one operation: its failures, and its waiting time. */
export class RetryBudget {
  readonly #options: RetryOptions;
  readonly #context: Context;
  #failures = 0;
  readonly #clock: Clock;
  readonly #warnings: WaitWarnings;
  /** The time when a server first requested a wait of this operation. */
  #since: number | undefined;
  #moved = 0;

  constructor(options: RetryOptions, context: Context, warnings: WaitWarnings = { last: -Infinity }) {
    this.#options = options;
    this.#context = context;
    this.#clock = options.clock ?? systemClock;
    this.#warnings = warnings;
  }

  /** Counts transferred bytes. Enough of them reset the failures. */
  progress(bytes: number): void {
    this.#moved += bytes;
    if (this.#moved < progressSize) return;
    this.#failures = 0;
    this.#since = undefined;
  }

  /**
   * Waits before the next attempt. Throws the error if it is not transient or the budget is used up, `rate-limited` if
   * the server requests too long a wait, and `interrupted` if the signal is aborted.
   */
  async waitAfter(error: unknown, attempts: number = this.#options.attempts ?? 6): Promise<void> {
    if (!isTransient(error)) throw error;
    const { baseDelay = 1000, longestDelay = 30_000 } = this.#options;
    const retryAfter = error instanceof TransientError ? (error.retryAfter ?? 0) : 0;
    this.#moved = 0;
    // A wait that the server requested is not a failure, because its total time has a limit.
    if (retryAfter === 0) this.#failures += 1;
    if (attempts <= 1 || this.#failures >= attempts) throw error;
    const delay = Math.min(longestDelay, baseDelay * 2 ** Math.max(0, this.#failures - 1));
    // The random part spreads the retries of transfers that failed together.
    const wait = retryAfter + delay * (0.5 + Math.random() / 2);
    const isWarned = retryAfter > 0 && this.#checkWait(error, retryAfter, wait);
    const level = isWarned || wait < 5000 ? 'debug' : 'info';
    this.#context.log(level, `${error.message}; retrying in ${formatTime(wait)}`);
    try {
      await this.#clock.sleep(Math.min(wait, timerLimit), this.#context.signal);
    } catch {
      throw interrupted();
    }
  }

  /** Throws `rate-limited` if a wait would exceed the limit. Returns whether it logged a warning. */
  #checkWait(error: PluginError, retryAfter: number, wait: number): boolean {
    const { longestWait = 10 * 60_000 } = this.#options;
    const now = this.#clock.now();
    this.#since ??= now;
    const end = this.#since + longestWait;
    if (now + wait > end) {
      const why =
        retryAfter > longestWait
          ? `it asks to wait ${formatTime(retryAfter)}, longer than the limit of ${formatTime(longestWait)}`
          : `it has asked to wait since ${timeOf(this.#since)}, for the limit of ${formatTime(longestWait)}`;
      throw new PluginError('rate-limited', `${error.message}; ${why}`, {
        hint: 'Run the command again later: it resumes where it stopped.',
        cause: error,
      });
    }
    if (now + wait - this.#since < warningDelay || now - this.#warnings.last < warningInterval) return false;
    this.#warnings.last = now;
    const until = Number.isFinite(end) ? `, until ${timeOf(end)} (${formatTime(longestWait)}) at most` : '';
    this.#context.log('warn', `${error.message}; waiting since ${timeOf(this.#since)}${until}`);
    return true;
  }
}

/** Returns whether another attempt may succeed after an error: it is a TransientError or `unreachable`. */
export function isTransient(error: unknown): error is PluginError {
  return error instanceof TransientError || isPluginError(error, 'unreachable');
}

/**
 * Repeats an action until it succeeds, or until `waitAfter` throws. `waitAfter` gets each error, and waits before the
 * next attempt.
 */
export async function retry<T>(action: () => Promise<T>, waitAfter: (error: unknown) => Promise<void>): Promise<T> {
  for (;;) {
    try {
      return await action();
    } catch (error) {
      await waitAfter(error);
    }
  }
}

/**
 * Returns the error for a status that only means a failure: a TransientError if a retry may succeed. The default of its
 * code is `rate-limited` or `server-error`.
 */
export function explainStatus(
  { status, headers }: { readonly status: number; readonly headers: IncomingHttpHeaders },
  message: string,
  code: ErrorCode = status === 429 ? 'rate-limited' : 'server-error',
): PluginError {
  if (!isTransientStatus(status)) return new PluginError(code, message);
  return new TransientError(code, message, { retryAfter: parseRetryAfter(headers['retry-after']) });
}

/** Parses a Retry-After header, in seconds or as a date, into milliseconds from now (RFC 9110, 10.2.3). */
export function parseRetryAfter(header: string | undefined): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  // Date.parse accepts many other texts, such as -5.
  const wait = /^[A-Z][a-z]{2,8},? .*\d{2}:\d{2}:\d{2}/.test(text) ? Date.parse(text) - Date.now() : Number.NaN;
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

/** Formats a time: seconds up to three minutes, then minutes, then hours. */
function formatTime(milliseconds: number): string {
  const seconds = Math.max(1, Math.round(milliseconds / 1000));
  if (seconds < 180) return `${seconds} s`;
  if (seconds < 3 * 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 1e7 ? `${Math.round(seconds / 3600)} h` : 'months';
}

/** Formats the local time of day. */
function timeOf(time: number): string {
  return new Date(time).toTimeString().slice(0, 8);
}
