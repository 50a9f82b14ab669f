import { Readable } from 'node:stream';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { Connections } from '../http/connections.ts';
import type { SmallResponseLimits } from '../http/idleTimeout.ts';
import { errorBodyLimit, readBody, networkCode } from '../http/networkErrors.ts';
import { isTransient, retry, RetryBudget, type RetryOptions, type WaitWarnings } from '../http/retry.ts';
import type { Authorizer } from './auth/tokens.ts';
import { AuthenticatedClient, type RegistryRequest } from './authenticatedClient.ts';
import { explainRegistryRefusal, refuseEncoding, type Reply } from './refusals.ts';
import { Resumption } from './resumption.ts';

/** Options of Transport. */
export interface TransportOptions extends RetryOptions {
  /** Allow plain http, for servers that do not support https and for the target of a redirect. */
  readonly insecure?: boolean;
  /** The time without requests to a registry after its failure, in milliseconds; default one minute. */
  readonly pause?: number;
  /** The time after which a small response that is incomplete causes a warning, in milliseconds; default 10 s. */
  readonly slowAfter?: number;
  /** The time over which a small response must average 1 KiB/s, in milliseconds; default 30 s. */
  readonly smallWindow?: number;
}

/** The largest content that counts as small, in bytes: manifests, configurations and signatures, but no layers. */
const smallSize = 1024 * 1024;

/** The shortest time between two warnings about one registry, in milliseconds. */
const slowInterval = 60_000;

/** A request that reads content. Transport sets its method, its accepted types and its size limit. */
export type ContentRequest = Omit<RegistryRequest, 'method' | 'body' | 'accept' | 'limit'>;

/**
 * Sends requests to registries: logs in, follows redirects, retries and resumes. Throws PluginError, and `interrupted`
 * if the signal of the context is aborted.
 */
export class Transport {
  readonly #connections: Connections;
  readonly #client: AuthenticatedClient;
  readonly #context: Context;
  readonly #options: TransportOptions;
  readonly #circuitBreaker: CircuitBreaker;
  /** The time of the last warning of each registry. */
  readonly #warnings = new Map<string, WaitWarnings>();
  /** The time of the last warning of a slow response, by registry. */
  readonly #slow = new Map<string, number>();
  /** The registries that named another address than their own. */
  readonly #strange = new Set<string>();
  /** The number of responses of a registry at the first failure of each budget. */
  readonly #responses = new WeakMap<RetryBudget, number>();

  constructor(connections: Connections, authorizer: Authorizer, context: Context, options: TransportOptions = {}) {
    this.#connections = connections;
    this.#client = new AuthenticatedClient(authorizer, context, options.insecure ?? false);
    this.#context = context;
    this.#options = options;
    this.#circuitBreaker = new CircuitBreaker(options.pause);
  }

  /**
   * Returns the URL that a registry names in a response for `what`, such as its uploads. Warns once if it names another
   * host or port than its own. Undefined without an address.
   */
  addressIn({ url }: Pick<Reply, 'url'>, text: string | undefined, registry: string, what: string): URL | undefined {
    if (text === undefined) return undefined;
    const strange = strangeOrigin(text, url);
    if (strange !== undefined && !this.#strange.has(registry)) {
      this.#strange.add(registry);
      const words = `${registry} names the address ${strange} for its ${what}; ${url.origin} is used instead`;
      this.#context.log('warn', `${words}: let the proxy in front of it pass on the name of the host with its port`);
    }
    return resolveNamedAddress(text, url);
  }

  /** Sends a request, retries it, and reads the body of the response. */
  async send(request: RegistryRequest): Promise<Reply> {
    return await this.persist(request.registry, () => this.sendOnce(request));
  }

