import { X509Certificate } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import type { Context } from '../../context.ts';
import { messageOf, PluginError } from '../../errors.ts';
import { textOf } from '../../fields.ts';
import { proxyFor, type Environment } from '../../content/http/proxy.ts';
import { makeSocksAgent } from './clientPackage.ts';
import type { KubeTarget } from './kubeconfig.ts';
import { impersonationHeaders, isRenewable, logIn, readMaterial, readServerAuthority } from './login.ts';

/** The inputs of a request: headers for the user, and an agent for TLS and the proxy. */
export interface Access {
  readonly headers: http.OutgoingHttpHeaders;
  readonly agent: http.Agent;
}

/** Options of logging in. */
export interface SessionOptions {
  readonly environment: Environment;
  /** Whether the user is at a terminal, so that a credential plugin may ask questions. */
  readonly hasTerminal?: boolean | undefined;
}

/** The CAs to verify a server with, and the client certificate with its key; all in PEM. */
interface ClusterTls {
  /** The CAs; undefined for the CAs of the system. */
  readonly ca: Buffer | undefined;
  readonly cert: Buffer | string | undefined;
  readonly key: Buffer | string | undefined;
}

/** The access to one cluster. Logs in, and renews credentials that have expired or were refused. */
export class Session {
  readonly #target: KubeTarget;
  readonly #options: SessionOptions;
  readonly #context: Context;
  readonly #agents: { readonly tls: ClusterTls; readonly agent: http.Agent }[] = [];
  #access: Promise<Access & { readonly expires: number }> | undefined;
  #clockOffset = 0;

  constructor(target: KubeTarget, options: SessionOptions, context: Context) {
    this.#target = target;
    this.#options = options;
    this.#context = context;
  }

  /**
   * Returns the present access, or a new one if it has expired or the cluster `rejected` it. Throws
   * `bad-credentials-file`, `not-readable`, `invalid-file`, and `usage` for a proxy variable that is not a URL.
   */
  async access(rejected?: Access): Promise<Access> {
    const present = await this.#access?.catch(() => undefined);
    if (present && present !== rejected && present.expires > Date.now()) return present;
    const renewed = this.#logIn();
    this.#access = renewed;
    return await renewed;
  }

  /** Whether another login may give other credentials than the refused ones. */
  get renewable(): boolean {
    return isRenewable(this.#target.user);
  }

  /** Notes the time of the server in the header Date of a response (RFC 9110). */
  noteTime(header: string | undefined): void {
    const offset = Date.parse(header ?? '') - Date.now();
    // The header has no parts of seconds.
    if (!Number.isNaN(offset)) this.#clockOffset = Math.abs(offset) < 2000 ? 0 : offset;
  }

  /** Returns the present time by the clock of the server, in milliseconds since 1970; by this clock before a response. */
  now(): number {
    return Date.now() + this.#clockOffset;
  }

  /** Returns when the present client certificate expired; undefined if it is valid, and without one. */
  get certificateExpiry(): Date | undefined {
    const cert = this.#agents.at(-1)?.tls.cert;
    if (cert === undefined || new URL(this.#target.server).protocol !== 'https:') return undefined;
    const { validToDate } = new X509Certificate(cert);
    return validToDate.getTime() < Date.now() ? validToDate : undefined;
  }

  /** Closes all connections. */
  [Symbol.dispose](): void {
    for (const { agent } of this.#agents.splice(0)) agent.destroy();
  }

  async #logIn(): Promise<Access & { readonly expires: number }> {
    const { cluster, user, source } = this.#target;
    const ca = await readServerAuthority(cluster, source);
    const login = await logIn(this.#target, ca, this.#options, this.#context);
    const tls = {
      ca,
      cert: login.certificate ?? (await readMaterial(user, 'client-certificate')),
      key: login.key ?? (await readMaterial(user, 'client-key')),
    };
    const headers = {
      ...(login.authorization !== undefined && { Authorization: login.authorization }),
      ...impersonationHeaders(user),
    };
    return { headers, agent: await this.#agentFor(tls), expires: login.expires };
  }

  /** Returns the agent for TLS settings. A new token needs no new connections, but new certificates do. */
  async #agentFor(tls: ClusterTls): Promise<http.Agent> {
    const last = this.#agents.at(-1);
    if (last && isDeepStrictEqual(last.tls, tls)) return last.agent;
    const agent = await makeClusterAgent(this.#target, tls, this.#options.environment);
    this.#agents.push({ tls, agent });
    return agent;
  }
}

/**
 * Creates the agent for requests to a cluster: with the TLS settings of its kubeconfig, through the kubeconfig’s
 * proxy-url or the proxy of the environment. Throws `invalid-file`, and `usage` for a proxy variable that is not a URL.
 */
async function makeClusterAgent(
  { server, cluster, source }: KubeTarget,
  tls: ClusterTls,
  environment: Environment,
): Promise<http.Agent> {
  const url = new URL(server);
  const servername = textOf(cluster['tls-server-name']);
  const verification = {
    rejectUnauthorized: cluster['insecure-skip-tls-verify'] !== true,
    ...(servername !== undefined && { servername }),
  };
  const given = textOf(cluster['proxy-url']);
  const proxy = given === undefined ? proxyFor(url, environment) : parseProxy(given);
  if (proxy?.protocol.startsWith('socks')) return makeSocksAgent(proxy, { ...tls, ...verification });
  if (url.protocol === 'http:') {
    return new http.Agent({ keepAlive: true, ...(proxy && { proxyEnv: { HTTP_PROXY: proxy.href } }) });
  }
  return new https.Agent({
    keepAlive: true,
    ...verification,
    secureContext: makeSecureContext(tls, source),
    ...(proxy && { proxyEnv: { HTTPS_PROXY: proxy.href } }),
  });
}

function makeSecureContext({ ca, cert, key }: ClusterTls, source: string): SecureContext {
  // As in kubectl, the kubeconfig’s CAs replace those of the system, and an intermediate CA may be trusted.
  const trusted = ca ?? [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
  try {
    return createSecureContext({ ca: trusted, cert, key, allowPartialTrustChain: true });
  } catch (cause) {
    throw new PluginError('invalid-file', `a certificate or key of ${source} cannot be used: ${messageOf(cause)}`, {
      hint: 'Use certificates in PEM, and the unencrypted key of the client certificate; or log in again with “oc login”.',
      cause,
    });
  }
}

function parseProxy(text: string): URL {
  const url = URL.parse(text);
  if (url && /^(https?|socks[45]?[ah]?):$/.test(url.protocol)) return url;
  // The message omits the value, which may have a password.
  const message = 'the proxy-url of the kubeconfig is not the URL of an http, https or SOCKS proxy';
  throw new PluginError('invalid-file', message);
}
