import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import type { Context } from '../context.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { readDuration } from '../waiting.ts';
import { explainNetworkError, interrupted, networkCode } from '../content/http/networkErrors.ts';
import { watchIdleTime } from '../content/http/idleTimeout.ts';
import { readBody } from '../content/http/responseBody.ts';
import { parseRetryAfter, RetryBudget, TransientError, type RetryOptions } from '../content/http/retry.ts';
import type { KubeTarget } from './connection/kubeconfig.ts';
import { explainConnection, explainClusterRefusal, parseAnswer } from './refusals.ts';
import type { ApiRequest, Rehearsal } from './rehearsal.ts';
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
