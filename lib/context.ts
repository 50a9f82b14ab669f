import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { isPluginError, PluginError } from './errors.ts';

/** The progress of a transfer, as plain data. The library emits events, and a terminal, a log or a test shows them. */
export type TransferEvent =
  /** The manifests of `read` of so many images have been read. Comes before the plan. */
  | { kind: 'manifests'; read: number; images: number }
  /** The plan of this run; sizes in bytes. `present` existed before the run. */
  | { kind: 'plan'; images: number; blobs: number; bytes: number; present: number }
  /** `bytes` more bytes of one blob are received and written. */
  | { kind: 'bytes'; digest: string; bytes: number }
  /** A blob or a manifest has its final name. `size` is its complete size in bytes. */
  | { kind: 'stored'; digest: string; size: number }
  /** A blob was mounted from another repository of the destination, without a transfer. `size` is in bytes. */
  | { kind: 'mounted'; digest: string; size: number }
  /** The destination already had the content. `size` is its complete size in bytes. */
  | { kind: 'skipped'; digest: string; size: number }
  /** An image and all its content is at the destination. */
  | { kind: 'image'; name: string };

/** The level of a log line: `debug` is for `-v`, `info` for each user, `warn` for problems. */
export type LogLevel = 'debug' | 'info' | 'warn';

/**
 * The environment of an operation, from its caller. The library uses it instead of printing, exiting, or reading argv
 * or the environment.
 */
export interface Context {
  /** Aborted if the user interrupts the run. Every wait in the library then ends. */
  readonly signal: AbortSignal;
  readonly log: (level: LogLevel, message: string) => void;
  readonly onEvent: (event: TransferEvent) => void;
  /** Called with an error that says what is unfinished if this process ends now, and with undefined when nothing is. */
  readonly onUnfinished?: (unfinished: PluginError | undefined) => void;
}

/** Throws `interrupted` if a signal is aborted. Call it between two steps of a long operation. */
export function checkInterrupted(signal: AbortSignal): void {
  if (!signal.aborted) return;
  if (isPluginError(signal.reason)) throw signal.reason;
  throw new PluginError('interrupted', 'interrupted', { cause: signal.reason });
}

/** Yields to the event loop during a long computation, so that signals are processed. Throws `interrupted`. */
export async function takeTurn(signal: AbortSignal): Promise<void> {
  await setImmediate();
  checkInterrupted(signal);
}

const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** How long to wait for a condition, and how often to check it. Times are in milliseconds. */
export interface WaitOptions {
  readonly timeout: number;
  /** Pause between two checks, in milliseconds; default one second. */
  readonly interval?: number;
}

/**
 * Calls `check` until it returns undefined. After the timeout, throws the error that it returned. Throws `interrupted`,
 * and the errors of `check`.
 */
export async function awaitDone(
  check: () => Promise<PluginError | undefined>,
  { timeout, interval = 1000 }: WaitOptions,
  { signal }: Pick<Context, 'signal'>,
): Promise<void> {
  const end = Date.now() + timeout;
  for (;;) {
    checkInterrupted(signal);
    const obstacle = await check();
    if (!obstacle) return;
    if (Date.now() >= end) throw obstacle;
    await sleep(interval, undefined, { signal }).catch(() => undefined);
  }
}

/**
 * Returns a duration in milliseconds, as kubectl reads it: `90s`, `1m30s`, `1.5h` (Go’s time.ParseDuration), or seconds
 * as a number alone. Undefined for any other text.
 */
export function readDuration(text: string): number | undefined {
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  if (!/^(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h))+$/.test(text)) return undefined;
  const parts = [...text.matchAll(/([\d.]+)(ms|s|m|h)/g)];
  return parts.reduce((sum, [, number, unit = '']) => sum + Number(number) * (units[unit] ?? Number.NaN), 0);
}
