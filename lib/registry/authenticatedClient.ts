import type { Readable } from 'node:stream';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import type { ExchangeRequest, ReadResponse } from '../http/connections.ts';
import { networkCode, printable, speaksHttp } from '../http/networkErrors.ts';
import type { Reply, RequestSubject } from './refusals.ts';
import type { Authorizer } from './auth/tokens.ts';
import { followRedirects, keepsEncryption } from '../http/redirect.ts';

/** A request to a registry about something in a repository. */
export interface RegistryRequest extends RequestSubject {
  /** What follows `/v2/<repository>/`, or a URL that the registry gave. */
  readonly target: string | URL;
  readonly headers?: Readonly<Record<string, string>>;
  /** A function is called for each attempt; the headers then need a Content-Length. */
  readonly body?: Buffer | (() => Promise<Readable>);
  readonly actions: 'pull' | 'pull,push';
  /** Another repository that is read in the same request. */
  readonly from?: string;
  /** Statuses besides 2xx that are an answer and not an error. */
  readonly accept?: readonly number[];
  /** The most that is wanted of the answer's body, in bytes; default 64 KiB. */
  readonly limit?: number;
}

/** What sends one request and reads as much of its answer as is wanted. */
export type Perform = (exchange: ExchangeRequest) => Promise<ReadResponse>;

/** Single requests to registries, with everything that belongs to one: the registry's scheme, a login, redirects. */
export class AuthenticatedClient {
  readonly #authorizer: Authorizer;
  readonly #context: Context;
  readonly #insecure: boolean;
  /** The schemes that registries were found to speak. */
  readonly #schemes = new Map<string, 'http' | 'https'>();
  readonly #responded = new Set<string>();
  /** Those that did not speak https when they were asked. */
  readonly #plain = new Set<string>();

  /** With `insecure`, plain http is allowed: where a registry speaks nothing else, and as the target of a redirect. */
  constructor(authorizer: Authorizer, context: Context, insecure: boolean) {
    this.#authorizer = authorizer;
    this.#context = context;
    this.#insecure = insecure;
  }

  /** Tells whether a registry has answered anything in this run. */
  hasResponded(registry: string): boolean {
    return this.#responded.has(registry);
  }

  /** Sends a request with the Authorization it needs, and once more where the registry wants another. */
  async send(request: RegistryRequest, perform: Perform): Promise<Reply> {
    const { registry, repository, actions, from } = request;
    const scopes = [`repository:${repository}:${actions}`, ...(from === undefined ? [] : [`repository:${from}:pull`])];
    const subject = { registry, repository, scope: scopes.join(' ') };
    const authorization = await this.#authorizer.authorize(subject);
    const reply = await this.#follow(request, authorization, perform);
    const challenge = reply.headers['www-authenticate'];
    if (reply.status !== 401 || reply.isCrossOrigin || challenge === undefined) return reply;
    const rejected = reply.authorization;
    const renewed = await this.#authorizer.authorize({
      ...subject,
      challenge,
      ...(rejected !== undefined && { rejected }),
    });
    if (renewed === undefined || renewed === rejected) return reply;
    return await this.#follow(request, renewed, perform);
  }

  /** Sends a request, and again to where redirects lead. Authorization never leaves the registry's own origin. */
  async #follow(request: RegistryRequest, authorization: string | undefined, perform: Perform): Promise<Reply> {
    const { method, body, headers } = request;
    const exchange = { method, signal: this.#context.signal, ...(body && { body }) };
    const sent = (authorized: boolean): Record<string, string> => ({
      ...headers,
      ...(authorized && authorization !== undefined && { Authorization: authorization }),
    });
    const sendTo = (target: URL, sameOrigin: boolean): Promise<ReadResponse> =>
      perform({ ...exchange, url: target, headers: sent(sameOrigin) });
    const first = await this.#reach(request, async (target, own) => ({
      url: target,
      sameOrigin: own,
      response: await sendTo(target, own),
    }));
    this.#responded.add(request.registry);
    const { url, sameOrigin, response } = await followRedirects(method, first, sendTo, (from, to, hops) => {
      if (hops === 10)
        throw new PluginError('server-error', `${request.registry} redirects more than 10 times (${printable(from)})`);
      this.#checkRedirect(from, to);
      return true;
    });
    return { ...response, url, isCrossOrigin: !sameOrigin, authorization: sameOrigin ? authorization : undefined };
  }

  /** Finds the scheme of a registry with the first request to it: https, or http where that is allowed and all it speaks. */
  async #reach<T>(request: RegistryRequest, go: (url: URL, own: boolean) => Promise<T>): Promise<T> {
    const { registry, repository, target } = request;
    const host = hostOf(registry);
    const known = this.#schemes.get(registry);
    if (target instanceof URL) {
      const schemes = known ? [known] : this.#insecure ? ['https', 'http'] : ['https'];
      return await go(
        target,
        schemes.some((scheme) => target.origin === new URL(`${scheme}://${host}`).origin),
      );
    }
    const at = (scheme: string): URL => new URL(`${scheme}://${host}/v2/${repository}/${target}`);
    if (known || !this.#insecure) return await go(at(known ?? 'https'), true);
    try {
      const found = await go(at('https'), true);
      this.#schemes.set(registry, 'https');
      return found;
    } catch (error) {
      const refused = networkCode(error) === 'ECONNREFUSED' && !/:\d+$/.test(host);
      if (!speaksHttp(error) && !refused) throw error;
      if (!this.#plain.has(registry)) this.#context.log('debug', `${registry} does not speak https: trying http`);
      this.#plain.add(registry);
      if (speaksHttp(error)) this.#schemes.set(registry, 'http');
      const found = await go(at('http'), true);
      this.#schemes.set(registry, 'http');
      return found;
    }
  }

  #checkRedirect(from: URL, to: URL): void {
    if (!['http:', 'https:'].includes(to.protocol))
      throw new PluginError('server-error', `${printable(from)} redirects to a ${to.protocol} address`);
    if (keepsEncryption(from, to) || this.#insecure) return;
    throw new PluginError('tls', `${printable(from)} redirects to ${printable(to)}, which is not encrypted`, {
      hint: 'Allow plain HTTP if you trust the network.',
      settings: ['insecure'],
    });
  }
}

/** The host that answers for a registry: Docker Hub’s is not the one in its references. */
function hostOf(registry: string): string {
  return registry === 'docker.io' || registry === 'index.docker.io' ? 'registry-1.docker.io' : registry;
}
