import type http from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import type { Context } from '../../context.ts';
import type { Environment } from '../../content/http/proxy.ts';
import { makeClusterAgent, type ClusterTls } from './clusterAgent.ts';
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

/** The access to one cluster. Logs in, and renews credentials that have expired or were refused. */
export class Session {
  readonly #target: KubeTarget;
  readonly #options: SessionOptions;
  readonly #context: Context;
  readonly #agents: { readonly tls: ClusterTls; readonly agent: http.Agent }[] = [];
  #access: Promise<Access & { readonly expires: number }> | undefined;

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
