import { randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Context } from '#context';
import { isPluginError } from '#errors';
import { openListener, type Listener } from '../http/listener.ts';
import { digestOf } from '../oci/reference.ts';
import { isOwnHost } from './serverRequest.ts';

/** An HTML page, and the data that it reads from the path `data` beside it. */
export interface LivePage {
  readonly html: string;
  /** The content security policy of the page. */
  readonly policy: string;
  /** Returns the current data, which the page gets as JSON from `data` beside it. */
  readonly data: () => unknown;
}

/**
 * Serves a page to the browsers of this machine. Other users cannot read it, because its URL is secret. Web pages
 * cannot either, because only loopback names are answered. Answers only GET and HEAD.
 */
export async function servePage(page: LivePage, context: Context): Promise<Listener> {
  const secret = randomBytes(16).toString('hex');
  const open = (host: string): Promise<Listener> =>
    openListener({ host, port: 0 }, (request, response) => answer(page, secret, request, response), context);
  const listener = await open('127.0.0.1').catch((error: unknown) => {
    // A machine without any IPv4 address has ::1 only.
    if (!isPluginError(error, 'unreachable')) throw error;
    return open('::1');
  });
  return { ...listener, url: `${listener.url}/${secret}/` };
}

async function answer(
  { html, policy, data }: LivePage,
  secret: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const [, given = '', name = ''] = /^\/([^/?]*)\/([^/?]*)$/.exec(request.url ?? '') ?? [];
  const isKnown = timingSafeEqual(Buffer.from(digestOf(given)), Buffer.from(digestOf(secret)));
  const send = (status: number, type: string, body: string): Promise<void> => {
    response.writeHead(status, {
      'Content-Type': `${type}; charset=utf-8`,
      'Content-Security-Policy': `${policy}; frame-ancestors 'none'`,
      'Cross-Origin-Resource-Policy': 'same-origin',
      'Cache-Control': 'no-store',
      'Referrer-Policy': 'no-referrer',
      'X-Content-Type-Options': 'nosniff',
      ...(status === 405 && { Allow: 'GET, HEAD' }),
    });
    return new Promise((resolve) => {
      response.once('close', resolve);
      response.end(request.method === 'HEAD' ? undefined : body);
    });
  };
  if (!isOwnHost(request.headers.host, []))
    return send(421, 'text/plain', 'this server does not answer for that host\n');
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return send(405, 'text/plain', 'this page is for reading\n');
  if (isKnown && name === '') return send(200, 'text/html', html);
  if (isKnown && name === 'data') return send(200, 'application/json', JSON.stringify(data()));
  return send(404, 'text/plain', 'not found\n');
}
