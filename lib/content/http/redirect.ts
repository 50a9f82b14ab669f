import type { ReadResponse } from './connections.ts';

type ResponseHead = Pick<ReadResponse, 'status' | 'headers'>;

/** A response and the URL that it came from. */
export interface FollowedResponse<T> {
  readonly url: URL;
  /** Whether all redirects stayed at the origin of the request. Credentials may be sent only then. */
  readonly sameOrigin: boolean;
  readonly response: T;
}

/**
 * Follows the redirects of a response, and returns the last response. `allow` decides on each redirect: it returns
 * false if the redirect itself is the result, and may throw. Also throws the errors of `send`.
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
    // A redirect back to the origin does not restore the credentials, because another server chose its URL.
    sameOrigin &&= next.origin === url.origin;
    url = next;
    response = await send(url, sameOrigin);
  }
}

/** Returns whether a redirect leads to an HTTP URL, and keeps the encryption of a request. */
export function keepsEncryption(from: URL, to: URL): boolean {
  return to.protocol === 'https:' || (to.protocol === 'http:' && from.protocol === 'http:');
}

/** Returns the URL that a response redirects to. Only 307 and 308 keep the method of other requests than GET and HEAD. */
function redirectOf(method: string, url: URL, { status, headers }: ResponseHead): URL | undefined {
  const statuses = ['GET', 'HEAD'].includes(method) ? [301, 302, 303, 307, 308] : [307, 308];
  if (!statuses.includes(status) || headers.location === undefined) return undefined;
  const next = URL.parse(headers.location, url);
  // A user name in the Location would become an Authorization header.
  if (next) next.username = next.password = '';
  return next ?? undefined;
}
