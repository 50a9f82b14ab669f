import type { ReadResponse } from './connections.ts';

/** Tells whether a redirect leads to where no more people can listen than before; never for what is not HTTP. */
export function keepsSecret(from: URL, to: URL): boolean {
  return to.protocol === 'https:' || (to.protocol === 'http:' && from.protocol === 'http:');
}

/** Where an answer redirects a request to; a POST becomes no GET: only 307 and 308 keep the method. */
export function redirectOf(
  method: string,
  url: URL,
  { status, headers }: Pick<ReadResponse, 'status' | 'headers'>,
): URL | undefined {
  const statuses = ['GET', 'HEAD'].includes(method) ? [301, 302, 303, 307, 308] : [307, 308];
  if (!statuses.includes(status) || headers.location === undefined) return undefined;
  const next = URL.parse(headers.location, url);
  // A user in a location would become an Authorization header of its own.
  if (next) next.username = next.password = '';
  return next ?? undefined;
}
