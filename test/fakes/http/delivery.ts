import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGzip } from 'node:zlib';
import { readBody, sizeOf, type Body } from '../registry/content.ts';
import type { Answer, Fault } from './faults.ts';
import { reset, type Exchange } from './faultyServer.ts';

/**
 * Sends a response, with the faults of its exchange. Calls `settle` before the last part is sent, so that a client with
 * the whole body no longer counts.
 */
export async function deliver(
  exchange: Exchange,
  response: ServerResponse,
  answer: Answer,
  signal: AbortSignal,
  settle: () => void,
): Promise<void> {
  const { fault } = exchange;
  const lengthOff = fault.lengthOff ?? 0;
  const { status, headers, body, start, ...range } = selectRange(exchange, answer);
  const end = Math.max(start, range.end + Math.min(0, lengthOff));
  const length = end - start;
  const lengthKnown = Number.isFinite(length) && !fault.chunked && !fault.gzip;
  if (lengthKnown && status !== 204) headers['content-length'] = String(length + Math.max(0, lengthOff));
  if (fault.gzip) headers['content-encoding'] = 'gzip';
  for (const [name, value] of Object.entries(fault.headers ?? {})) {
    if (value === null) Reflect.deleteProperty(headers, name);
    else headers[name] = value;
  }
  exchange.status = status;
  response.writeHead(status, headers);
  if (exchange.method === 'HEAD' || (lengthKnown && length === 0)) {
    settle();
    response.end();
    return;
  }

  response.flushHeaders();
  const stopAt = fault.cut?.after ?? Infinity;
  for await (const piece of spoil(readBody(body, start, end), start, fault, signal)) {
    signal.throwIfAborted();
    const sendable = piece.subarray(0, stopAt - exchange.bytesSent);
    exchange.bytesSent += sendable.length;
    if (lengthKnown && exchange.bytesSent >= length) settle();
    if (sendable.length > 0 && !response.write(sendable)) await once(response, 'drain', { signal });
    if (exchange.bytesSent >= stopAt) break;
  }
  if (fault.cut?.how === 'stall') return;
  if (fault.cut?.how === 'reset') {
    // A reset discards data that the receiver has not read yet.
    await sleep(50, undefined, { signal });
    if (response.socket) reset(response.socket);
  } else if (fault.cut || lengthOff > 0) {
    response.socket?.destroySoon();
  } else {
    settle();
    response.end();
  }
}

function selectRange(exchange: Exchange, answer: Answer) {
  const { fault } = exchange;
  const body: Body = typeof answer.body === 'string' ? Buffer.from(answer.body) : (answer.body ?? Buffer.alloc(0));
  const size = sizeOf(body);
  const headers: Record<string, string> = { ...answer.headers };
  const whole = { status: answer.status, headers, body, start: 0, end: size };
  if (!answer.ranged || fault.ignoreRange) return whole;
  headers['accept-ranges'] = 'bytes';
  const [, from, to] = /^bytes=(\d*)-(\d*)$/.exec(exchange.headers.range ?? '') ?? [];
  if (from === undefined || to === undefined || (from === '' && to === '')) return whole;
  const start = fault.rangeStart ?? (from === '' ? Math.max(0, size - Number(to)) : Number(from));
  const end = from === '' || to === '' ? size : Math.min(size, Number(to) + 1);
  if (start >= end) {
    headers['content-range'] = `bytes */${size}`;
    return { status: 416, headers, body: Buffer.alloc(0), start: 0, end: 0 };
  }
  headers['content-range'] = fault.contentRange ?? `bytes ${start}-${end - 1}/${size}`;
  return { status: 206, headers, body, start, end };
}

function spoil(pieces: AsyncIterable<Buffer>, start: number, fault: Fault, signal: AbortSignal): AsyncIterable<Buffer> {
  let spoilt = pieces;
  if (fault.flipByte !== undefined) spoilt = flip(spoilt, fault.flipByte - start);
  if (fault.gzip) spoilt = Readable.from(spoilt).pipe(createGzip());
  if (fault.bytesPerSecond !== undefined) spoilt = throttle(spoilt, fault.bytesPerSecond, signal);
  return spoilt;
}

async function* flip(pieces: AsyncIterable<Buffer>, offset: number): AsyncGenerator<Buffer> {
  let at = 0;
  for await (const piece of pieces) {
    const within = offset - at;
    at += piece.length;
    const byte = piece[within];
    if (byte === undefined) {
      yield piece;
    } else {
      // The content belongs to the test, so a copy is changed.
      const corrupt = Buffer.from(piece);
      corrupt[within] = byte ^ 0xff;
      yield corrupt;
    }
  }
}

async function* throttle(pieces: AsyncIterable<Buffer>, rate: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  const interval = 20;
  const step = Math.max(1, Math.floor((rate * interval) / 1000));
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; at += step) {
      const part = piece.subarray(at, at + step);
      yield part;
      await sleep((part.length / rate) * 1000, undefined, { signal });
    }
  }
}
