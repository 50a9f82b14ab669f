import http from 'node:http';
import type https from 'node:https';
import { messageOf, PluginError } from '../../errors.ts';

/**
 * Returns the header Authorization from an auth-provider of a kubeconfig user (Azure, Google, a token file); undefined
 * if it has none. Throws `bad-credentials-file`.
 */
export async function askAuthProvider(authProvider: unknown, source: string): Promise<string | undefined> {
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
export async function makeSocksAgent({ href }: URL, tls: https.RequestOptions): Promise<http.Agent> {
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
