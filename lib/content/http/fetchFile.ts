import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { Connections, ExchangeResponse, ReadResponse } from './connections.ts';
import { isConnectionLost, formatUrl, readBody } from './networkErrors.ts';
import { explainStatus, retry, RetryBudget, TransientError, type RetryOptions } from './retry.ts';

/**
 * Gets a small file by HTTP: its bytes, or undefined if the server does not have it. Throws `too-large` above the limit
 * (bytes).
 */
export type FetchFile = (url: URL, limit: number) => Promise<Buffer | undefined>;

const redirectLimit = 5;
const shortestTimeout = 30_000;
// The time limit for a file that is larger than a signature, such as an update graph, allows 64 KiB/s.
const slowestBytesPerMillisecond = 64;
// Several servers have the same files, and another may answer sooner.
const defaultRetry: RetryOptions = { attempts: 4, baseDelay: 500, longestWait: 10_000 };

/**
 * Gets a small file without credentials, through proxies and up to five redirects, in thirty seconds, or more if the
 * limit (bytes) is large. Retries transient failures, but not if the server cannot be reached, because a site may have
 * no network. Throws `unreachable`, `server-error`, `rate-limited`, `too-large` and `interrupted`.
 */
export async function fetchFile(
  connections: Connections,
  url: URL,
  limit: number,
  context: Context,
  options: RetryOptions = defaultRetry,
): Promise<Buffer | undefined> {
  const timeout = Math.max(shortestTimeout, Math.ceil(limit / slowestBytesPerMillisecond));
  const signal = AbortSignal.any([context.signal, AbortSignal.timeout(timeout)]);
  const budget = new RetryBudget(options, { ...context, signal });
  return retry(
    () => fetchOnce(connections, url, limit, signal),
    async (error) => {
      checkInterrupted(context.signal);
      if (signal.aborted || !isRetried(error)) throw error;
      await budget.waitAfter(error).catch((final: unknown) => {
        checkInterrupted(context.signal);
        // After the time limit, the error of the last response is more useful.
        throw isPluginError(final, 'interrupted') ? error : final;
      });
    },
  );
}

/** Returns whether fetchFile can get a URL. */
export function isHttp({ protocol }: URL): boolean {
  return protocol === 'http:' || protocol === 'https:';
}

function isRetried(error: unknown): boolean {
  return error instanceof TransientError || isConnectionLost(error);
}

async function fetchOnce(
  connections: Connections,
  url: URL,
  limit: number,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  let target = url;
  const send = async (next: URL): Promise<ExchangeResponse> => {
    target = next;
    const headers = { accept: '*/*', 'accept-encoding': 'identity' };
    const response = await connections.exchange({ method: 'GET', url: next, headers, signal });
    if (response.status !== 200) response.body.destroy();
    return response;
  };
  const allow = (_from: URL, to: URL, hops: number): boolean => {
    if (hops < redirectLimit && isHttp(to)) return true;
    throw new PluginError('server-error', `${formatUrl(url)} redirects too often, or to another protocol`);
  };
  try {
    const first = { url, sameOrigin: true, response: await send(url) };
    const { response } = await followRedirects('GET', first, send, allow);
    const { status } = response;
    if (status === 404 || status === 410) return undefined;
    if (status !== 200) throw explainStatus(response, `${formatUrl(target)} answered with status ${status}`);
    const bytes = await readBody(response, limit + 1);
    if (bytes.length <= limit) return bytes;
  } catch (cause) {
    if (signal.aborted) throw new PluginError('unreachable', `${target.host} did not answer in time`, { cause });
    throw cause;
  }
  throw new PluginError('too-large', `${formatUrl(target)} is larger than its limit of ${limit} bytes`);
}

type ResponseHead = Pick<ReadResponse, 'status' | 'headers'>;

/** A response and the URL that it came from. */
interface FollowedResponse<T> {
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

/**
 * Returns the URL that a response redirects to. Only 307 and 308 keep the method of other requests than GET and HEAD.
 */
function redirectOf(method: string, url: URL, { status, headers }: ResponseHead): URL | undefined {
  const statuses = ['GET', 'HEAD'].includes(method) ? [301, 302, 303, 307, 308] : [307, 308];
  if (!statuses.includes(status) || headers.location === undefined) return undefined;
  const next = URL.parse(headers.location, url);
  // A user name in the Location would become an Authorization header.
  if (next) next.username = next.password = '';
  return next ?? undefined;
}
