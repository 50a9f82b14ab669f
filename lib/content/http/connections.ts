import http, { type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import https from 'node:https';
import { finished, type Readable } from 'node:stream';
import { createSecureContext, TLSSocket } from 'node:tls';
import { PluginError, messageOf } from '#errors';
import type { Certificates } from './certificates.ts';
import { watchIdleTime, type IdleTimeoutOptions, type SmallResponseLimits } from './idleTimeout.ts';
import {
  errorBodyLimit,
  explainErrors,
  readBody,
  explainNetworkError,
  interrupted,
  unreachableProxy,
  formatUrl,
} from './networkErrors.ts';
import { proxyFor, type Environment } from './proxy.ts';
import { RequestLimiter } from './requestLimiter.ts';
import { informationalLimit, tooManyInformational, UnsupportedResponse, Sockets, type SocketTls } from './socket.ts';

/** Options of connections. An exchange has no time limit of its own. */
export interface ConnectionsOptions extends IdleTimeoutOptions {
  readonly certificates: Pick<Certificates, 'for'>;
  /** Has HTTPS_PROXY, HTTP_PROXY and NO_PROXY; default: no proxy. */
  readonly environment?: Environment;
  /** The number of concurrent exchanges with one host; default 6. */
  readonly maxPerRegistry?: number;
  readonly userAgent?: string;
  /** Gets one line without secrets for each request. */
  readonly log?: (message: string) => void;
}

/** One HTTP request. A body function is called when the request may start, and needs a Content-Length header. */
export interface ExchangeRequest {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | (() => Promise<Readable>);
  readonly small?: SmallResponseLimits;
  readonly signal: AbortSignal;
}

/** A response. Read its body to the end or destroy it, because the request counts as concurrent until then. */
export interface ExchangeResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readable;
}

/** A response with its body, up to the limit of the caller. */
export interface ReadResponse extends Omit<ExchangeResponse, 'body'> {
  readonly body: Buffer;
}

type Accept = (status: number, headers: IncomingHttpHeaders) => ((chunk: Buffer) => void) | undefined;

