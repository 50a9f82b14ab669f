import type { Context } from '../context.ts';
import { isPluginError, messageOf, type ErrorCode } from '../errors.ts';
import { fetchBundle } from '../node/replica.ts';
import { hexOf, type Digest } from '../oci/digest.ts';
import type { Connections } from '../store/connections.ts';
import type { Authorizer } from '../store/tokens.ts';
import { Transport } from '../store/transport.ts';
import { agentNamespace } from './agentAccess.ts';
import { parseFacts, type BundleFacts } from './bundleFacts.ts';
import type { Cluster, StoredObject } from './client.ts';
import type { UpgradeBundle } from './upgradeBundle.ts';

/** The port of agents whose pods do not say. */
const usualPort = 8080;
/** There are other nodes to ask: one that does not answer, or has enough to do, is not insisted on. */
const patience = { attempts: 2, baseDelay: 300, longestWait: 0 };
/** How many nodes are asked before it is time to look at the cluster again. */
const mostAsked = 4;
/** For how long addresses are believed, and how often they are asked for at most, in milliseconds. */
const addresses = { good: 5 * 60_000, pause: 10_000 };
/** The largest answer that is no bundle, in bytes. */
const factsLimit = 16 * 1024 * 1024;

/** The paths under which agents serve a bundle to each other: the tar, and what is known of it. */
export function peerPaths(digest: Digest): { readonly tar: string; readonly facts: string } {
  const base = `/bundles/${hexOf(digest)}`;
  return { tar: `${base}.tar`, facts: `${base}.json` };
}

/** The other agents of a cluster, as a source of bundles. */
export class AgentPeers {
  readonly #cluster: Cluster;
  readonly #node: string;
  readonly #token: string;
  readonly #connections: Connections;
  #origins: ReadonlyMap<string, string> = new Map();
  #listed = -Infinity;

  constructor(cluster: Cluster, node: string, token: string, connections: Connections) {
    this.#cluster = cluster;
    this.#node = node;
    this.#token = token;
    this.#connections = connections;
  }

  /**
   * Brings the bundle of an UpgradeBundle from any node that has it into a folder, and gives its path; undefined where no node gives
   * it at present. A transfer that was cut off is gone on with, from whichever node. Throws `busy`, `disk-full`,
   * `not-writable`, `interrupted`, and what asking the cluster throws.
   */
  async fetch(bundle: UpgradeBundle, digest: Digest, folder: string, context: Context): Promise<string | undefined> {
    const { tar } = peerPaths(digest);
    return this.#ask(bundle, context, (origin) => {
      const source = { url: new URL(tar, origin), token: this.#token, digest, patience };
      return fetchBundle(source, folder, this.#connections, context);
    });
  }

  /** Asks for the facts of a bundle that some node has verified; undefined where none answers. Throws `interrupted` and what asking the cluster throws. */
  async readFacts(bundle: UpgradeBundle, digest: Digest, context: Context): Promise<BundleFacts | undefined> {
    return this.#ask(bundle, context, async (origin) => {
      const target = new URL(peerPaths(digest).facts, origin);
      const authorizer: Authorizer = { authorize: () => Promise.resolve(`Bearer ${this.#token}`) };
      const transport = new Transport(this.#connections, authorizer, context, { ...patience, insecure: true });
      const request = { registry: target.host, repository: target.pathname.slice(1), what: 'the facts', target };
      const { body } = await transport.send({ ...request, method: 'GET', actions: 'pull', limit: factsLimit });
      return parseFacts(body, digest, target.host);
    });
  }

  /** Asks the nodes that say they have the bundle, in an order of chance, until one gives something. */
  async #ask<T>(
    bundle: UpgradeBundle,
    context: Context,
    ask: (origin: string) => Promise<T | undefined>,
  ): Promise<T | undefined> {
    for (const { name, origin } of await this.#listHolders(bundle)) {
      try {
        const answer = await ask(origin);
        if (answer !== undefined) return answer;
      } catch (error) {
        if (!isPluginError(error) || ownFaults.has(error.code)) throw error;
        // Its pod may have another address by now.
        if (error.code === 'unreachable') this.#listed = Math.min(this.#listed, performance.now() - addresses.good);
        context.log('debug', `${name} does not give the bundle: ${messageOf(error)}`);
      }
    }
    return undefined;
  }

  async #listHolders({ status }: UpgradeBundle): Promise<{ name: string; origin: string }[]> {
    const holders = (status?.nodes ?? []).filter(({ name, imagesTotal }) => imagesTotal > 0 && name !== this.#node);
    const names = shuffle(holders.map(({ name }) => name)).slice(0, mostAsked);
    const age = performance.now() - this.#listed;
    if (age > addresses.good || (age > addresses.pause && names.some((name) => !this.#origins.has(name)))) {
      await this.#listOrigins();
    }
    return names.flatMap((name) => {
      const origin = this.#origins.get(name);
      return origin === undefined ? [] : [{ name, origin }];
    });
  }

  async #listOrigins(): Promise<void> {
    const labelSelector = `app.kubernetes.io/name=${agentNamespace}`;
    const pods = await this.#cluster.list('v1', 'Pod', { namespace: agentNamespace, labelSelector });
    this.#origins = new Map(pods.flatMap((pod) => originOf(pod) ?? []));
    this.#listed = performance.now();
  }
}

/** What is not the fault of the node that was asked. */
const ownFaults: ReadonlySet<ErrorCode> = new Set(['interrupted', 'busy', 'disk-full', 'not-writable', 'internal']);

/** The node of a pod, and where its agent is reached; nothing for one without an address. */
function originOf(pod: StoredObject): [[string, string]] | undefined {
  const { spec, status } = pod as {
    spec?: { nodeName?: string; containers?: { ports?: { containerPort?: number }[] }[] };
    status?: { podIP?: string };
  };
  if (spec?.nodeName === undefined || !status?.podIP) return undefined;
  const port = spec.containers?.[0]?.ports?.[0]?.containerPort ?? usualPort;
  const address = status.podIP.includes(':') ? `[${status.podIP}]` : status.podIP;
  return [[spec.nodeName, `http://${address}:${String(port)}`]];
}

function shuffle<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ item }) => item);
}
