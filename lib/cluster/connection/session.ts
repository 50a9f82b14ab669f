import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { isMissing } from '#content/files';
import { proxyFor, type Environment } from '#content/http';
import type { Context } from '#context';
import { messageOf, PluginError } from '#errors';
import { textOf, fieldsAt, fieldsOf, isFields, type Fields } from '#fields';
import { runCredentialPlugin, type PluginOptions } from './credentialPlugin.ts';
import type { KubeTarget } from './kubeconfig.ts';

/** The inputs of a request: headers for the user, and an agent for TLS and the proxy. */
export interface Access {
  readonly headers: http.OutgoingHttpHeaders;
  readonly agent: http.Agent;
}

/** Options of logging in. */
interface SessionOptions {
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

  /**
   * Returns the present time by the clock of the server, in milliseconds since 1970; by this clock before a response.
   */
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
      hint:
        'Use certificates in PEM, and the unencrypted key of the client certificate; or log in again with “oc ' +
        'login”.',
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

/** The credentials of a user, and the time when they expire (milliseconds since 1970). */
interface Login {
  /** The value of the header Authorization. */
  readonly authorization?: string | undefined;
  /** The client certificate and its key in PEM, if a credential plugin returned them. */
  readonly certificate?: string | undefined;
  readonly key?: string | undefined;
  readonly expires: number;
}

/** The time after which a token file is read again, in milliseconds; the same as in client-go. */
const tokenFileLifetime = 60_000;

/**
 * Logs in as the user of a kubeconfig: runs its credential plugin, or uses its token, its token file, its password or
 * its auth-provider. `authority` is the CA of the cluster, for the plugin. Throws `bad-credentials-file` and
 * `not-readable`.
 */
async function logIn(
  { user, cluster, source }: KubeTarget,
  authority: Buffer | undefined,
  options: PluginOptions,
  context: Context,
): Promise<Login> {
  const { exec, tokenFile, token, 'auth-provider': provider } = user;
  if (isFields(exec)) {
    const clusterWithAuthority = {
      ...cluster,
      ...(authority && { 'certificate-authority-data': authority.toString('base64') }),
    };
    const { expires = Infinity, ...plugin } = await runCredentialPlugin(exec, clusterWithAuthority, options, context);
    return { ...plugin, authorization: authorizationOf(user, plugin.token ?? token), expires };
  }
  if (typeof tokenFile === 'string') {
    // As in client-go, the token of the kubeconfig stands in for a file that cannot be read.
    const read = readCredentialFile(tokenFile, 'token file');
    const fileToken = scalar(token) === '' ? await read : await read.catch(() => scalar(token));
    return { authorization: authorizationOf(user, fileToken.toString()), expires: Date.now() + tokenFileLifetime };
  }
  const own = authorizationOf(user, token);
  if (provider === undefined) return { authorization: own, expires: Infinity };
  const isOidc = fieldsOf(provider)['name'] === 'oidc';
  const provided = isOidc ? readIdToken(provider, source) : await askAuthProvider(provider, source);
  return { authorization: own ?? provided, expires: Date.now() + tokenFileLifetime };
}

/**
 * Returns the header Authorization with the ID token of the auth-provider `oidc`; undefined if it has none. Never
 * refreshes it: an identity provider may give a new refresh token each time, which is then lost unless it is written to
 * the kubeconfig (as client-go does). @kubernetes/client-node 2.0.1 writes no file, and fails before that, because it
 * passes the issuer as a string to openid-client. Throws `bad-credentials-file` for an expired token.
 */
function readIdToken(provider: unknown, source: string): string | undefined {
  const token = textOf(fieldsAt(provider, 'config')['id-token']);
  if (token === undefined) return undefined;
  const expiry = readExpiry(token);
  if (expiry === undefined || expiry > Date.now()) return `Bearer ${token}`;
  const time = new Date(expiry).toISOString().replace(/\.\d+/, '');
  const message = `the OIDC token of ${source} expired at ${time}, and an auth-provider is not refreshed here`;
  throw new PluginError('bad-credentials-file', message, {
    hint:
      'Run “oc whoami” to refresh it in the file. Or log in with an exec plugin, which is asked for each token: ' +
      'oc-oidc of “oc login”, or kubelogin.',
  });
}

/** Returns when a JSON Web Token expires, in milliseconds since 1970; undefined if it does not say. */
function readExpiry(token: string): number | undefined {
  try {
    const { exp } = fieldsOf(JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()));
    return typeof exp === 'number' ? exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether another login may give other credentials. */
function isRenewable(user: Fields): boolean {
  return ['exec', 'tokenFile', 'auth-provider'].some((name) => user[name] !== undefined);
}

/** Returns the headers with which a user acts as another user. */
function impersonationHeaders(user: Fields): http.OutgoingHttpHeaders {
  const { as, 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = user;
  const extras = Object.entries(isFields(extra) ? extra : {}).map(
    // As client-go encodes it, because names of headers have no slashes.
    ([key, values]) => [`Impersonate-Extra-${encodeURIComponent(key)}`, values as string[]] as const,
  );
  return {
    ...(typeof as === 'string' && as !== '' && { 'Impersonate-User': as }),
    ...(typeof uid === 'string' && uid !== '' && { 'Impersonate-Uid': uid }),
    ...(Array.isArray(groups) && groups.length > 0 && { 'Impersonate-Group': groups.map(String) }),
    ...Object.fromEntries(extras),
  };
}

/** Returns the header Authorization. A user name has precedence over a token. YAML may parse either as a number. */
function authorizationOf({ username, password }: Fields, token: unknown): string | undefined {
  const [name, secret, text = ''] = [username, password, token].map(scalar);
  // Files and blocks of YAML end with a newline.
  const bearer = text.trim();
  if (name) return `Basic ${Buffer.from(`${name}:${secret ?? ''}`).toString('base64')}`;
  return bearer ? `Bearer ${bearer}` : undefined;
}

function scalar(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

/**
 * Reads the CA that a kubeconfig’s cluster entry trusts, in PEM; undefined if it names none. Throws `not-readable` and
 * `invalid-file`.
 */
async function readServerAuthority(cluster: Fields, source: string): Promise<Buffer | undefined> {
  const name = 'certificate-authority';
  const authority = await readMaterial(cluster, name);
  if (authority?.includes('-----BEGIN ') !== false) return authority;
  const file = cluster[`${name}-data`] ? '' : ` ${String(cluster[name])}`;
  throw new PluginError('invalid-file', `the ${name}${file} of ${source} has no certificate in PEM`, {
    hint: 'A certificate in PEM begins with -----BEGIN CERTIFICATE-----.',
  });
}

/**
 * Reads a certificate or key of a kubeconfig entry: its `-data` field, or else the file. Undefined if it has neither.
 * Throws `not-readable`.
 */
async function readMaterial(fields: Fields, name: string): Promise<Buffer | undefined> {
  const { [`${name}-data`]: data, [name]: path } = fields;
  if (typeof data === 'string' && data !== '') return Buffer.from(data, 'base64');
  const file = textOf(path);
  return file === undefined ? undefined : readCredentialFile(file, name);
}

async function readCredentialFile(path: string, what: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    const reason = isMissing(cause) ? 'does not exist' : `cannot be read: ${messageOf(cause)}`;
    throw new PluginError('not-readable', `the ${what} ${path} ${reason}`, { cause });
  }
}

/**
 * Returns the header Authorization from an auth-provider of a kubeconfig user (Azure, Google, a token file); undefined
 * if it has none. Throws `bad-credentials-file`.
 */
async function askAuthProvider(authProvider: unknown, source: string): Promise<string | undefined> {
  try {
    const { headers } = await applyKubeConfig({ server: 'https://unused' }, { authProvider });
    const { Authorization: authorization } = (headers ?? {}) as Record<string, string | undefined>;
    return authorization;
  } catch (cause) {
    throw new PluginError('bad-credentials-file', `the auth-provider of ${source} failed: ${messageOf(cause)}`, {
      hint: 'Log in again with “oc login”.',
      cause,
    });
  }
}

/** Creates an agent that connects through a SOCKS proxy, with these TLS options. */
async function makeSocksAgent({ href }: URL, tls: https.RequestOptions): Promise<http.Agent> {
  const { agent } = await applyKubeConfig({ server: 'https://unused', proxyUrl: href }, {}, tls);
  if (agent instanceof http.Agent) return agent;
  throw new PluginError('internal', 'the Kubernetes client made no agent for the SOCKS proxy');
}

/** Loads @kubernetes/client-node on first use, because loading takes most of a second. */
async function applyKubeConfig(
  cluster: object,
  user: object,
  options: https.RequestOptions = {},
): Promise<https.RequestOptions> {
  const { KubeConfig } = await import('@kubernetes/client-node/dist/config.js');
  const config = new KubeConfig();
  config.loadFromOptions({
    clusters: [{ name: 'cluster', ...cluster }],
    users: [{ name: 'user', ...user }],
    contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
    currentContext: 'context',
  });
  const applied = { ...options };
  await config.applyToHTTPSOptions(applied);
  return applied;
}
