import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import {
  explainNetworkError,
  interrupted,
  networkCode,
  readBody,
  watchIdleTime,
  parseRetryAfter,
  RetryBudget,
  TransientError,
  type RetryOptions,
} from '#content/http';
import { type Context, readDuration } from '#context';
import { isPluginError, PluginError } from '#errors';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, type Fields } from '#fields';
import { explainConnection, explainClusterRefusal, parseAnswer } from './apply/apiErrors.ts';
import type { KubeTarget } from './connection/kubeconfig.ts';
import type { Access, Session } from './connection/session.ts';

/** The wait until a message is logged, in milliseconds. */
const noticeDelay = 5000;

/** The error if the server did not respond in time. */
class Timeout extends Error {}

function isTimeout(error: unknown): error is Timeout {
  return error instanceof Timeout;
}

/** Time limits and retries of requests. */
export interface ExchangeOptions {
  /** The time limit for one attempt in milliseconds; 0 for none. Default one minute. */
  readonly requestTimeout?: number | undefined;
  /** The time limit for a connection with TLS in milliseconds; default 15 s. */
  readonly connectTimeout?: number | undefined;
  /** The largest response in bytes; default 128 MiB, which is 500 objects of 256 KiB. */
  readonly responseLimit?: number | undefined;
  readonly retry?: RetryOptions | undefined;
  /** Keeps writes from taking effect, for a dry run. */
  readonly rehearsal?: Rehearsal | undefined;
  readonly userAgent?: string | undefined;
}

/** Sends requests to one API server, with its credentials and with retries. */
export class Exchange {
  readonly #target: KubeTarget;
  readonly #session: Session;
  readonly #options: ExchangeOptions;
  readonly #context: Context;
  readonly #warnings = new Set<string>();

  constructor(target: KubeTarget, session: Session, options: ExchangeOptions, context: Context) {
    this.#target = target;
    this.#session = session;
    this.#options = options;
    this.#context = context;
  }

