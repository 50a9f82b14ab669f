import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions, type SecureContext } from 'node:tls';
import { PluginError } from '../errors.ts';
import {
  announcementLimit,
  bodyLength,
  endlessAnnouncements,
  parseHead,
  UnsupportedResponse,
  type AnswerHead,
} from './responseHead.ts';
import { MinimumThroughput } from './minimumThroughput.ts';

/** What became of a request: the head of the answer, and its body where it was not handed over. */
export interface Answer extends AnswerHead {
  readonly body: Buffer;
}

/** Takes a chunk of a body. The chunk’s memory is used again after the call. */
export type Receiver = (chunk: Buffer) => void;

/** How to verify a server. */
export interface SocketTls extends Pick<ConnectionOptions, 'pskCallback' | 'checkServerIdentity'> {
  readonly secureContext: SecureContext;
  readonly rejectUnauthorized: boolean;
}

/** How to reach a server, how long it may be silent (milliseconds), and the words for what the network says. */
export interface SocketOptions {
  readonly tls: SocketTls | undefined;
  readonly connectTimeout: number;
  readonly idleTimeout: number;
  explain(error: unknown): Error;
}

const headLimit = 64 * 1024;
const bodyLimit = 64 * 1024;
const plainStart = 'HTTP/1.1 ';
// One buffer a connection, filled again and again: reading through the http module costs twice the CPU and
// memory, since it copies every 64 KiB into a buffer of its own (measured; see docs/performance.md).
const bufferSize = 256 * 1024;
const empty = Buffer.alloc(0);

/**
 * GET over keep-alive connections of our own, for the large bodies: read into one buffer for each connection and handed
 * over from there. Speaks just enough HTTP/1.1 for answers that state their Content-Length (RFC 9112); any other
 * ends in UnplainAnswer.
 */
export class Sockets {
  readonly #idle = new Map<string, Connection[]>();
  readonly #all = new Set<Connection>();

  /**
   * Asks for a URL. `accept` is given the head and returns the receiver of the body, or undefined for a body that is to
   * be returned instead, cut at 64 KiB. Rejects with what the network said, with the signal's reason, or with what the
   * receiver threw.
   */
  async get(
    url: URL,
    headers: Readonly<Record<string, string>>,
    options: SocketOptions,
    accept: (head: AnswerHead) => Receiver | undefined,
    signal: AbortSignal,
  ): Promise<Answer> {
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
        const answer = await connection.ask(request, accept, signal);
        if (connection.reusable) this.#keep(url.origin, connection);
        return answer;
      } catch (error) {
        // A server may close an idle connection just as we use it again; nothing of the answer was lost.
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

/** One connection, with at most one request under way. */
class Connection {
  /** Whether another request may follow on this connection. */
  reusable = false;
  readonly #host: string;
  readonly #socket: Socket;
  #accept: (head: AnswerHead) => Receiver | undefined = () => undefined;
  #resolve: (answer: Answer) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  /** Whether any byte of the current answer has come. */
  #answered = false;
  /** Whether it was us who ended it. */
  #ended = false;
  /** How many heads have come that only announce an answer. */
  #announcements = 0;
  #pending = empty;
  #head: AnswerHead | undefined;
  #receiver: Receiver | undefined;
  #remaining = 0;
  #body: Buffer[] = [];
  #kept = 0;
  readonly #pace: MinimumThroughput;

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
    // The declared types lack onread for TLS; Node documents it for both.
    const target = { host, port, onread, ...options.tls, ...(isIP(host) === 0 && { servername: host }) };
    this.#host = url.host;
    this.#pace = new MinimumThroughput(options.idleTimeout);
    this.#socket = url.protocol === 'https:' ? connectTls(target) : connectTcp(target);
    const connected = url.protocol === 'https:' ? 'secureConnect' : 'connect';
    let silence = `did not accept a connection for ${seconds(options.connectTimeout)}`;
    this.#socket
      .setNoDelay(true)
      .setTimeout(options.connectTimeout)
      .once(connected, () => {
        silence = `was silent for ${seconds(options.idleTimeout)}`;
        this.#socket.setTimeout(options.idleTimeout);
      })
      .on('timeout', () => {
        const { bytesRead, timeout = 0 } = this.#socket;
        // While a slow disk held the thread up, bytes may have come that nobody has read yet.
        setImmediate(() => {
          if (this.#socket.bytesRead === bytesRead) this.#fail(unreachable(`${url.host} ${silence}`));
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

  /** Whether the server ended it before it answered anything. */
  get isStale(): boolean {
    return !this.#answered && !this.#ended;
  }

  ask(request: string, accept: (head: AnswerHead) => Receiver | undefined, signal: AbortSignal): Promise<Answer> {
    this.#answered = this.reusable = false;
    this.#accept = accept;
    this.#head = this.#receiver = undefined;
    this.#body = [];
    this.#kept = this.#announcements = 0;
    const abort = (): void => {
      this.#fail(signal.reason);
    };
    const watch = setInterval(() => {
      const { bytesRead } = this.#socket;
      if (!this.#answered) this.#pace.restart(bytesRead);
      else if (this.#pace.isTooSlow(bytesRead)) this.#fail(unreachable(`${this.#host} ${this.#pace.words}`));
    }, this.#pace.interval).unref();
    return new Promise<Answer>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      signal.addEventListener('abort', abort, { once: true });
      this.#socket.ref().write(request);
    }).finally(() => {
      signal.removeEventListener('abort', abort);
      clearInterval(watch);
      // An idle connection keeps nothing alive.
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
    this.#answered = true;
    try {
      const body = this.#head ? chunk : this.#readHead(chunk);
      if (body) this.#readBody(body);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Reads up to the end of the head; returns what follows it, or undefined while there is more of it to come. */
  #readHead(chunk: Buffer): Buffer | undefined {
    let bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      // What is no HTTP may never come to an empty line.
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
      // 100 (Continue), 103 (Early Hints): the answer is yet to come.
      if (head.status < 200) {
        if ((this.#announcements += 1) > announcementLimit) throw endlessAnnouncements(this.#host);
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
    // What follows the announced body belongs to no answer, and must not pass for the next one.
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
