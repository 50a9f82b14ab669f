import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../context.ts';
import type { PluginError } from '../errors.ts';

/** How long to wait for something, and how often to look, in milliseconds. */
export interface WaitOptions {
  readonly timeout: number;
  readonly interval: number;
}

/**
 * Looks again and again until there is nothing to wait for any more. `look` gives what is to be said if the time is up: that is thrown then. Throws
 * `interrupted` too, and what `look` throws.
 */
export async function awaitDone(
  look: () => Promise<PluginError | undefined>,
  { timeout, interval }: WaitOptions,
  { signal }: Pick<Context, 'signal'>,
): Promise<void> {
  const end = Date.now() + timeout;
  for (;;) {
    checkInterrupted(signal);
    const obstacle = await look();
    if (!obstacle) return;
    if (Date.now() >= end) throw obstacle;
    await sleep(interval, undefined, { signal }).catch(() => undefined);
  }
}
