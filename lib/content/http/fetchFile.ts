import { checkInterrupted, type Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import type { Connections, ExchangeResponse } from './connections.ts';
import { isConnectionLost, formatUrl } from './networkErrors.ts';
import { followRedirects } from './redirect.ts';
import { readBody } from './responseBody.ts';
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
