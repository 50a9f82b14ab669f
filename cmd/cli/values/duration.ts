import { PluginError } from '../../../lib/errors.ts';

const units: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000 };
const longest = 24 * 3_600_000;

/**
 * Parses a time of kubectl, such as `90s`, `10m` or `2h`, into milliseconds. `0` is none; the maximum is a day. Throws
 * `usage`.
 */
export function parseDuration(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,9})(s|m|h)?$/.exec(text) ?? [];
  const time = Number(digits) * (units[unit] ?? (digits === '0' ? 1 : Number.NaN));
  if (time <= longest) return time;
  throw new PluginError('usage', `“${text}” is not a time of at most a day`, {
    hint: 'A time is a number with s, m or h, such as 90s or 10m; 0 is none.',
  });
}
