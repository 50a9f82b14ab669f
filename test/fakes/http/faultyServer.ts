import { EventEmitter, once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { deliver } from './delivery.ts';
import {
  Faults,
  type Answer,
  type Fault,
  type FaultHandle,
  type FaultLimits,
  type Match,
  type RequestRecord,
} from './faults.ts';

/** The TLS settings of a server, in PEM; `ca` with `requestCert` to require client certificates. */
export type ServerTls = Pick<https.ServerOptions, 'key' | 'cert' | 'ca' | 'requestCert' | 'rejectUnauthorized'>;

/** A request and its fault. */
export interface Exchange extends RequestRecord {
  readonly fault: Fault;
  /** The common name of the client certificate that the server verified; undefined without one. */
  readonly client: string | undefined;
  /** Yields the request body as it arrives. */
  body(): AsyncGenerator<Buffer>;
}

/** A connection that changes to another protocol. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  readonly head: Buffer;
}

/**
 * An HTTP server on 127.0.0.1 and a free port. It records every request, and fails in any requested way. Its subclasses
 * define its normal responses.
 */
export abstract class FaultyServer {
  /** Every request so far, oldest first. */
  readonly requests: RequestRecord[] = [];
  /** The number of current requests, from their arrival until the last part of the body is sent. */
  active = 0;
  /** The largest value of `active`. Set it to 0 to restart the measurement. */
  peakActive = 0;

  readonly #server: http.Server | https.Server;
  readonly #secure: boolean;
  readonly #arrivals = new EventEmitter<{ request: [] }>();
  readonly #sockets = new Set<Socket>();
  readonly #faults = new Faults();

  constructor(tls?: ServerTls) {
    this.#secure = tls !== undefined;
    this.#server = tls ? https.createServer(tls) : http.createServer();
    // A server that closes idle connections after a time would add faults that no test planned.
    Object.assign(this.#server, { keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 });
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => undefined).once('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
      const exchange = openExchange(request, this.#faults);
      this.#note(exchange);
      if (exchange.fault.noAnswer === 'hold') return;
      if (exchange.fault.noAnswer === 'reset') return void reset(socket);
      this.upgrade(exchange, { request, socket, head });
    });
    this.#server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      void this.#serve(request, response);
    });
  }

  /** `127.0.0.1:PORT`. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The origin: `http://127.0.0.1:PORT`, https with TLS. */
  get url(): string {
    return `${this.#secure ? 'https' : 'http'}://${this.host}`;
  }

  /** The number of open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Starts to listen. */
  async start(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject).listen(0, '127.0.0.1', resolve);
    });
  }

  /** Resolves when the next request arrives. */
  async nextRequest(): Promise<void> {
    await once(this.#arrivals, 'request');
  }

  #note(exchange: Exchange): void {
    this.requests.push(exchange);
    this.#arrivals.emit('request');
  }

  /** Stops immediately, with all connections. */
  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.dropConnections();
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Resets every open connection. */
  dropConnections(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  /** Plans a fault for the requests that match. */
  fault(match: Match, fault: Fault, limits?: FaultLimits): FaultHandle {
    return this.#faults.add(match, fault, limits);
  }

  /** Removes all planned faults. */
  clearFaults(): void {
    this.#faults.clear();
  }

  /** Continues a connection in another protocol (Upgrade). Refuses it unless a subclass overrides this method. */
  protected upgrade(_exchange: Exchange, { socket }: Upgrade): void {
    socket.end('HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\n\r\n');
  }

  /** Returns the normal response. */
  protected abstract answer(exchange: Exchange): Answer | Promise<Answer>;

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const exchange = openExchange(request, this.#faults);
    const { fault } = exchange;
    const gone = new AbortController();
    this.#note(exchange);
    this.active += 1;
    this.peakActive = Math.max(this.peakActive, this.active);
    let settled = false;
    const settle = (): void => {
      if (!settled) this.active -= 1;
      settled = true;
    };
    response.once('close', () => {
      settle();
      // An abort creates an error with its stack, which no one needs after a whole response.
      if (!response.writableFinished) gone.abort();
    });
    try {
      if (fault.delay) await sleep(fault.delay, undefined, { signal: gone.signal });
      if (fault.noAnswer === 'hold') return;
      if (fault.noAnswer === 'reset') return void reset(request.socket);
      await deliver(exchange, response, plannedAnswer(exchange) ?? (await this.answer(exchange)), gone.signal, settle);
    } catch (error) {
      if (gone.signal.aborted || request.socket.destroyed) return;
      // A defect of this fake must not look like a planned fault.
      process.emitWarning(error as Error);
      request.socket.destroy();
    }
  }
}

/** Closes a connection as a crashed peer does: with a reset if it is plain TCP. */
export function reset(socket: Socket): void {
  if ('encrypted' in socket) socket.destroy();
  else socket.resetAndDestroy();
}

function openExchange(request: IncomingMessage, faults: Faults): Exchange {
  const url = new URL(request.url ?? '/', 'http://127.0.0.1');
  const record: RequestRecord = {
    method: request.method ?? 'GET',
    path: decodeURIComponent(url.pathname),
    query: url.searchParams,
    headers: request.headers,
    status: 0,
    bytesSent: 0,
    bytesReceived: 0,
  };
  const fault = faults.strike(record);
  const exchange: Exchange = {
    ...record,
    fault,
    client: clientOf(request.socket),
    async *body() {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        exchange.bytesReceived += chunk.length;
        if (fault.resetUploadAfter === undefined || exchange.bytesReceived < fault.resetUploadAfter) {
          yield chunk;
          continue;
        }
        yield chunk.subarray(0, chunk.length - (exchange.bytesReceived - fault.resetUploadAfter));
        reset(request.socket);
        throw new Error('the connection was reset, as planned');
      }
    },
  };
  return exchange;
}

function clientOf(socket: Socket): string | undefined {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
  return /^CN=(.*)$/m.exec(socket.getPeerX509Certificate()?.subject ?? '')?.[1];
}

function plannedAnswer({ fault, headers, path }: Exchange): Answer | undefined {
  if (fault.answer) return fault.answer;
  if (fault.redirect) {
    const { status, to } = fault.redirect;
    return { status, headers: { location: typeof to === 'string' ? to : to(path) } };
  }
  // A chunked body may have any size.
  const size = headers['transfer-encoding'] ? Infinity : Number(headers['content-length'] ?? 0);
  if (fault.maxBody !== undefined && size > fault.maxBody) {
    return { status: 413, headers: { 'content-type': 'text/html' }, body: '<h1>413 Request Entity Too Large</h1>' };
  }
  return undefined;
}
