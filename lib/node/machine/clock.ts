import type { Context } from '../../context.ts';
import { ignoreFailure } from '../../errors.ts';
import type { Host } from './host.ts';
import { runProgramWithin } from './programs.ts';

/** The time for the answer of the host, in milliseconds. */
const limit = 5000;

/**
 * Returns whether the clock of a host is synchronized (NTP), by the kernel as timedatectl tells it. Undefined if the host
 * does not say so within five seconds.
 */
export async function isClockSynchronized(host: Host, context: Context): Promise<boolean | undefined> {
  const args = ['show', '--property=NTPSynchronized', '--value'];
  const ended = AbortSignal.timeout(limit);
  const result = await runProgramWithin(host, 'timedatectl', args, ended, context).catch(ignoreFailure);
  const answer = result?.stdout.trim();
  return answer === 'yes' || answer === 'no' ? answer === 'yes' : undefined;
}
