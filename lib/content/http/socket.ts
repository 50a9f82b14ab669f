import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions, type SecureContext } from 'node:tls';
import { PluginError } from '#errors';
import { MinimumThroughput } from './idleTimeout.ts';

/** The head of a response, and its body unless a receiver got it. */
export interface SocketResponse extends ResponseHead {
  readonly body: Buffer;
}

/** Receives a chunk of a body. Its memory is reused after the call. */
export type Receiver = (chunk: Buffer) => void;

/** TLS settings of a connection. */
export interface SocketTls extends Pick<ConnectionOptions, 'pskCallback' | 'checkServerIdentity'> {
  readonly secureContext: SecureContext;
  readonly rejectUnauthorized: boolean;
}

/** Options of a connection; times in milliseconds. `explain` converts a network error to an error for the user. */
export interface SocketOptions {
  readonly tls: SocketTls | undefined;
  readonly connectTimeout: number;
  readonly idleTimeout: number;
  explain(error: unknown): Error;
}

const headLimit = 64 * 1024;
const bodyLimit = 64 * 1024;
const plainStart = 'HTTP/1.1 ';
// Each connection has one buffer. node:http copies each 64 KiB into a new buffer, which costs twice
// the CPU and memory (docs/performance.md).
const bufferSize = 256 * 1024;
const empty = Buffer.alloc(0);

/**
 * Sends GET requests over its own keep-alive connections, for large bodies. Implements the part of HTTP/1.1 (RFC 9112)
 * that responses with a Content-Length need, and throws UnsupportedResponse for others.
 */
export class Sockets {
  readonly #idle = new Map<string, Connection[]>();
  readonly #all = new Set<Connection>();

  /**
   * Requests a URL. `accept` gets the head, and returns the receiver of the body. Without a receiver, returns the first
   * 64 KiB of the body. Throws network errors, the reason of the signal, and the errors of the receiver.
   */
  async get(
    url: URL,
    headers: Readonly<Record<string, string>>,
    options: SocketOptions,
    accept: (head: ResponseHead) => Receiver | undefined,
    signal: AbortSignal,
  ): Promise<SocketResponse> {
    signal.throwIfAborted();
    const lines = Object.entries({ Host: url.host, Accept: '*/*', ...headers }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    if (lines.some((line) => /[\r\n]/.test(line))) throw new PluginError('internal', 'a request header has a line end');
    const request = `GET ${url.pathname}${url.search} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`;
    for (;;) {
      const idle = this.#takeIdle(url.origin);
      const connection = idle ?? this.#connect(url, options);
      try {
        const answer = await connection.request(request, accept, signal);
        if (connection.reusable) this.#keep(url.origin, connection);
        return answer;
      } catch (error) {
        // A server may close an idle connection at the moment of its reuse. No part of a response is lost then.
        if (idle && connection.isStale) continue;
        connection.destroy();
        throw error;
      }
    }
  }

  /** Closes every connection. */
  close(): void {
    for (const connection of this.#all) connection.destroy();
    this.#idle.clear();
  }

  #connect(url: URL, options: SocketOptions): Connection {
    const connection: Connection = new Connection(url, options, () => {
      this.#all.delete(connection);
      const idle = this.#idle.get(url.origin)?.filter((other) => other !== connection);
      this.#idle.set(url.origin, idle ?? []);
    });
    this.#all.add(connection);
    return connection;
  }

  #takeIdle(origin: string): Connection | undefined {
    const idle = this.#idle.get(origin);
    let connection = idle?.pop();
    while (connection && !connection.isOpen) connection = idle?.pop();
    return connection;
  }

  #keep(origin: string, connection: Connection): void {
    const idle = this.#idle.get(origin);
    if (idle) idle.push(connection);
    else this.#idle.set(origin, [connection]);
  }
}

/** One connection, with at most one request at a time. */
class Connection {
  /** Whether another request may follow on this connection. */
  reusable = false;
  readonly #host: string;
  readonly #socket: Socket;
  #accept: (head: ResponseHead) => Receiver | undefined = () => undefined;
  #resolve: (answer: SocketResponse) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  /** Whether any byte of the current response was received. */
  #responded = false;
  /** Whether this side closed the connection. */
  #ended = false;
  /** The number of informational responses (1xx) to the current request. */
  #informational = 0;
  #pending = empty;
  #head: ResponseHead | undefined;
  #receiver: Receiver | undefined;
  #remaining = 0;
  #body: Buffer[] = [];
  #kept = 0;
  readonly #throughput: MinimumThroughput;

