import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from './context.ts';
import type { PluginError } from './errors.ts';

/** The time to wait, in milliseconds. */
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
