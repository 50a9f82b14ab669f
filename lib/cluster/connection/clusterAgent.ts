import http from 'node:http';
import https from 'node:https';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { textOf } from '../../fields.ts';
import { messageOf, PluginError } from '../../errors.ts';
import { proxyFor, type Environment } from '../../content/http/proxy.ts';
import { makeSocksAgent } from './clientPackage.ts';
import type { KubeTarget } from './kubeconfig.ts';

/** The CAs to verify a server with, and the client certificate with its key; all in PEM. */
export interface ClusterTls {
  /** The CAs; undefined for the CAs of the system. */
  readonly ca: Buffer | undefined;
  readonly cert: Buffer | string | undefined;
  readonly key: Buffer | string | undefined;
}

/**
 * Creates the agent for requests to a cluster: with the TLS settings of its kubeconfig, through the kubeconfig’s
 * proxy-url or the proxy of the environment. Throws `invalid-file`, and `usage` for a proxy variable that is not a URL.
 */
export async function makeClusterAgent(
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
    throw new PluginError('invalid-file', `A certificate or key of ${source} cannot be used: ${messageOf(cause)}`, {
      hint: 'Use certificates in PEM, and the unencrypted key of the client certificate; or log in again with “oc login”.',
      cause,
    });
  }
}

function parseProxy(text: string): URL {
  const url = URL.parse(text);
  if (url && /^(https?|socks[45]?[ah]?):$/.test(url.protocol)) return url;
  // The message omits the value, which may have a password.
  const message = 'The proxy-url of the kubeconfig is not the URL of an http, https or SOCKS proxy';
  throw new PluginError('invalid-file', message);
}