  /** Sends a request once (except for a login and redirects), as a part of an action of `persist`. */
  async sendOnce(request: RegistryRequest): Promise<Reply> {
    const small = typeof request.body === 'function' ? undefined : this.#smallLimits(request);
    const reply = await this.#client.send(request, async (exchange) => {
      const response = await this.#connections.exchange({ ...exchange, small });
      const limit = isSuccess(response.status) ? (request.limit ?? errorBodyLimit) : errorBodyLimit;
      return { ...response, body: await readBody(response, limit) };
    });
    if (isSuccess(reply.status)) refuseEncoding(request, reply.headers);
    else if (!request.accept?.includes(reply.status)) throw explainRegistryRefusal(request, reply);
    this.#circuitBreaker.noteResponse(request.registry);
    return reply;
  }

  /** Repeats an action as long as its errors are transient. The action may report progress to the budget. */
  async persist<T>(registry: string, action: (budget: RetryBudget) => Promise<T>): Promise<T> {
    this.#circuitBreaker.check(registry);
    const budget = this.#budgetFor(registry);
    return await retry(
      () => action(budget),
      (error) => this.#waitAfter(budget, registry, error),
    );
  }

  /**
   * Downloads content of a known size from `start` (bytes) as a stream, which resumes after a lost connection. Throws
   * `size-mismatch` if the server announces or sends another size.
   */
  async open(request: ContentRequest, size: number, start = 0): Promise<Readable> {
    const resumption = new Resumption({ ...request, method: 'GET' }, size, start);
    const budget = this.#budgetFor(request.registry);
    const waitAfter = (error: unknown): Promise<void> =>
      this.#waitAfter(budget, request.registry, resumption.explain(error));
    const noteResponse = (): void => {
      this.#circuitBreaker.noteResponse(request.registry);
    };
    const small = size <= smallSize ? this.#smallLimits(request) : undefined;
    const connect = (): Promise<Readable> => retry(() => this.#openOnce(request, resumption, small), waitAfter);
    async function* read(): AsyncGenerator<Buffer> {
      for (;;) {
        try {
          for await (const chunk of body as AsyncIterable<Buffer>) {
            const fresh = resumption.take(chunk);
            budget.progress(fresh.length);
            noteResponse();
            if (fresh.length > 0) yield fresh;
          }
          resumption.finish();
        } catch (error) {
          if (!resumption.isComplete) await waitAfter(error);
        }
        if (resumption.isComplete) return;
        body = await connect();
      }
    }
    if (start > 0 && resumption.isComplete) return Readable.from([]);
    this.#circuitBreaker.check(request.registry);
    let body = await connect();
    // A reader that stops before the first byte never enters the loop that closes the response.
    return Readable.from(read(), { objectMode: false }).once('close', () => {
      body.destroy();
    });
  }

  /**
   * Downloads content of a known size from `start` (bytes), and passes each byte once to `receive`, synchronously and
   * in order. Resumes after a lost connection. A chunk is valid only during the call. Throws the errors of `receive`.
   */
  async download(
    request: ContentRequest,
    size: number,
    start: number,
    receive: (chunk: Buffer) => void,
  ): Promise<void> {
    const resumption = new Resumption({ ...request, method: 'GET' }, size, start);
    if (start > 0 && resumption.isComplete) return;
    this.#circuitBreaker.check(request.registry);
    const budget = this.#budgetFor(request.registry);
    let thrown: { error: unknown } | undefined;
    const take = (chunk: Buffer): void => {
      const fresh = resumption.take(chunk);
      budget.progress(fresh.length);
      this.#circuitBreaker.noteResponse(request.registry);
      try {
        if (fresh.length > 0) receive(fresh);
      } catch (error) {
        thrown = { error };
        throw error;
      }
    };
    const receiveOnce = async (): Promise<void> => {
      const content = toGet(request, resumption);
      try {
        const reply = await this.#client.send(content, (exchange) =>
          this.#connections.receive(exchange, (...head) => (this.#begin(request, resumption, head) ? take : undefined)),
        );
        if (![200, 206].includes(reply.status)) throw explainRegistryRefusal(content, reply);
        resumption.finish();
      } catch (error) {
        // An error after the last byte does not matter.
        if (thrown !== undefined || !resumption.isComplete || start >= size) throw error;
      }
    };
    await retry(receiveOnce, (error) => {
      // An error of the receiver, such as a full disk, is not an error of the server.
      if (thrown) throw thrown.error;
      return this.#waitAfter(budget, request.registry, resumption.explain(error));
    });
  }

  /** Without a warning, a slow server would hold a command in silence. */
  #smallLimits({ registry, repository, what }: ContentRequest): SmallResponseLimits {
    const { slowAfter: warnAfter = 10_000, smallWindow: window = 30_000 } = this.#options;
    const warn = (): void => {
      const now = performance.now();
      if (now - (this.#slow.get(registry) ?? -Infinity) < slowInterval) return;
      this.#slow.set(registry, now);
      const name = `${what} of ${registry}/${repository}`;
      this.#context.log('warn', `waiting for ${name}: it is incomplete after ${Math.ceil(warnAfter / 1000)} s`);
    };
    return { window, warnAfter, warn };
  }

  #budgetFor(registry: string): RetryBudget {
    const warnings = this.#warnings.get(registry) ?? { last: -Infinity };
    this.#warnings.set(registry, warnings);
    return new RetryBudget(this.#options, this.#context, warnings);
  }

  async #openOnce(
    request: ContentRequest,
    resumption: Resumption,
    small: SmallResponseLimits | undefined,
  ): Promise<Readable> {
    const content = toGet(request, resumption);
    let stream: Readable | undefined;
    const reply = await this.#client.send(content, async (exchange) => {
      const response = await this.#connections.exchange({ ...exchange, small });
      try {
        if (this.#begin(request, resumption, [response.status, response.headers])) stream = response.body;
        return { ...response, body: stream ? Buffer.alloc(0) : await readBody(response, errorBodyLimit) };
      } catch (error) {
        response.body.destroy();
        throw error;
      }
    });
    if (!stream) throw explainRegistryRefusal(content, reply);
    return stream;
  }

  #begin({ registry }: ContentRequest, resumption: Resumption, head: Parameters<Resumption['begin']>): boolean {
    const begun = resumption.begin(...head);
    if (begun) this.#circuitBreaker.noteResponse(registry);
    return begun;
  }

  /** Waits after a failure. Uses fewer attempts if the host may not exist, and none if the circuit breaker is open. */
  async #waitAfter(budget: RetryBudget, registry: string, error: unknown): Promise<void> {
    const { attempts = 6 } = this.#options;
    const responses = this.#responses.get(budget) ?? this.#circuitBreaker.responsesOf(registry);
    this.#responses.set(budget, responses);
    const isDoubtful = !this.#client.hasResponded(registry) && unreachableCodes.includes(networkCode(error));
    const most = this.#circuitBreaker.isOpen(registry) ? 1 : isDoubtful ? Math.min(3, attempts) : attempts;
    try {
      await budget.waitAfter(error, most);
    } catch (final) {
      // A registry that refuses a request is running.
      if (!isTransient(error)) this.#circuitBreaker.noteResponse(registry);
      else if (final === error || isPluginError(final, 'rate-limited')) {
        this.#circuitBreaker.open(registry, isPluginError(final) ? final : error, responses);
      }
      throw final;
    }
  }
}

