import type { ReadResponse } from './connections.ts';

type ResponseHead = Pick<ReadResponse, 'status' | 'headers'>;

/** A response and the URL that it came from. */
export interface FollowedResponse<T> {
  readonly url: URL;
  /** Whether no redirect left the origin of the request: only then credentials may be sent. */
  readonly sameOrigin: boolean;
  readonly response: T;
}

/**
 * Follows the redirects of a response, and returns the last response. `allow` decides on each redirect: it returns false if the redirect
 * itself is the result, and may throw. `send` throws what it likes.
 */
export async function followRedirects<T extends ResponseHead>(
  method: string,
  first: FollowedResponse<T>,
  send: (url: URL, sameOrigin: boolean) => Promise<T>,
  allow: (from: URL, to: URL, hops: number) => boolean,
): Promise<FollowedResponse<T>> {
  let { url, sameOrigin, response } = first;
  for (let hops = 0; ; hops += 1) {
    const next = redirectOf(method, url, response);
    if (!next || !allow(url, next, hops)) return { url, sameOrigin, response };
    // A redirect back to the origin does not restore the credentials: another server chose its address.
    sameOrigin &&= next.origin === url.origin;
    url = next;
    response = await send(url, sameOrigin);
  }
}

/** Returns whether a redirect keeps the encryption of a request, and leads to HTTP at all. */
export function keepsEncryption(from: URL, to: URL): boolean {
  return to.protocol === 'https:' || (to.protocol === 'http:' && from.protocol === 'http:');
}

/** Returns the URL that a response redirects to. Only 307 and 308 keep the method of other requests than GET and HEAD. */
function redirectOf(method: string, url: URL, { status, headers }: ResponseHead): URL | undefined {
  const statuses = ['GET', 'HEAD'].includes(method) ? [301, 302, 303, 307, 308] : [307, 308];
  if (!statuses.includes(status) || headers.location === undefined) return undefined;
  const next = URL.parse(headers.location, url);
  // A user in a location would become an Authorization header of its own.
  if (next) next.username = next.password = '';
  return next ?? undefined;
}