/**
 * HTTP exchanges over keep-alive connections, one at a time on each: no retries, redirects or credentials. Each throws
 * `unreachable`, `tls`, or `interrupted` if the signal is aborted.
 */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #agents = new Map<string, Promise<http.Agent>>();
  readonly #limiters = new Map<string, RequestLimiter>();
  readonly #trusted = new Map<string, Promise<SocketTls>>();
  readonly #sockets = new Sockets();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** Sends a request, and returns the head of the response with its body. The body fails with PluginErrors too. */
  async exchange(request: ExchangeRequest): Promise<ExchangeResponse> {
    const release = await this.#take(request);
    const trace = this.#trace(request);
    let body: Readable | undefined;
    try {
      const agent = await this.#agent(request.url);
      body = typeof request.body === 'function' ? await request.body() : undefined;
      if (request.signal.aborted) throw interrupted();
      const response = await this.#send(request, agent, body, trace);
      const end = (): void => {
        release();
        trace.end(response.errored);
      };
      response.once('close', end);
      if (response.closed) end();
      return { status: response.statusCode ?? 0, headers: response.headers, body: response };
    } catch (error) {
      release();
      trace.end(error);
      body?.destroy();
      throw error;
    }
  }

  /**
   * Sends a GET, and passes each chunk to the receiver that `accept` returns, synchronously. A chunk is valid only
   * during the call. Without a receiver, returns the first 64 KiB of the body. Throws the errors of a receiver.
   */
  async receive(request: ExchangeRequest, accept: Accept): Promise<ReadResponse> {
    const direct = await this.#receiveDirectly(request, accept);
    if (direct) return direct;
    const response = await this.exchange(request);
    const { status, headers, body } = response;
    try {
      const receiver = accept(status, headers);
      if (!receiver) return { status, headers, body: await readBody(response, errorBodyLimit) };
      for await (const chunk of body as AsyncIterable<Buffer>) receiver(chunk);
      return { status, headers, body: Buffer.alloc(0) };
    } finally {
      body.destroy();
    }
  }

  /** Closes every connection. */
  close(): void {
    for (const agent of this.#agents.values()) void agent.then((made) => made.destroy()).catch(() => undefined);
    this.#agents.clear();
    this.#sockets.close();
  }

  /** Does the same with less CPU, without proxies. Returns undefined if node:http must repeat the request. */
  async #receiveDirectly(request: ExchangeRequest, accept: Accept): Promise<ReadResponse | undefined> {
    const { url, signal } = request;
    if (proxyFor(url, this.#options.environment ?? {})) return undefined;
    const release = await this.#take(request);
    const trace = this.#trace(request);
    const begin: Accept = (status, headers) => {
      trace.begin(status);
      const receive = accept(status, headers);
      return (
        receive &&
        ((chunk) => {
          trace.count(chunk.length);
          receive(chunk);
        })
      );
    };
    try {
      const { connectTimeout = 30_000, idleTimeout = 60_000 } = this.#options;
      const options = {
        tls: url.protocol === 'https:' ? await this.#trust(url) : undefined,
        connectTimeout,
        idleTimeout,
        explain: (error: unknown) => explainNetworkError(error, url),
      };
      const headers = { ...this.#headers(request) };
      const read = await this.#sockets.get(url, headers, options, (head) => begin(head.status, head.headers), signal);
      trace.count(read.body.length);
      trace.end();
      return read;
    } catch (error) {
      trace.end(error);
      if (signal.aborted) throw interrupted();
      if (error instanceof UnsupportedResponse) return undefined;
      throw error;
    } finally {
      release();
    }
  }

  /** Returns one TLS context for all connections to a host, because loading hundreds of CAs takes long. */
  #trust(url: URL): Promise<SocketTls> {
    const made =
      this.#trusted.get(url.host) ??
      this.#options.certificates.for(url.host).then(({ rejectUnauthorized = true, ...material }) => {
        const { pskCallback, checkServerIdentity } = material;
        return {
          rejectUnauthorized,
          secureContext: createSecureContext(material),
          ...(pskCallback && { pskCallback }),
          ...(checkServerIdentity && { checkServerIdentity }),
        };
      });
    this.#trusted.set(url.host, made);
    return made;
  }

  #trace(request: ExchangeRequest): Trace {
    return new Trace({ ...request, headers: this.#headers(request) }, this.#options.log ?? (() => undefined));
  }

  async #take({ url, body, signal }: ExchangeRequest): Promise<() => void> {
    const limiter = this.#limiters.get(url.host) ?? new RequestLimiter(this.#options.maxPerRegistry ?? 6);
    this.#limiters.set(url.host, limiter);
    try {
      return await limiter.take(typeof body === 'function' ? 'upload' : 'plain', signal);
    } catch {
      throw interrupted();
    }
  }

  #agent(url: URL): Promise<http.Agent> {
    const made = this.#agents.get(url.origin) ?? this.#makeAgent(url);
    this.#agents.set(url.origin, made);
    return made;
  }

  async #makeAgent(url: URL): Promise<http.Agent> {
    const proxy = proxyFor(url, this.#options.environment ?? {});
    const options = { keepAlive: true, maxFreeSockets: this.#options.maxPerRegistry ?? 6 };
    if (url.protocol === 'http:') {
      return new http.Agent({ ...options, ...(proxy && { proxyEnv: { HTTP_PROXY: proxy.href } }) });
    }
    return new https.Agent({
      ...options,
      ...(await this.#trust(url)),
      ...(proxy && { proxyEnv: { HTTPS_PROXY: proxy.href } }),
    });
  }

  #send(
    request: ExchangeRequest,
    agent: http.Agent,
    body: Readable | undefined,
    trace: Trace,
  ): Promise<IncomingMessage> {
    const { url, signal, small } = request;
    const proxy = proxyFor(url, this.#options.environment ?? {});
    return new Promise((resolve, reject) => {
      const outgoing = (url.protocol === 'https:' ? https : http).request({ ...this.#head(request), agent });
      let incoming: IncomingMessage | undefined;
      let expiry: string | undefined;
      const explain = (error: unknown): PluginError =>
        signal.aborted ? interrupted() : explainNetworkError(error, url, { expiry, proxy });
      const fail = (error: unknown): void => {
        const explained = explain(error);
        reject(explained);
        (incoming ?? outgoing).destroy(explained);
      };
      const report = (problem: string, isConnected: boolean): void => {
        const hint = 'Check the network, then try again.';
        if (proxy && !isConnected) fail(unreachableProxy(proxy, url, `it ${problem}`));
        else fail(new PluginError('unreachable', `${url.host} ${problem}`, { hint }));
      };
      const unwatch = watchIdleTime(outgoing, () => incoming ?? body, { ...this.#options, small }, report);
      signal.addEventListener('abort', fail, { once: true });
      const settle = (): void => {
        signal.removeEventListener('abort', fail);
        unwatch();
      };

      outgoing.once('socket', (socket) => {
        if (outgoing.reusedSocket || !(socket instanceof TLSSocket)) return;
        // If verification fails, the socket is closed before its certificate can be read.
        socket.prependOnceListener('secure', () => {
          expiry = socket.getPeerCertificate().valid_to; // getPeerX509Certificate breaks verification on Node.js 24.
        });
      });
      let informational = 0;
      outgoing.on('information', () => {
        if ((informational += 1) > informationalLimit) fail(tooManyInformational(url.host));
      });
      outgoing.on('error', fail).once('close', () => {
        if (!incoming) settle();
      });
      outgoing.once('response', (response) => {
        incoming = response;
        trace.watch(response);
        explainErrors(response, explain);
        response.once('close', () => {
          settle();
          // After a response before the end of the request, the connection cannot be reused.
          if (!outgoing.writableFinished) outgoing.destroy();
        });
        if ((response.statusCode ?? 0) >= 300) body?.destroy();
        resolve(response);
      });
      if (!body) {
        outgoing.end(Buffer.isBuffer(request.body) ? request.body : undefined);
        return;
      }
      body.pipe(outgoing);
      finished(body, { writable: false }, (error) => {
        if (!error || incoming) return;
        // The source failed, and not this server.
        reject(error);
        outgoing.destroy();
      });
    });
  }

  #head(request: ExchangeRequest): https.RequestOptions {
    const { method, url } = request;
    return {
      method,
      protocol: url.protocol,
      hostname: url.hostname.replace(/^\[(.*)\]$/, '$1'),
      port: url.port,
      path: `${url.pathname}${url.search}`,
      headers: this.#headers(request),
    };
  }

  #headers({ headers, body }: ExchangeRequest): Record<string, string> {
    return {
      'User-Agent': this.#options.userAgent ?? 'oc-disconnected',
      // A compressed body has another digest.
      'Accept-Encoding': 'identity',
      ...(Buffer.isBuffer(body) && { 'Content-Length': String(body.length) }),
      ...headers,
    };
  }
}

/** The part of a request that a trace shows. */
interface Traced {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Logs one request in one line: its status, the bytes of both bodies, the time, and the error. The line has no
 * secrets.
 */
class Trace {
  readonly #request: Traced;
  readonly #log: (message: string) => void;
  readonly #start = performance.now();
  #status: number | undefined;
  #bytes = 0;
  #ended = false;

  constructor(request: Traced, log: (message: string) => void) {
    this.#request = request;
    this.#log = log;
  }

  /** Records the status of the response. */
  begin(status: number): void {
    this.#status = status;
  }

  /** Counts received bytes of the body. */
  count(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Counts all bytes of a response as they arrive. */
  watch(response: IncomingMessage): void {
    this.begin(response.statusCode ?? 0);
    // A listener for the body would start its flow.
    const push = response.push.bind(response);
    response.push = (chunk: Buffer | null, encoding) => {
      this.count(chunk?.length ?? 0);
      return push(chunk, encoding);
    };
  }

  /** Writes the line once. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    const { method, url, headers } = this.#request;
    const sent = headers['Content-Length'];
    const facts = [
      ...(sent === undefined ? [] : [`${sent} bytes sent`]),
      ...(this.#status === undefined ? [] : [String(this.#status), `${this.#bytes} bytes`]),
      `${Math.round(performance.now() - this.#start)} ms`,
      ...(error === undefined || error === null ? [] : [messageOf(error)]),
    ];
    this.#log(`${method} ${formatUrl(url)}: ${facts.join(', ')}`);
  }
}
