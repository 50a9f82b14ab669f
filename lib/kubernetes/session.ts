import { readFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import type { Context } from '../context.ts';
import { messageOf, PluginError } from '../errors.ts';
import { proxyFor, type Environment } from '../http/proxy.ts';
import { runCredentialPlugin } from './credentialPlugin.ts';
import type { KubeTarget } from './kubeconfig.ts';
import type { Fields } from './kubeconfigMerge.ts';

/** What a request needs to be let in: headers, and an agent that knows the certificates and the proxy. */
export interface Access {
  readonly headers: http.OutgoingHttpHeaders;
  readonly agent: http.Agent;
}

/** A user as the credentials make him at this moment, and until when (milliseconds since 1970). */
interface Login {
  readonly user: Fields;
  readonly expires: number;
}

// client-go reads token files anew as often.
const renewal = 60_000;

/** What logging in may use. */
export interface SessionOptions {
  readonly environment: Environment;
  /** Whether somebody is at the terminal whom a credential plugin may ask. */
  readonly hasTerminal?: boolean | undefined;
}

/** Who we are to one cluster: runs credential plugins, reads token files, and renews what expired or was refused. */
export class Session {
  readonly #target: KubeTarget;
  readonly #options: SessionOptions;
  readonly #context: Context;
  readonly #agents = new Set<http.Agent>();
  #access: Promise<Access & { expires: number }> | undefined;

  constructor(target: KubeTarget, options: SessionOptions, context: Context) {
    this.#target = target;
    this.#options = options;
    this.#context = context;
  }

  /**
   * The present access; a new one when it has expired, or is the one that the cluster rejected. Throws
   * `bad-credentials-file`, `not-readable`, `invalid-file` and `usage` (for a proxy that is no URL).
   */
  async access(rejected?: Access): Promise<Access> {
    const present = await this.#access?.catch(() => undefined);
    if (present && present !== rejected && present.expires > Date.now()) return present;
    const made = this.#make();
    this.#access = made;
    return await made;
  }

  /** Tells whether to log in again could give something else than what was rejected. */
  get renewable(): boolean {
    return ['exec', 'tokenFile', 'auth-provider'].some((name) => this.#target.user[name] !== undefined);
  }

  /** Closes every connection. */
  close(): void {
    for (const agent of this.#agents) agent.destroy();
    this.#agents.clear();
  }

  async #make(): Promise<Access & { expires: number }> {
    const { server, source } = this.#target;
    const cluster = await this.#readCluster();
    const { user, expires } = await this.#logIn(cluster);
    // It takes most of a second to load, so that only those pay who talk to a cluster.
    const { KubeConfig } = await import('@kubernetes/client-node');
    const config = new KubeConfig();
    config.loadFromOptions(packageConfig(this.#target, cluster, user));
    const options: https.RequestOptions = {};
    try {
      await config.applyToHTTPSOptions(options);
    } catch (cause) {
      throw new PluginError('bad-credentials-file', `${source} cannot be used: ${messageOf(cause)}`, {
        hint: 'Log in anew with “oc login”.',
        cause,
      });
    }
    const headers = {
      ...(options.headers as http.OutgoingHttpHeaders | undefined),
      ...(typeof options.auth === 'string' && {
        Authorization: `Basic ${Buffer.from(options.auth).toString('base64')}`,
      }),
      ...impersonation(user),
    };
    const agent = this.#makeAgent(new URL(server), cluster, options);
    this.#agents.add(agent);
    return { headers, expires, agent };
  }

  async #readCluster(): Promise<Fields> {
    const { cluster } = this.#target;
    const data = await readMaterial(cluster, 'certificate-authority');
    if (data !== undefined && !Buffer.from(data, 'base64').includes('-----BEGIN ')) {
      const file = cluster['certificate-authority-data'] ? '' : ` ${String(cluster['certificate-authority'])}`;
      throw new PluginError(
        'invalid-file',
        `The certificate-authority${file} of ${this.#target.source} has no certificate in PEM`,
        {
          hint: 'It begins with -----BEGIN CERTIFICATE-----.',
        },
      );
    }
    return { ...cluster, ...(data !== undefined && { 'certificate-authority-data': data }) };
  }

  async #logIn(cluster: Fields): Promise<Login> {
    const { user } = this.#target;
    const { exec, tokenFile, 'auth-provider': provider } = user;
    if (typeof exec === 'object' && exec !== null) {
      const plugin = await runCredentialPlugin(exec as Fields, cluster, this.#options, this.#context);
      const { token, certificate, key, expires = Infinity } = plugin;
      const given = {
        ...(token !== undefined && { token }),
        ...(certificate !== undefined && { 'client-certificate-data': Buffer.from(certificate).toString('base64') }),
        ...(key !== undefined && { 'client-key-data': Buffer.from(key).toString('base64') }),
      };
      return { user: { ...user, ...given, exec: undefined }, expires };
    }
    const certificates = {
      'client-certificate-data': await readMaterial(user, 'client-certificate'),
      'client-key-data': await readMaterial(user, 'client-key'),
    };
    // The package does not know tokenFile, and leaves the line end on tokens that it reads.
    const token = typeof tokenFile === 'string' ? (await readText(tokenFile, 'token file')).trim() : user['token'];
    const renewed = typeof tokenFile === 'string' || provider !== undefined;
    return { user: { ...user, ...certificates, token }, expires: renewed ? Date.now() + renewal : Infinity };
  }

  #makeAgent(url: URL, cluster: Fields, options: https.RequestOptions): http.Agent {
    const given = cluster['proxy-url'];
    const proxy =
      typeof given === 'string' && given !== '' ? parseProxy(given) : proxyFor(url, this.#options.environment);
    // The package speaks SOCKS. Its other agents open a connection for each request, and know no HTTPS_PROXY.
    if (proxy?.protocol.startsWith('socks') && options.agent instanceof http.Agent) return options.agent;
    if (url.protocol === 'http:') {
      return new http.Agent({ keepAlive: true, ...(proxy && { proxyEnv: { HTTP_PROXY: proxy.href } }) });
    }
    const { servername, rejectUnauthorized = true } = options;
    return new https.Agent({
      keepAlive: true,
      rejectUnauthorized,
      secureContext: this.#secure(options),
      ...(servername !== undefined && { servername }),
      ...(proxy && { proxyEnv: { HTTPS_PROXY: proxy.href } }),
    });
  }

  #secure({ ca, cert, key }: https.RequestOptions): SecureContext {
    // As for kubectl: the authorities of the kubeconfig instead of the system’s, and any of them is trusted as it is.
    const trusted = ca ?? [...new Set([...getCACertificates('default'), ...getCACertificates('system')])];
    try {
      return createSecureContext({ ca: trusted, cert, key, allowPartialTrustChain: true });
    } catch (cause) {
      const { source } = this.#target;
      throw new PluginError('invalid-file', `A certificate or key of ${source} cannot be used: ${messageOf(cause)}`, {
        hint: 'It needs certificates and the unencrypted key that belongs to them, in PEM; log in anew with “oc login”.',
        cause,
      });
    }
  }
}

function packageConfig({ server }: KubeTarget, cluster: Fields, user: Fields): object {
  return {
    clusters: [
      {
        name: 'cluster',
        server,
        caData: cluster['certificate-authority-data'],
        // The package refuses plain http unless verification is off; there is nothing to verify then.
        skipTLSVerify: cluster['insecure-skip-tls-verify'] === true || server.startsWith('http:'),
        tlsServerName: cluster['tls-server-name'],
        proxyUrl: cluster['proxy-url'],
      },
    ],
    users: [
      {
        name: 'user',
        token: user['token'],
        certData: user['client-certificate-data'],
        keyData: user['client-key-data'],
        username: user['username'],
        password: user['password'],
        authProvider: user['auth-provider'],
      },
    ],
    contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
    currentContext: 'context',
  };
}

function impersonation(user: Fields): http.OutgoingHttpHeaders {
  const { as, 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = user;
  return {
    ...(typeof as === 'string' && as !== '' && { 'Impersonate-User': as }),
    ...(typeof uid === 'string' && uid !== '' && { 'Impersonate-Uid': uid }),
    ...(Array.isArray(groups) && groups.length > 0 && { 'Impersonate-Group': groups.map(String) }),
    ...(typeof extra === 'object' && extra !== null
      ? Object.fromEntries(
          Object.entries(extra).map(([key, values]) => [`Impersonate-Extra-${key}`, values as string[]]),
        )
      : {}),
  };
}

/** The base64 of a kubeconfig’s `-data` field, which counts before the file; of the file where there is no data. */
async function readMaterial(fields: Fields, name: string): Promise<string | undefined> {
  const { [`${name}-data`]: data, [name]: path } = fields;
  if (typeof data === 'string' && data !== '') return data;
  if (typeof path !== 'string' || path === '') return undefined;
  return Buffer.from(await readText(path, name)).toString('base64');
}

async function readText(path: string, what: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const isMissing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    const reason = isMissing ? 'does not exist' : `cannot be read: ${messageOf(cause)}`;
    throw new PluginError('not-readable', `The ${what} ${path} ${reason}`, { cause });
  }
}

function parseProxy(text: string): URL {
  const url = URL.parse(text);
  if (url && /^(https?|socks[45]?[ah]?):$/.test(url.protocol)) return url;
  // The value itself is not shown: it may hold a password.
  throw new PluginError(
    'invalid-file',
    'The proxy-url of the kubeconfig is not the URL of an http, https or socks5 proxy',
  );
}
