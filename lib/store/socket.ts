import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type SecureContext } from 'node:tls';
import { PluginError } from '../errors.ts';

/** The first lines of an answer. Header names are in lower case; of repeated headers the values are joined by commas. */
export interface AnswerHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** What became of a request: the head of the answer, and its body where it was not handed over. */
export interface Answer extends AnswerHead {
  readonly body: Buffer;
}

/** Takes a chunk of a body. The chunk’s memory is used again after the call. */
export type Receiver = (chunk: Buffer) => void;

/** How to verify a server. */
export interface SocketTls {
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
// One buffer a connection, filled again and again: reading through the http module costs twice the CPU and
// memory, since it copies every 64 KiB into a buffer of its own (measured; see docs/architecture.md).
const bufferSize = 256 * 1024;

/** Says that a request has to be sent again by other means: the answer is not of the plain kind that a socket of ours reads. */
export class UnplainAnswer extends Error {}

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
      const idle = this.#idle.get(url.origin)?.pop();
      const connection = idle ?? this.#connect(url, options);
      try {
        const answer = await connection.ask(request, accept, signal);
        if (connection.reusable) this.#keep(url.origin, connection);
        return answer;
      } catch (error) {
        connection.destroy();
        // A server may close an idle connection just as we use it again; nothing of the answer was lost.
        if (idle && !connection.answered && !signal.aborted) continue;
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

  #keep(origin: string, connection: Connection): void {
    const idle = this.#idle.get(origin);
    if (idle) idle.push(connection);
    else this.#idle.set(origin, [connection]);
  }
}

/** One connection, with at most one request under way. */
class Connection {
  /** Whether any byte of the current answer has come. */
  answered = false;
  /** Whether another request may follow on this connection. */
  reusable = false;
  readonly #socket: Socket;
  #accept: (head: AnswerHead) => Receiver | undefined = () => undefined;
  #resolve: (answer: Answer) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  #pending: Buffer = Buffer.alloc(0);
  #head: AnswerHead | undefined;
  #receiver: Receiver | undefined;
  #remaining = 0;
  #body: Buffer[] = [];

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
    this.#socket = url.protocol === 'https:' ? connectTls(target) : connectTcp(target);
    const connected = url.protocol === 'https:' ? 'secureConnect' : 'connect';
    this.#socket
      .setNoDelay(true)
      .setTimeout(options.connectTimeout)
      .once(connected, () => this.#socket.setTimeout(options.idleTimeout))
      .on('timeout', () =>
        this.#socket.destroy(silence(this.#socket.connecting ? 'did not accept a connection' : 'stopped answering')),
      )
      .on('error', (error) => {
        this.#reject(options.explain(error));
      })
      .on('close', () => {
        onClose();
        this.#reject(options.explain(reset('the server closed the connection')));
      });
  }

  ask(request: string, accept: (head: AnswerHead) => Receiver | undefined, signal: AbortSignal): Promise<Answer> {
    this.answered = this.reusable = false;
    this.#accept = accept;
    this.#head = this.#receiver = undefined;
    this.#body = [];
    const abort = (): void => {
      this.#reject(signal.reason);
      this.destroy();
    };
    return new Promise<Answer>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      signal.addEventListener('abort', abort, { once: true });
      this.#socket.ref().write(request);
    }).finally(() => {
      signal.removeEventListener('abort', abort);
      // An idle connection keeps nothing alive.
      this.#socket.unref();
    });
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    this.answered = true;
    try {
      const body = this.#head ? chunk : this.#readHead(chunk);
      if (body) this.#readBody(body);
    } catch (error) {
      this.#reject(error);
      this.destroy();
    }
  }

  /** Reads up to the end of the head; returns what follows it, or undefined while there is more of it to come. */
  #readHead(chunk: Buffer): Buffer | undefined {
    const bytes = Buffer.concat([this.#pending, chunk]);
    const end = bytes.indexOf('\r\n\r\n');
    if (end < 0) {
      if (bytes.length > headLimit) throw new PluginError('server-error', 'the answer’s head is absurdly large');
      this.#pending = bytes;
      return undefined;
    }
    this.#pending = Buffer.alloc(0);
    const rest = bytes.subarray(end + 4);
    const head = parseHead(bytes.toString('latin1', 0, end));
    if (head.status < 200) return this.#readHead(rest);
    this.#remaining = bodyLength(head);
    this.#head = head;
    this.#receiver = this.#accept(head);
    return rest;
  }

  #readBody(chunk: Buffer): void {
    const head = this.#head;
    if (!head) return;
    if (chunk.length > this.#remaining) throw new PluginError('server-error', 'the server sent more than it announced');
    this.#remaining -= chunk.length;
    if (this.#receiver) {
      if (chunk.length > 0) this.#receiver(chunk);
    } else {
      this.#body.push(Buffer.from(chunk));
    }
    const cut = !this.#receiver && this.#remaining > bodyLimit;
    if (this.#remaining > 0 && !cut) return;
    this.reusable = !cut && !/\bclose\b/i.test(head.headers['connection'] ?? '');
    if (!this.reusable) this.destroy();
    this.#resolve({ ...head, body: Buffer.concat(this.#body).subarray(0, bodyLimit) });
  }
}

function parseHead(text: string): AnswerHead {
  const [first = '', ...lines] = text.split('\r\n');
  const status = /^HTTP\/1\.1 (\d{3})(?: |$)/.exec(first)?.[1];
  if (status === undefined) throw new UnplainAnswer();
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name, value] = /^([!#$%&'*+.^`|~\w-]+):[ \t]*(.*?)[ \t]*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) throw new UnplainAnswer();
    const key = name.toLowerCase();
    headers[key] = headers[key] === undefined ? value : `${headers[key]}, ${value}`;
  }
  return { status: Number(status), headers };
}

function bodyLength({ status, headers }: AnswerHead): number {
  if (status === 204 || status === 304) return 0;
  const length = headers['content-length'];
  if (headers['transfer-encoding'] !== undefined || length === undefined || !/^\d{1,15}$/.test(length))
    throw new UnplainAnswer();
  return Number(length);
}

function silence(what: string): Error {
  return Object.assign(new Error(`the server ${what}`), { code: 'ETIMEDOUT' });
}

function reset(what: string): Error {
  return Object.assign(new Error(what), { code: 'ECONNRESET' });
}
