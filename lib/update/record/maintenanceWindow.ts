import { readDuration } from '#context';
import { PluginError } from '#errors';

/**
 * Weekly windows in which updates may start: `Sat 22:00-04:00 Europe/Berlin`, `Mon-Fri,Sun 01:00-05:00 UTC`, `daily …`.
 */
interface WeeklyWindow {
  /** The days on which it begins, 0 for Sunday. */
  readonly days: ReadonlySet<number>;
  /** Minutes of the day by the clock of the zone; an end that is not later is on the next day. */
  readonly from: number;
  readonly to: number;
  /** The name of the time zone in the database of IANA. */
  readonly zone: string;
  readonly text: string;
}

/** A time in which an update may start, in milliseconds since 1970, and the window that it is of. */
export interface OpenTime {
  readonly begins: number;
  readonly ends: number;
  readonly text: string;
}

/** The window that is open at a point in time, or the next one with enough time; undefined for none. */
export interface WindowState {
  readonly open?: OpenTime | undefined;
  readonly next?: OpenTime | undefined;
}

/** The time that an update needs in a window, unless the record says otherwise. */
export const usualNeeds = '2h';

const dayNames = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const day = 24 * 3_600_000;
const form = /^(\S+) +(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2}) +(\S+)$/;

/**
 * Finds the windows at a point in time, in milliseconds since 1970. Windows that touch are one. An open one counts only
 * if the time that is left is enough for `needs`, a duration. Throws `usage` for a malformed window.
 */
export function findWindow(windows: readonly string[], needs: string, now: number): WindowState {
  const enough = readNeeds(needs);
  const times = merge(windows.map(parseWindow).flatMap((window) => listTimes(window, now)));
  const open = times.find(({ begins, ends }) => begins <= now && ends - now >= enough);
  const next = times.find(({ begins, ends }) => begins > now && ends - begins >= enough);
  return { open, next };
}

/** Throws `usage` for a malformed window, and for an unknown time zone. */
export function checkWindow(text: string): void {
  parseWindow(text);
}

/** Reads the time that an update needs, in milliseconds. Throws `usage`. */
export function readNeeds(text: string): number {
  const needs = readDuration(text);
  if (needs !== undefined && needs > 0 && needs <= day) return needs;
  throw new PluginError('usage', `“${text}” is not a time of at most a day`, {
    hint: 'Give a time such as 2h or 90m.',
  });
}

/** Formats a point in time by the clock of a window’s zone: `Sat 28 Nov 2026, 22:00 Europe/Berlin`. */
export function formatWindowTime(time: number, { text }: Pick<OpenTime, 'text'>): string {
  const { zone } = parseWindow(text);
  const options = { timeZone: zone, weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' } as const;
  const date = new Intl.DateTimeFormat('en-GB', options).format(time).replaceAll(',', '');
  const clock = new Intl.DateTimeFormat('en-GB', { timeZone: zone, timeStyle: 'short', hourCycle: 'h23' }).format(time);
  return `${date}, ${clock} ${zone}`;
}

function parseWindow(text: string): WeeklyWindow {
  const [, days = '', hour, minute, endHour, endMinute, zone = ''] = form.exec(text) ?? [];
  const [from, to] = [Number(hour) * 60 + Number(minute), Number(endHour) * 60 + Number(endMinute)];
  const isTime = from < 24 * 60 && to <= 24 * 60 && Number(minute) < 60 && Number(endMinute) < 60;
  const named = days.toLowerCase() === 'daily' ? dayNames.map((_, index) => index) : days.split(',').flatMap(readDays);
  if (zone === '' || !isTime || named.includes(-1))
    throw new PluginError('usage', `“${text}” is not a maintenance window`, {
      hint:
        'Give days, times and a time zone: “Sat 22:00-04:00 Europe/Berlin”, “Mon-Fri,Sun 01:00-05:00 UTC” or ' +
        '“daily 01:00-05:00 UTC”.',
    });
  if (!isZone(zone))
    throw new PluginError('usage', `“${zone}” is not a time zone`, {
      hint: 'Give its name in the IANA database, such as Europe/Berlin, America/New_York or UTC.',
    });
  return { days: new Set(named), from, to: to > from ? to : to + 24 * 60, zone, text };
}

/** Returns the days of `Sat` or `Fri-Mon`; -1 for another text. */
function readDays(text: string): number[] {
  const [first = -1, last = first, ...others] = text
    .split('-')
    .map((name) => dayNames.findIndex((each) => each.toLowerCase() === name.toLowerCase()));
  if (first < 0 || last < 0 || others.length > 0) return [-1];
  return Array.from({ length: ((last - first + 7) % 7) + 1 }, (_, index) => (first + index) % 7);
}

/** An offset such as +02:00 has no daylight saving time, so it is no zone of a site. */
function isZone(zone: string): boolean {
  try {
    return !/^[+-]/.test(zone) && new Intl.DateTimeFormat('en', { timeZone: zone }).format() !== '';
  } catch {
    return false;
  }
}

/** Lists the times of a window from the day before a point in time to the eighth day after it. */
function listTimes({ days, from, to, zone, text }: WeeklyWindow, now: number): OpenTime[] {
  const today = Math.floor(wallClock(now, zone) / day) * day;
  return Array.from({ length: 10 }, (_, index) => today + (index - 1) * day)
    .filter((date) => days.has(new Date(date).getUTCDay()))
    .map((date) => ({ begins: toInstant(date + from * 60_000, zone), ends: toInstant(date + to * 60_000, zone), text }))
    .filter(({ begins, ends }) => ends > begins && ends > now);
}

/** Joins times that touch or overlap. */
function merge(times: readonly OpenTime[]): OpenTime[] {
  const merged: OpenTime[] = [];
  for (const time of times.toSorted((a, b) => a.begins - b.begins)) {
    const last = merged.at(-1);
    if (last && time.begins <= last.ends) merged[merged.length - 1] = { ...last, ends: Math.max(last.ends, time.ends) };
    else merged.push(time);
  }
  return merged;
}

/** Returns what the clock of a zone shows, as if it were UTC. */
function wallClock(instant: number, zone: string): number {
  const fields = { year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric' } as const;
  const format = new Intl.DateTimeFormat('en-US', { timeZone: zone, hourCycle: 'h23', second: 'numeric', ...fields });
  const parts = new Map(format.formatToParts(instant).map(({ type, value }) => [type, Number(value)]));
  const [year = 0, month = 1, date = 1, hour = 0, minute = 0, second = 0] = (
    ['year', 'month', 'day', 'hour', 'minute', 'second'] as const
  ).map((type) => parts.get(type));
  return Date.UTC(year, month - 1, date, hour, minute, second);
}

/**
 * Returns when the clock of a zone shows a time. Of a time that it shows twice, the first; a time that it skips is as
 * much later, as in RFC 5545.
 */
function toInstant(local: number, zone: string): number {
  const offsets = [local - day, local + day].map((near) => wallClock(near, zone) - near);
  const candidates = offsets.map((offset) => local - offset);
  const [before = local] = candidates;
  return candidates.toSorted((a, b) => a - b).find((instant) => wallClock(instant, zone) === local) ?? before;
}
