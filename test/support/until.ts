import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until a condition is true. */
export async function until(condition: () => unknown): Promise<void> {
  while (!(await condition())) await sleep(5);
}