  /**
   * Sends a request, and returns the JSON of the response. Retries reads. Retries writes only if the server asked for
   * it or was never reached. Retries once with new credentials after a 401. Throws ApiError for refusals,
   * `unreachable`, `tls`, `rate-limited`, `server-error`, `too-large`, `interrupted`, and the errors of a login.
   */
  async send(request: ApiRequest): Promise<unknown> {
    const send = async (own: ApiRequest): Promise<unknown> => parseAnswer(await this.sendForText(own), this.#target);
    const { rehearsal } = this.#options;
    return await (rehearsal ? rehearsal.answer(request, send) : send(request));
  }

  /** Sends a request, and returns the text of the response, with the retries and errors of `send`. */
  async sendForText(request: ApiRequest): Promise<string> {
    const budget = new RetryBudget(this.retry, this.#context);
    let access = await this.#session.access();
    let renewed = false;
    for (;;) {
      try {
        return await this.#exchange(request, access, (response) => this.#read(response));
      } catch (error) {
        if (isPluginError(error, 'unauthorized') && this.#session.renewable && !renewed) {
          renewed = true;
          access = await this.#session.access(access);
          continue;
        }
        if (!mayRepeat(request, error)) throw error;
        // After a timeout, one more attempt is enough.
        const inVain = isPluginError(error) && isTimeout(error.cause);
        await budget.waitAfter(error, inVain ? 2 : undefined);
        if (inVain) this.#context.log('info', `${error.message}; trying again`);
        access = await this.#session.access();
      }
    }
  }

  /**
   * Sends a GET, and returns the response when it starts. Reading its body has no time limit, and ends with `signal`.
   * Retries only a 401, once. Throws the errors of `send`.
   */
  async open(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    let access = await this.#session.access();
    for (let renewed = false; ; renewed = true) {
      try {
        return await this.#exchange(request, access, (response) => Promise.resolve(response), signal);
      } catch (error) {
        if (!isPluginError(error, 'unauthorized') || !this.#session.renewable || renewed) throw error;
        access = await this.#session.access(access);
      }
    }
  }

  /** Returns an exchange whose requests also end with `signal`. */
  within(signal: AbortSignal): Exchange {
    const context = { ...this.#context, signal: AbortSignal.any([signal, this.#context.signal]) };
    return new Exchange(this.#target, this.#session, this.#options, context);
  }

  /** Returns an exchange whose requests end only with this signal, for requests after an interruption. */
  detached(signal: AbortSignal): Exchange {
    const context = { ...this.#context, signal };
    return new Exchange(this.#target, this.#session, this.#options, context);
  }

  get context(): Context {
    return this.#context;
  }

  get retry(): RetryOptions {
    return this.#options.retry ?? { attempts: 4, baseDelay: 500, longestWait: 60_000 };
  }

  /** Sends one request. `take` reads a successful response. */
  async #exchange<T>(
    request: ApiRequest,
    access: Access,
    take: (response: IncomingMessage) => Promise<T>,
    signal: AbortSignal = this.#context.signal,
  ): Promise<T> {
    const url = new URL(`${this.#target.server}${request.path}`);
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, value);
    }
    const { requestTimeout = 60_000 } = this.#options;
    const idle = new AbortController();
    const abandon = (words: string): void => {
      idle.abort(new Timeout(words));
    };
    const timers = [
      setTimeout(() => {
        this.#context.log('info', `waiting for ${url.host}, the cluster ${this.#target.name}`);
      }, noticeDelay),
      ...(requestTimeout > 0
        ? [setTimeout(abandon, requestTimeout, `did not answer within ${requestTimeout / 1000} s`)]
        : []),
    ];
    try {
      const response = await this.#send(request, url, access, AbortSignal.any([signal, idle.signal]), abandon);
      const { statusCode: status = 0, headers } = response;
      this.#context.log('debug', `${request.method} ${url.pathname}${url.search} ${status}`);
      this.#passOn(headers.warning);
      this.#session.noteTime(headers.date);
      if (status >= 200 && status < 300) return await take(response);
      throw this.#explain(request, response, await this.#read(response));
    } catch (error) {
      if (signal.aborted) throw interrupted();
      const timeout: unknown = idle.signal.reason;
      if (isTimeout(timeout)) {
        const words = `${url.host} ${timeout.message}`;
        throw explainConnection(new PluginError('unreachable', words, { cause: timeout }), this.#target);
      }
      throw explainConnection(explainNetworkError(error, url), this.#target);
    } finally {
      timers.forEach(clearTimeout);
    }
  }

  async #read(body: IncomingMessage): Promise<string> {
    const { responseLimit: limit = 128 * 1024 * 1024 } = this.#options;
    const bytes = await readBody({ body }, limit + 1);
    if (bytes.length <= limit) return bytes.toString();
    const { server, name, source } = this.#target;
    throw new PluginError('too-large', `${server} (${name}) sent more than ${limit} bytes in one response`, {
      hint: `Check the server of ${source}, and whether a proxy answers instead of it.`,
    });
  }

  #explain({ method }: ApiRequest, { statusCode = 0, headers }: IncomingMessage, body: string): PluginError {
    const retryAfter = parseRetryAfter(headers['retry-after']);
    let answer: unknown;
    try {
      answer = JSON.parse(body);
    } catch {
      answer = undefined;
    }
    const certificateExpiry = statusCode === 401 ? this.#session.certificateExpiry : undefined;
    const facts = { retryAfter, repeatable: method === 'GET', certificateExpiry };
    return explainClusterRefusal(statusCode, answer, this.#target, facts);
  }

  #send(
    request: ApiRequest,
    url: URL,
    access: Access,
    signal: AbortSignal,
    abandon: (words: string) => void,
  ): Promise<IncomingMessage> {
    const { method, body, contentType = 'application/json', accept = 'application/json' } = request;
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = {
      Accept: accept,
      'User-Agent': this.#options.userAgent ?? 'oc-disconnected',
      ...(bytes && { 'Content-Type': contentType, 'Content-Length': String(bytes.length) }),
      ...access.headers,
    };
    const { connectTimeout = 15_000 } = this.#options;
    return new Promise((resolve, reject) => {
      const outgoing = (url.protocol === 'https:' ? https : http).request(url, {
        method,
        headers,
        agent: access.agent,
        signal,
      });
      let incoming: IncomingMessage | undefined;
      // requestTimeout limits the time until the response.
      const limits = { connectTimeout, idleTimeout: Infinity };
      const unwatch = watchIdleTime(outgoing, () => incoming, limits, abandon);
      outgoing.once('close', unwatch).once('error', reject);
      outgoing.once('response', (response) => {
        incoming = response;
        resolve(response);
      });
      outgoing.end(bytes);
    });
  }

  /** Logs each warning of the server once (deprecated kinds, admission policies): `299 - "text"`. */
  #passOn(header: string | string[] | undefined): void {
    for (const [, quoted = ''] of String(header ?? '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)) {
      const warning = quoted.replace(/\\(.)/g, '$1');
      if (!this.#warnings.has(warning)) this.#context.log('warn', `${this.#target.name}: ${warning}`);
      this.#warnings.add(warning);
    }
  }
}

function mayRepeat({ method }: ApiRequest, error: unknown): boolean {
  if (error instanceof TransientError || method === 'GET') return true;
  // The request did not reach a server, so it had no effect.
  return ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'].includes(networkCode(error));
}

/** Parses a request timeout into milliseconds; see ClusterOptions. Throws `usage`. */
export function parseTimeout(given: number | string | undefined): number | undefined {
  if (given === undefined || typeof given === 'number') return given;
  const time = readDuration(given.trim());
  if (time !== undefined) return time;
  throw new PluginError('usage', `“${given}” is not a valid request timeout`, {
    hint: 'Give seconds, such as 30, or a time such as 30s or 1m30s; 0 for no limit.',
  });
}

/** One request to an API server. `path` is below the server’s URL, and encoded. */
interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
  /** The media type of the body; default `application/json`. */
  readonly contentType?: string;
  /** The media type of the response; default `application/json`. */
  readonly accept?: string;
}

/** The kinds of a dry run: the server checks each write and keeps nothing, or gets none. */
export type DryRunMode = 'client' | 'server';

/**
 * Keeps the writes of a dry run from taking effect. Later reads of the same run see what they would have done: objects
 * by their paths, and lists of one namespace or of a kind without namespaces. Other commands and watches see nothing.
 */
export class Rehearsal {
  readonly #mode: DryRunMode;
  /** The objects that were written, by their paths; undefined for a deleted one. */
  readonly #written = new Map<string, Fields | undefined>();

  constructor(mode: DryRunMode) {
    this.#mode = mode;
  }

  /**
   * Answers a request, with what `send` returns for it if the server is asked. Throws `not-found` for a deleted object.
   */
  async answer(request: ApiRequest, send: (request: ApiRequest) => Promise<unknown>): Promise<unknown> {
    const { method, path } = request;
    // A SelfSubjectAccessReview and its like only ask.
    if (path.endsWith('reviews')) return await send(request);
    if (method === 'GET') return await this.#read(request, send);
    const key = method === 'POST' ? `${path}/${nameOf(request.body)}` : path;
    const isOwn = this.#written.has(key);
    const isAsked = this.#mode === 'server' && !isOwn;
    if (method === 'DELETE') {
      const before = isOwn ? this.#written.get(key) : await send({ method: 'GET', path });
      if (isAsked) await send({ ...request, body: { ...fieldsOf(request.body), dryRun: ['All'] } });
      this.#written.set(key, undefined);
      return before;
    }
    const object = isAsked
      ? await send({ ...request, query: { ...request.query, dryRun: 'All' } })
      : await this.#simulate(request, send);
    this.#written.set(key, fieldsOf(object));
    return object;
  }

  async #read(request: ApiRequest, send: (request: ApiRequest) => Promise<unknown>): Promise<unknown> {
    const { path } = request;
    if (this.#written.has(path)) {
      const object = this.#written.get(path);
      if (object) return object;
      throw new PluginError('not-found', `${path} is deleted in this dry run`);
    }
    const own = [...this.#written].filter(([key]) => key.slice(0, key.lastIndexOf('/')) === path);
    const answer = await send(request);
    if (own.length === 0 || !isFields(answer)) return answer;
    const names = new Set(own.map(([key]) => key.slice(path.length + 1)));
    const others = listOf(answer['items']).filter((item) => !names.has(nameOf(item)));
    return { ...answer, items: [...others, ...own.flatMap(([, object]) => object ?? [])] };
  }

  /** Returns the object as a write would leave it, without defaults of the server. */
  async #simulate(
    { method, path, body }: ApiRequest,
    send: (request: ApiRequest) => Promise<unknown>,
  ): Promise<unknown> {
    if (method !== 'PATCH') return body;
    return mergePatch(await this.#read({ method: 'GET', path }, send), body);
  }
}

function nameOf(object: unknown): string {
  return textOf(fieldsAt(object, 'metadata')['name']) ?? '';
}

/** Applies a merge patch (RFC 7386). */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isFields(patch)) return patch;
  const merged = new Map(Object.entries(fieldsOf(target)));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, mergePatch(merged.get(key), value));
  }
  return Object.fromEntries(merged);
}
