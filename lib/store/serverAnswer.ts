import type { IncomingMessage, ServerResponse } from 'node:http';
import { PluginError } from '../errors.ts';
import { parseRange } from './serverRequest.ts';

/** A registry's error: status, code of the distribution-spec, and words. */
export class Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** What is to be sent: its size in bytes, its media type, and its digest where it has one. */
export interface SentContent {
  readonly size: number;
  readonly type: string;
  readonly digest?: string;
}

/** Writes the head of an answer with content, or the part of it that was asked for, and tells which bytes follow. Throws a Refusal for a range outside of it. */
export function beginContent(
  request: IncomingMessage,
  response: ServerResponse,
  { size, type, digest }: SentContent,
): { start: number; end: number } {
  const range = parseRange(request.headers.range, size);
  if (range === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${String(size)}`);
    throw new Refusal(416, 'RANGE_INVALID', `it has ${String(size)} bytes`);
  }
  const { start, end } = range ?? { start: 0, end: size };
  response.writeHead(range ? 206 : 200, {
    'Content-Type': type,
    'Content-Length': end - start,
    'Accept-Ranges': 'bytes',
    ...(digest !== undefined && { 'Docker-Content-Digest': digest, ETag: `"${digest}"` }),
    ...(range && { 'Content-Range': `bytes ${String(start)}-${String(end - 1)}/${String(size)}` }),
  });
  return { start, end };
}

/**
 * Sends `size` bytes, which is all that the answer has. A chunk may be overwritten when the one after it has been read, and the last
 * when this has ended. `check` sees each before it goes out, and how many bytes are left then: where it throws at the last one, damaged
 * content never arrives whole. A client that goes away is no failure. Throws what the chunks and the check do, and `size-mismatch` where
 * the chunks end early.
 */
export async function sendChunks(
  chunks: AsyncIterable<Buffer>,
  size: number,
  response: ServerResponse,
  check: (part: Buffer, left: number) => void = () => undefined,
): Promise<void> {
  let left = size;
  let written = Promise.resolve();
  for await (const chunk of chunks) {
    const part = chunk.subarray(0, left);
    left -= part.length;
    check(part, left);
    // What was written last goes out while this one was being read.
    await written;
    if (response.destroyed) return;
    written = write(part, response, left === 0);
    if (left === 0) {
      await written;
      return;
    }
  }
  if (left > 0) throw new PluginError('size-mismatch', `the content ends ${String(left)} bytes early`);
  response.end();
}

/** Resolves when the bytes are out or nobody wants them any more. */
function write(bytes: Buffer, response: ServerResponse, isLast: boolean): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('close', done);
      resolve();
    };
    response.once('close', done);
    if (isLast) response.end(bytes, done);
    else response.write(bytes, done);
  });
}

/** Answers with a value as JSON. */
export function sendJson(response: ServerResponse, value: object, status = 200): void {
  const body = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': body.length });
  response.end(response.req.method === 'HEAD' ? undefined : body);
}
