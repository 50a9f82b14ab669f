import type { IncomingMessage, ServerResponse } from 'node:http';
import { parseRange } from './serverRequest.ts';

/** An error response of a registry: status, code of the distribution-spec, and message. */
export class RequestRefusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The content of a response: its size in bytes, its media type, and its digest if it has one. */
export interface SentContent {
  readonly size: number;
  readonly type: string;
  readonly digest?: string;
}

/**
 * Writes the head of a response with content, or with the requested range of it, and returns the range. Throws a
 * RequestRefusal for a range outside of the content.
 */
export function beginContent(
  request: IncomingMessage,
  response: ServerResponse,
  { size, type, digest }: SentContent,
): { start: number; end: number } {
  const range = parseRange(request.headers.range, size);
  if (range === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${size}`);
    throw new RequestRefusal(416, 'RANGE_INVALID', `it has ${size} bytes`);
  }
  const { start, end } = range ?? { start: 0, end: size };
  response.writeHead(range ? 206 : 200, {
    'Content-Type': type,
    'Content-Length': end - start,
    'Accept-Ranges': 'bytes',
    ...(digest !== undefined && { 'Docker-Content-Digest': digest, ETag: `"${digest}"` }),
    ...(range && { 'Content-Range': `bytes ${start}-${end - 1}/${size}` }),
  });
  return { start, end };
}

/** Sends a value as JSON. */
export function sendJson(response: ServerResponse, value: object, status = 200): void {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length });
  response.end(response.req.method === 'HEAD' ? undefined : body);
}
