import type { Readable } from 'node:stream';
import type { Context } from '#context';
import { ignoreFailure, PluginError } from '#errors';
import type { ExchangeRequest, ReadResponse } from '../http/connections.ts';
import { followRedirects, keepsEncryption } from '../http/fetchFile.ts';
import { formatUrl, isConnectionLost, networkCode, speaksHttp } from '../http/networkErrors.ts';
import type { Authorizer } from './auth/tokens.ts';
import type { Reply, RequestSubject } from './refusals.ts';

/** A request to a registry about content of a repository. */
export interface RegistryRequest extends RequestSubject {
  /** The path after `/v2/<repository>/`, or a URL from the registry. */
  readonly target: string | URL;
  readonly headers?: Readonly<Record<string, string>>;
  /** The body. A function is called for each attempt, and needs a Content-Length header. */
  readonly body?: Buffer | (() => Promise<Readable>);
  readonly actions: 'pull' | 'pull,push' | 'pull,push,delete';
  /** The scope of the login, if it is not a repository. */
  readonly scope?: string;
  /** Another repository that the request reads. */
  readonly from?: string;
  /** Statuses other than 2xx that are not an error. */
  readonly accept?: readonly number[];
  /** The limit of the response body, in bytes; default 64 KiB. */
  readonly limit?: number;
}

/** Sends one request, and reads its response up to a limit. */
export type Perform = (exchange: ExchangeRequest) => Promise<ReadResponse>;

/** Sends single requests to registries. Finds the scheme of the registry, logs in, and follows redirects. */
export class AuthenticatedClient {
  readonly #authorizer: Authorizer;
  readonly #context: Context;
  readonly #insecure: boolean;
  /** The known scheme of each registry. */
  readonly #schemes = new Map<string, 'http' | 'https'>();
  readonly #responded = new Set<string>();
  /** The registries that do not support https. */
  readonly #plain = new Set<string>();

  /** `insecure` allows plain http for registries that do not support https, and for the target of a redirect. */
  constructor(authorizer: Authorizer, context: Context, insecure: boolean) {
    this.#authorizer = authorizer;
    this.#context = context;
    this.#insecure = insecure;
  }

  /** Returns whether a registry has sent a response in this run. */
  hasResponded(registry: string): boolean {
    return this.#responded.has(registry);
  }

  /** Sends a request with an Authorization header, and repeats it once if the registry requires another one. */
  async send(request: RegistryRequest, perform: Perform): Promise<Reply> {
    const { registry, repository, actions, from } = request;
    const scope = request.scope ?? `repository:${repository}:${actions}`;
    const scopes = [scope, ...(from === undefined ? [] : [`repository:${from}:pull`])];
    const subject = { registry, repository, scope: scopes.join(' ') };
    const authorization = await this.#authorizer.authorize(subject);
    const reply = await this.#follow(request, authorization, perform);
    const challenge = reply.headers['www-authenticate'];
    if (reply.status !== 401 || reply.isCrossOrigin || challenge === undefined) return reply;
    const rejected = reply.authorization;
    const renewed = await this.#authorizer.authorize({
      ...subject,
      challenge,
      rejected,
    });
    if (renewed === undefined || renewed === rejected) return reply;
    const second = await this.#follow(request, renewed, perform);
    // A password that is rejected now stays so: the authorizer throws an error that names its file.
    if (second.status === 401 && !second.isCrossOrigin && renewed.startsWith('Basic '))
      await this.#authorizer.authorize({ ...subject, challenge, rejected: renewed });
    return second;
  }

  /** Sends a request and follows redirects. Never sends credentials to another origin than the registry. */
  async #follow(request: RegistryRequest, authorization: string | undefined, perform: Perform): Promise<Reply> {
    const { method, body, headers } = request;
    const exchange = { method, signal: this.#context.signal, body };
    const sent = (authorized: boolean): Record<string, string> => ({
      ...headers,
      ...(authorized && authorization !== undefined && { Authorization: authorization }),
    });
    const sendTo = (target: URL, sameOrigin: boolean): Promise<ReadResponse> =>
      perform({ ...exchange, url: target, headers: sent(sameOrigin) });
    const first = await this.#reach(request, async (target, isRegistryOrigin) => ({
      url: target,
      sameOrigin: isRegistryOrigin,
      response: await sendTo(target, isRegistryOrigin),
    }));
    this.#responded.add(request.registry);
    const { url, sameOrigin, response } = await followRedirects(method, first, sendTo, (from, to, hops) => {
      if (hops === 10)
        throw new PluginError('server-error', `${request.registry} redirects more than 10 times (${formatUrl(from)})`);
      this.#checkRedirect(from, to);
      return true;
    });
    return { ...response, url, isCrossOrigin: !sameOrigin, authorization: sameOrigin ? authorization : undefined };
  }

  /**
   * Finds the scheme of a registry with the first request: https, or http if that is allowed and the registry does not
   * support https.
   */
  async #reach<T extends { readonly response: ReadResponse }>(
    request: RegistryRequest,
    go: (url: URL, isRegistryOrigin: boolean) => Promise<T>,
  ): Promise<T> {
    const { registry, repository, target } = request;
    const host = hostOf(registry);
    const knownScheme = this.#schemes.get(registry);
    if (target instanceof URL) {
      const schemes = knownScheme ? [knownScheme] : this.#insecure ? ['https', 'http'] : ['https'];
      const isOwn = schemes.some((scheme) => target.origin === new URL(`${scheme}://${host}`).origin);
      if (!isOwn) this.#checkRedirect(new URL(`${knownScheme ?? 'https'}://${host}`), target);
      return await go(target, isOwn);
    }
    const at = (scheme: string): URL => new URL(`${scheme}://${host}/v2/${repository}/${target}`);
    if (knownScheme || !this.#insecure) return await go(at(knownScheme ?? 'https'), true);
    try {
      const result = await go(at('https'), true);
      this.#schemes.set(registry, 'https');
      return result;
    } catch (error) {
      const refused = networkCode(error) === 'ECONNREFUSED' && !/:\d+$/.test(host);
      // Some servers close the connection that begins with a TLS handshake (Varnish).
      const isCut = isConnectionLost(error);
      if (!speaksHttp(error) && !refused && !isCut) throw error;
      if (isCut) {
        const plain = await go(at('http'), true).catch(ignoreFailure);
        // A server with https that closed the connection refuses plain http.
        if (!plain || plain.response.status === 400) throw error;
        this.#schemes.set(registry, 'http');
        return plain;
      }
      if (!this.#plain.has(registry)) this.#context.log('debug', `${registry} does not speak https: trying http`);
      this.#plain.add(registry);
      if (speaksHttp(error)) this.#schemes.set(registry, 'http');
      const result = await go(at('http'), true);
      this.#schemes.set(registry, 'http');
      return result;
    }
  }

  #checkRedirect(from: URL, to: URL): void {
    if (!['http:', 'https:'].includes(to.protocol))
      throw new PluginError('server-error', `${formatUrl(from)} redirects to a ${to.protocol} address`);
    if (keepsEncryption(from, to) || this.#insecure) return;
    throw new PluginError('tls', `${formatUrl(from)} redirects to ${formatUrl(to)}, which is not encrypted`, {
      hint: 'Allow plain HTTP if you trust the network.',
      settings: ['insecure'],
    });
  }
}

/** Returns the host of a registry. The host of Docker Hub differs from the one in references. */
function hostOf(registry: string): string {
  return registry === 'docker.io' || registry === 'index.docker.io' ? 'registry-1.docker.io' : registry;
}
