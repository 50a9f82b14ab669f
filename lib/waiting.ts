import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from './context.ts';
import type { PluginError } from './errors.ts';

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
