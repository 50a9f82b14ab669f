import { PluginError } from '../../../lib/errors.ts';
import { readDuration } from '../../../lib/waiting.ts';

const longest = 24 * 3_600_000;

/** Parses a time, see `readDuration`, into milliseconds. `0` is none; the maximum is a day. Throws `usage`. */
export function parseDuration(text: string): number {
  const time = readDuration(text);
  if (time !== undefined && time <= longest) return time;
  throw new PluginError('usage', `“${text}” is not a time of at most a day`, {
    hint: 'Give seconds, such as 90, or a time such as 90s, 10m or 1m30s; 0 is none.',
  });
}
