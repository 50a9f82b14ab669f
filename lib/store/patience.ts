import type { IncomingHttpHeaders } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../context.ts';
import { isPluginError, PluginError, type ErrorCode } from '../errors.ts';
import { interrupted } from './networkErrors.ts';

/** How often something is tried, and how long is waited between. Times are in milliseconds. */
export interface PatienceOptions {
  /** Attempts without progress before giving up; default 6 (3 where nothing answers under a name). */
  readonly attempts?: number;
  /** The first wait, doubled each time up to `longestDelay`, less a random part; default 1 s. */
  readonly baseDelay?: number;
  /** Default 30 s. */
  readonly longestDelay?: number;
  /** How long servers may make one operation wait with Retry-After, in total; default 5 min. */
  readonly longestWait?: number;
}

/** An error that another attempt may well not meet; `retryAfter` is what the server asked for, in milliseconds. */
export class TransientError extends PluginError {
  readonly retryAfter: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options: { hint?: string | undefined; retryAfter?: number | undefined; cause?: unknown },
  ) {
    super(code, message, options);
    this.retryAfter = options.retryAfter;
  }
}

/** An attempt that moved fewer bytes than this does not count as progress: one byte a connection would never end. */
const progressSize = 64 * 1024;

/** What is left of the patience with one operation: how often it failed, and how long it has waited. */
export class Patience {
  readonly #options: PatienceOptions;
  readonly #context: Context;
  #failures = 0;
  #asked = 0;
  #moved = 0;

  constructor(options: PatienceOptions, context: Context) {
    this.#options = options;
    this.#context = context;
  }

  /** Notes that bytes have moved, which makes up for earlier failures. */
  progress(bytes: number): void {
    this.#moved += bytes;
    if (this.#moved >= progressSize) this.#failures = 0;
  }

  /**
   * Waits before the next attempt after an `unreachable` or a TransientError. Throws the error when it is of another kind or
   * patience is at its end, `rate-limited` when the server wants too long a pause, `interrupted` when the signal is aborted.
   */
  async endure(error: unknown, attempts: number = this.#options.attempts ?? 6): Promise<void> {
    const transient = error instanceof TransientError;
    if (!transient && !isPluginError(error, 'unreachable')) throw error;
    const { baseDelay = 1000, longestDelay = 30_000, longestWait = 5 * 60_000 } = this.#options;
    const asked = transient ? (error.retryAfter ?? 0) : 0;
    this.#moved = 0;
    this.#asked += asked;
    // A pause that the server asked for is no failure; those are bounded by their sum.
    if (asked === 0) this.#failures += 1;
    if (this.#failures >= attempts) throw error;
    if (this.#asked > longestWait) {
      throw new PluginError('rate-limited', `${error.message}; it asks to wait ${seconds(asked)}, too long`, {
        hint: 'Run the command again later: it goes on where it stopped.',
        cause: error,
      });
    }
    const delay = Math.min(longestDelay, baseDelay * 2 ** Math.max(0, this.#failures - 1));
    // The random part keeps transfers that failed together from coming back together.
    const wait = asked + delay * (0.5 + Math.random() / 2);
    this.#context.log(wait >= 5000 ? 'info' : 'debug', `${error.message}; trying again in ${seconds(wait)}`);
    try {
      await sleep(wait, undefined, { signal: this.#context.signal });
    } catch {
      throw interrupted();
    }
  }
}

/**
 * The error for a status that tells nothing but that it failed: a TransientError where another attempt may succeed. Its code is `rate-limited`
 * or `server-error` unless another one is given.
 */
export function explainStatus(
  { status, headers }: { readonly status: number; readonly headers: IncomingHttpHeaders },
  message: string,
  code: ErrorCode = status === 429 ? 'rate-limited' : 'server-error',
): PluginError {
  if (![408, 429, 500, 502, 503, 504].includes(status)) return new PluginError(code, message);
  return new TransientError(code, message, { retryAfter: parseRetryAfter(headers['retry-after']) });
}

/** Reads a Retry-After header, in seconds or as a date, into milliseconds from now (RFC 9110, 10.2.3). */
export function parseRetryAfter(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const wait = /^\s*\d+\s*$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

function seconds(milliseconds: number): string {
  return `${String(Math.max(1, Math.round(milliseconds / 1000)))} s`;
}