  constructor(url: URL, options: SocketOptions, onClose: () => void) {
    const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
    const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
    const onread = {
      buffer: Buffer.allocUnsafeSlow(bufferSize),
      callback: (length: number, buffer: Uint8Array) => {
        this.#take(Buffer.from(buffer.buffer, buffer.byteOffset, length));
        return true;
      },
    };
    // The declared types lack onread for TLS, but Node.js documents it for both.
    const target = { host, port, onread, ...options.tls, ...(isIP(host) === 0 && { servername: host }) };
    this.#host = url.host;
    this.#throughput = new MinimumThroughput(options.idleTimeout);
    this.#socket = url.protocol === 'https:' ? connectTls(target) : connectTcp(target);
    const connected = url.protocol === 'https:' ? 'secureConnect' : 'connect';
    let problem = `did not accept a connection for ${seconds(options.connectTimeout)}`;
    this.#socket
      .setNoDelay(true)
      .setTimeout(options.connectTimeout)
      .once(connected, () => {
        problem = `was idle for ${seconds(options.idleTimeout)}`;
        this.#socket.setTimeout(options.idleTimeout);
      })
      .on('timeout', () => {
        const { bytesRead, timeout = 0 } = this.#socket;
        // Bytes that arrived while a slow disk blocked the thread are not read yet.
        setImmediate(() => {
          if (this.#socket.bytesRead === bytesRead) this.#fail(unreachable(`${url.host} ${problem}`));
          else this.#socket.setTimeout(timeout);
        });
      })
      .on('error', (error) => {
        this.#reject(options.explain(error));
      })
      .on('close', () => {
        onClose();
        this.#reject(options.explain(closed()));
      });
  }

  get isOpen(): boolean {
    return !this.#socket.destroyed;
  }

  /** Whether the server closed the connection before any byte of a response. */
  get isStale(): boolean {
    return !this.#responded && !this.#ended;
  }

  request(
    request: string,
    accept: (head: ResponseHead) => Receiver | undefined,
    signal: AbortSignal,
  ): Promise<SocketResponse> {
    this.#responded = this.reusable = false;
    this.#accept = accept;
    this.#head = this.#receiver = undefined;
    this.#body = [];
    this.#kept = this.#informational = 0;
    const abort = (): void => {
      this.#fail(signal.reason);
    };
    const watch = setInterval(() => {
      const { bytesRead } = this.#socket;
      if (!this.#responded) this.#throughput.restart(bytesRead);
      else if (this.#throughput.isTooSlow(bytesRead))
        this.#fail(unreachable(`${this.#host} ${this.#throughput.description}`));
    }, this.#throughput.interval).unref();
    return new Promise<SocketResponse>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      signal.addEventListener('abort', abort, { once: true });
      this.#socket.ref().write(request);
    }).finally(() => {
      signal.removeEventListener('abort', abort);
      clearInterval(watch);
      // An idle connection must not keep the process running.
      this.#socket.unref();
    });
  }

  destroy(): void {
    this.#ended = true;
    this.#socket.destroy();
  }

  #fail(error: unknown): void {
    this.#reject(error);
    this.destroy();
  }

  #take(chunk: Buffer): void {
    this.#responded = true;
    try {
      const body = this.#head ? chunk : this.#readHead(chunk);
      if (body) this.#readBody(body);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Reads the head, and returns the bytes after it; undefined if the head is incomplete. */
  #readHead(chunk: Buffer): Buffer | undefined {
    let bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      // Bytes that are not HTTP may never contain an empty line.
      if (!plainStart.startsWith(bytes.toString('latin1', 0, plainStart.length))) throw new UnsupportedResponse();
      const end = bytes.indexOf('\r\n\r\n');
      if ((end < 0 ? bytes.length : end) > headLimit) {
        throw new PluginError('server-error', `${this.#host} sent more than 64 KiB of headers`);
      }
      if (end < 0) {
        this.#pending = Buffer.from(bytes);
        return undefined;
      }
      const head = parseHead(bytes.toString('latin1', 0, end));
      bytes = bytes.subarray(end + 4);
      // After 100 (Continue) or 103 (Early Hints), the response follows.
      if (head.status < 200) {
        if ((this.#informational += 1) > informationalLimit) throw tooManyInformational(this.#host);
        continue;
      }
      this.#pending = empty;
      this.#remaining = bodyLength(head);
      this.#head = head;
      this.#receiver = this.#accept(head);
      return bytes;
    }
  }

  #readBody(chunk: Buffer): void {
    const head = this.#head;
    if (!head) return;
    const body = chunk.length > this.#remaining ? chunk.subarray(0, this.#remaining) : chunk;
    this.#remaining -= body.length;
    if (!this.#receiver) {
      this.#body.push(Buffer.from(body));
      this.#kept += body.length;
    } else if (body.length > 0) {
      this.#receiver(body);
    }
    const isCut = this.#remaining > 0 && this.#kept >= bodyLimit;
    if (this.#remaining > 0 && !isCut) return;
    // Bytes after the body must not be read as the next response.
    const hasMore = isCut || chunk.length > body.length;
    this.reusable = !hasMore && !/\bclose\b/i.test(head.headers['connection'] ?? '');
    if (!this.reusable) this.destroy();
    this.#resolve({ ...head, body: Buffer.concat(this.#body).subarray(0, bodyLimit) });
  }
}

function unreachable(message: string): PluginError {
  return new PluginError('unreachable', message, { hint: 'Check the network, then try again.' });
}

function closed(): Error {
  return Object.assign(new Error('the server closed the connection'), { code: 'ECONNRESET' });
}

function seconds(milliseconds: number): string {
  return `${Math.ceil(milliseconds / 1000)} s`;
}

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
function parseHead(head: string): ResponseHead {
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
function bodyLength({ status, headers }: ResponseHead): number {
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
