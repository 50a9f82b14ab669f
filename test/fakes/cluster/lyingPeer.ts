import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type ServerOptions } from 'node:https';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { derivePreSharedKey, serverTlsOf } from '../../../lib/content/http/certificates.ts';

/** A response of an agent that lies about a bundle. `bytes`: the bundle. `start`: the first requested byte. */
export type Lie = (bytes: Buffer, start: number, response: ServerResponse, request: IncomingMessage) => unknown;

/** Sends the head of a response: for a whole file of `size` bytes, or for the rest of it. */
function begin(response: ServerResponse, start: number, size: number): void {
  const range = { 'Content-Range': `bytes ${start}-${size - 1}/${size}` };
  response.writeHead(start > 0 ? 206 : 200, { 'Content-Length': size - start, ...(start > 0 && range) });
}

/** Sends chunks with a pause (milliseconds) after each, until the client leaves. */
async function send(response: ServerResponse, chunks: Iterable<Buffer>, pause: number): Promise<void> {
  for (const chunk of chunks) {
    if (response.destroyed) return;
    if (!response.write(chunk)) await Promise.race([once(response, 'drain'), once(response, 'close')]);
    await sleep(pause);
  }
  response.end();
}

function* zeros(size: number, chunk: number): Generator<Buffer> {
  for (let left = size; left > 0; left -= chunk) yield Buffer.alloc(Math.min(chunk, left));
}

function* cut(bytes: Buffer, chunk: number): Generator<Buffer> {
  for (let start = 0; start < bytes.length; start += chunk) yield bytes.subarray(start, start + chunk);
}

/** Returns a bundle whose metadata.json states more bytes, with as many digits. */
function claimMore(bytes: Buffer): Buffer {
  const [whole = '', digits = ''] = /"size": (\d+),?\n(?: {2}"volumes|\})/.exec(bytes.toString('latin1', 0, 1e6)) ?? [];
  const claimed = Buffer.from(bytes);
  claimed.write('9'.repeat(digits.length), bytes.indexOf(whole) + 8, 'latin1');
  return claimed;
}

/** Changes a byte. */
function flip(bytes: Buffer, position: number): Buffer {
  const changed = Buffer.from(bytes);
  changed[position] = (changed[position] ?? 0) ^ 1;
  return changed;
}

/** The ways in which a worker can lie about a bundle. A request for the head gets the same size as the body. */
export const lies = {
  'a size that no disk has': (_, start, response) => {
    begin(response, start, 9e15);
    response.end();
  },
  'a size of one byte': (_, _start, response) => {
    begin(response, 0, 1);
    response.end('x');
  },
  'zeros of another size': (bytes, start, response) => {
    begin(response, start, 8 * bytes.length);
    return send(response, zeros(8 * bytes.length - start, 1 << 16), 1);
  },
  'zeros of the right size': (bytes, start, response) => {
    begin(response, start, bytes.length);
    return send(response, zeros(bytes.length - start, 1 << 16), 1);
  },
  'a changed byte before the first blob': (bytes, start, response) => {
    begin(response, start, bytes.length);
    response.end(flip(bytes, 600).subarray(start));
  },
  'a changed byte in the last blob': (bytes, start, response) => {
    begin(response, start, bytes.length);
    response.end(flip(bytes, bytes.length - 2000).subarray(start));
  },
  'metadata with another size': (bytes, start, response) => {
    begin(response, start, bytes.length);
    response.end(claimMore(bytes).subarray(start));
  },
  'the end of a response in the middle': (bytes, start, response) => {
    begin(response, start, bytes.length);
    response.write(bytes.subarray(start, start + Math.floor((bytes.length - start) / 2)), () => response.destroy());
  },
  'a byte now and then': (bytes, start, response) => {
    begin(response, start, bytes.length);
    return send(response, cut(bytes.subarray(start), 1536), 1000);
  },
  'a part at once, then nothing': (bytes, start, response) => {
    begin(response, start, bytes.length);
    response.write(bytes.subarray(start, start + Math.floor((bytes.length - start) / 2)));
  },
  'no response': () => undefined,
  'a redirect to another server': (_, _start, response) => {
    response.writeHead(307, { Location: 'https://127.0.0.1:1/bundle.tar' }).end();
  },
} satisfies Record<string, Lie>;

/** A server with the token of the agents that lies. */
export interface LyingPeer {
  readonly origin: string;
  /** The requests so far. */
  readonly requests: number;
  close(): void;
}

/** Starts it. It takes the lies in turn, one for each request. */
export async function startLyingPeer(token: string, bytes: Buffer, told: readonly Lie[]): Promise<LyingPeer> {
  let requests = 0;
  const tls = serverTlsOf(derivePreSharedKey(token)) as ServerOptions;
  const server = createServer(tls, (request, response) => {
    const lie = told[requests % told.length];
    requests += 1;
    const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.on('error', () => undefined);
    void lie?.(bytes, start, response, request);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    origin: `https://127.0.0.1:${port}`,
    get requests() {
      return requests;
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
