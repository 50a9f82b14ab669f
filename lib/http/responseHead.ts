import { PluginError } from '../errors.ts';

/** The first lines of an answer. Header names are in lower case; of repeated headers the values are joined by commas. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** Says that a request has to be sent again by other means: the answer is not of the plain kind that is read here. */
export class UnsupportedResponse extends Error {
  constructor() {
    super('the response cannot be read by this client');
  }
}

/** Reads the head of an HTTP/1.1 answer, without the empty line at its end (RFC 9112). Throws UnplainAnswer. */
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

/** How many bytes the body of an answer to a GET has. Throws UnplainAnswer where one Content-Length does not say it. */
export function bodyLength({ status, headers }: ResponseHead): number {
  if (status === 204 || status === 304) return 0;
  const length = headers['content-length'];
  if (headers['transfer-encoding'] !== undefined || length === undefined || !/^\d{1,15}$/.test(length))
    throw new UnsupportedResponse();
  return Number(length);
}

/** More answers than this that only announce one (100 Continue, 103 Early Hints) lead nowhere. */
export const informationalLimit = 10;

/** The error of a server that announces an answer without end. */
export function tooManyInformational(host: string): PluginError {
  return new PluginError('server-error', `${host} sent too many informational responses`);
}
