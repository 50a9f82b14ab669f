import { timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import { digestOf } from '../oci/reference.ts';

/**
 * Parses a Range header for content of `size` bytes (RFC 9110, section 14). `end` is the first byte after the range.
 * Returns undefined for a header that a server may ignore: another unit, several ranges, or a malformed one.
 */
export function parseRange(
  header: string | undefined,
  size: number,
): { start: number; end: number } | 'unsatisfiable' | undefined {
  const [, first = '', last = ''] = /^bytes=\s*(\d*)-(\d*)\s*$/.exec(header ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  if (first === '') {
    return Number(last) === 0 || size === 0 ? 'unsatisfiable' : { start: Math.max(0, size - Number(last)), end: size };
  }
  const start = Number(first);
  const end = last === '' ? size : Math.min(Number(last) + 1, size);
  if (last !== '' && Number(last) < start) return undefined;
  return start < size ? { start, end } : 'unsatisfiable';
}

/** A part of a list in lexical order. `next` is the query of the next page. */
export interface Page {
  readonly items: readonly string[];
  readonly next?: string;
}

/** Returns one page of a list, for `n` and `last` of a query. */
export function readPage(list: readonly string[], query: string): Page {
  const parameters = new URLSearchParams(query);
  const last = parameters.get('last');
  const limit = Number.parseInt(parameters.get('n') ?? '', 10);
  const rest = list.toSorted().filter((item) => last === null || item > last);
  const items = limit > 0 ? rest.slice(0, limit) : rest;
  const end = items.at(-1);
  if (items.length === rest.length || end === undefined) return { items };
  return { items, next: new URLSearchParams({ n: String(limit), last: end }).toString() };
}

/** Compares the token in an Authorization header in constant time. */
export function hasToken(header: string | undefined, token: string): boolean {
  const given = /^Bearer +(\S+)$/i.exec(header ?? '')?.[1] ?? '';
  return timingSafeEqual(Buffer.from(digestOf(given)), Buffer.from(digestOf(token)));
}

/**
 * Returns whether a Host header is for this server: any address, `localhost` and its own names. This stops web pages
 * whose host name resolves to this machine (DNS rebinding), because browsers send that name.
 */
export function isOwnHost(header: string | undefined, names: readonly string[]): boolean {
  if (header === undefined) return true;
  const [, bracketed, plain = ''] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/.exec(header.trim()) ?? [];
  if (bracketed !== undefined) return isIP(bracketed) === 6;
  const bare = (name: string): string => name.toLowerCase().replace(/\.$/, '');
  return isIP(plain) !== 0 || ['localhost', ...names.map(bare)].includes(bare(plain));
}
