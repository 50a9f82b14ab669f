import { PluginError } from '../../errors.ts';

/** The head of a response. Header names are in lower case. Values of repeated headers are joined by commas. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** The response needs a complete HTTP client. Repeat the request through node:http. */
export class UnsupportedResponse extends Error {
  constructor() {
    super('the response cannot be read by this client');
  }
}

/**
 * Parses the head of an HTTP/1.1 response, without the empty line at its end (RFC 9112). Throws UnsupportedResponse.
 */
export function parseHead(head: string): ResponseHead {
  const [first = '', ...lines] = head.split('\r\n');
  const status = /^HTTP\/1\.1 (\d{3})(?: |$)/.exec(first)?.[1];
  if (status === undefined) throw new UnsupportedResponse();
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name, text] = /^([!#$%&'*+.^`|~\w-]+):(.*)$/.exec(line) ?? [];
    if (name === undefined || text === undefined) throw new UnsupportedResponse();
    const [key, value] = [name.toLowerCase(), text.trim()];
    headers[key] = headers[key] === undefined ? value : `${headers[key]}, ${value}`;
  }
  return { status: Number(status), headers };
}

/**
 * Returns the length of the body of a response to GET, in bytes. Throws UnsupportedResponse unless one Content-Length
 * states it.
 */
export function bodyLength({ status, headers }: ResponseHead): number {
  if (status === 204 || status === 304) return 0;
  const length = headers['content-length'];
  if (headers['transfer-encoding'] !== undefined || length === undefined || !/^\d{1,15}$/.test(length))
    throw new UnsupportedResponse();
  return Number(length);
}

/** The largest number of informational responses (100 Continue, 103 Early Hints) to one request. */
export const informationalLimit = 10;

/** Returns the error for a server that exceeds this limit. */
export function tooManyInformational(host: string): PluginError {
  return new PluginError('server-error', `${host} sent too many informational responses`);
}