const unreachableCodes = ['ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH'];

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

function toGet(request: ContentRequest, resumption: Resumption): RegistryRequest {
  return { ...request, method: 'GET', headers: { ...request.headers, ...resumption.headers } };
}

/** The time without requests to a registry after its failure, in milliseconds. */
const defaultPause = 60_000;

/**
 * Stops requests to a registry after a request to it used up its retry budget without a useful response. Otherwise each
 * image would wait for a mirror that is down, and each blob for a registry that failed meanwhile.
 */
class CircuitBreaker {
  readonly #pause: number;
  readonly #responses = new Map<string, number>();
  readonly #registries = new Map<string, { error: PluginError; until: number }>();

  constructor(pause: number = defaultPause) {
    this.#pause = pause;
  }

  /** Returns the number of useful responses of a registry. */
  responsesOf(registry: string): number {
    return this.#responses.get(registry) ?? 0;
  }

  /** Counts a useful response, or a part of one. */
  noteResponse(registry: string): void {
    this.#responses.set(registry, this.responsesOf(registry) + 1);
    this.#registries.delete(registry);
  }

  /** Stops requests to a registry, unless it has sent more useful responses than this number. */
  open(registry: string, error: PluginError, responses: number): void {
    if (this.responsesOf(registry) > responses) return;
    this.#registries.set(registry, { error, until: performance.now() + this.#pause });
  }

  isOpen(registry: string): boolean {
    return this.#registries.has(registry);
  }

  /** Throws the failure of a registry. Lets one request through after each pause, to test the registry. */
  check(registry: string): void {
    const failure = this.#registries.get(registry);
    if (!failure) return;
    if (performance.now() < failure.until) {
      const { code, message, hint } = failure.error;
      throw new PluginError(code, `no further requests to ${registry}: ${message}`, { hint, cause: failure.error });
    }
    failure.until = performance.now() + this.#pause;
  }
}

/**
 * Returns the URL that a registry names in a header of a response from `from`, such as the Location of an upload or the
 * Link of a page. Of an address of its own API only the path and the query count: proxies often pass on another scheme,
 * host or port (distribution #2572). An address elsewhere, such as a storage service, stays as it is, without a user.
 * Undefined if it is no HTTP URL.
 */
export function resolveNamedAddress(text: string, from: URL): URL | undefined {
  // Some registries leave out the first slash.
  const url = URL.parse(text.startsWith('v2/') ? `/${text}` : text, from);
  if (!url || !['http:', 'https:'].includes(url.protocol)) return undefined;
  if (url.hostname === from.hostname || url.pathname.startsWith('/v2/'))
    return new URL(`${url.pathname}${url.search}`, from.origin);
  url.username = url.password = '';
  return url;
}

/**
 * Returns the origin that a registry names for an address of its own API, if it has another host or port than its own.
 * Another scheme alone is usual behind a proxy that ends TLS.
 */
export function strangeOrigin(text: string, from: URL): string | undefined {
  const url = URL.parse(text, from);
  const resolved = resolveNamedAddress(text, from);
  return url && resolved?.origin === from.origin && url.host !== from.host ? url.origin : undefined;
}
