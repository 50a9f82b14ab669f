import type { Context } from '../../context.ts';
import { isPluginError, messageOf, type ErrorCode } from '../../errors.ts';
import type { BlobRecord } from '../../bundle/metadata.ts';
import { fetchBaseBlobs, fetchBundle } from '../../node/replica.ts';
import { hexOf, type Digest } from '../../content/oci/digest.ts';
import { Connections } from '../../content/http/connections.ts';
import { clientTlsOf, derivePreSharedKey } from '../../content/http/preSharedKey.ts';
import type { Cluster } from '../../cluster/client.ts';
import { parseReport, reportKind, selectOffers } from '../nodeReport.ts';

/** Few retries, because another node may have the bundle too. */
const retry = { attempts: 2, baseDelay: 300, longestWait: 0 };
/** The largest number of nodes to ask before the next check of the cluster. */
const maxHolders = 4;
/** The largest number of parts of the nodes to search. */
const maxRounds = 3;

/** Returns the path under which agents serve a bundle to each other. */
export function peerPath(digest: Digest): string {
  return `/bundles/${hexOf(digest)}.tar`;
}

/** Returns the path under which agents serve the base blobs of a delta bundle to each other. */
export function peerBasePath(digest: Digest): string {
  return peerPath(digest).replace(/tar$/, 'base');
}

/** Opens connections to agents that have the same token. `name` is the User-Agent. */
export function connectToPeers(token: string, name?: string): Connections {
  const certificates = clientTlsOf(derivePreSharedKey(token));
  return new Connections({ certificates, ...(name !== undefined && { userAgent: name }) });
}

/** The other agents of a cluster, as sources of bundles. */
export class AgentPeers {
  readonly #cluster: Cluster;
  readonly #node: string;
  readonly #connections: Connections;

  constructor(cluster: Cluster, node: string, connections: Connections) {
    this.#cluster = cluster;
    this.#node = node;
    this.#connections = connections;
  }

  /**
   * Fetches a bundle from any node into a folder; see FetchOutcome. Resumes an interrupted transfer, also from another
   * node. Throws `busy`, `disk-full`, `not-writable`, `interrupted`, and the errors of the cluster.
   */
  async fetch(digest: Digest, folder: string, context: Context): Promise<FetchOutcome> {
    return this.#ask(digest, 'bundle', context, (origin) => {
      const source = { url: new URL(peerPath(digest), origin), token: undefined, digest, retry };
      return fetchBundle(source, folder, this.#connections, context);
    });
  }

  /** Fetches the base blobs of a delta bundle, as `fetch` does a bundle. */
  async fetchBase(
    digest: Digest,
    blobs: readonly BlobRecord[],
    folder: string,
    context: Context,
  ): Promise<FetchOutcome> {
    return this.#ask(digest, 'base', context, (origin) => {
      const source = { url: new URL(peerBasePath(digest), origin), token: undefined, digest, retry };
      return fetchBaseBlobs(source, blobs, folder, this.#connections, context);
    });
  }

  /** Asks the nodes that offer the content, in random order, until one gives it. */
  async #ask(
    digest: Digest,
    content: Offer,
    context: Context,
    fetch: (origin: string) => Promise<string>,
  ): Promise<FetchOutcome> {
    let outcome: FetchOutcome = 'none';
    for await (const { name, origin } of this.#chooseHolders(digest, content)) {
      outcome = 'busy';
      try {
        await fetch(origin);
        return 'fetched';
      } catch (error) {
        if (!isPluginError(error) || ownFaults.has(error.code)) throw error;
        context.log('debug', `${name} cannot provide the ${content}: ${messageOf(error)}`);
      }
    }
    return outcome;
  }

  /** Yields a few of the nodes that offer a bundle. Reads only some parts of the nodes if many of them offer it. */
  async *#chooseHolders(digest: Digest, content: Offer): AsyncGenerator<Holder> {
    const given = new Set<string>();
    for (let round = 0; round < maxRounds; round += 1) {
      const some = await this.#listOffers(digest, content, 'some');
      const isAll = some.length === 0;
      for (const holder of shuffle(isAll ? await this.#listOffers(digest, content, 'all') : some)) {
        if (given.size === maxHolders) return;
        if (!given.has(holder.name)) yield holder;
        given.add(holder.name);
      }
      if (isAll) return;
    }
  }

  async #listOffers(digest: Digest, content: Offer, which: 'all' | 'some'): Promise<Holder[]> {
    const { apiVersion, kind, namespace } = reportKind;
    const labelSelector = selectOffers(digest, which);
    const leases = await this.#cluster.list(apiVersion, kind, { namespace, labelSelector });
    return leases.flatMap((lease) => {
      const { origin, progress, base } = parseReport(lease) ?? {};
      if (content === 'base' && base !== 'offered') return [];
      // An agent of an earlier version serves plain HTTP, until the DaemonSet replaces it.
      if (!origin?.startsWith('https://') || !progress || progress.name === this.#node) return [];
      return [{ name: progress.name, origin }];
    });
  }
}

/** The result of asking other nodes: one gave the content, each refused it for now, or none offers it. */
export type FetchOutcome = 'fetched' | 'busy' | 'none';

/** A bundle, or the base blobs of a delta. */
type Offer = 'bundle' | 'base';

/** A node that offers a bundle, and its address. */
interface Holder {
  readonly name: string;
  readonly origin: string;
}

/** Error codes that the other node did not cause. */
const ownFaults: ReadonlySet<ErrorCode> = new Set(['interrupted', 'busy', 'disk-full', 'not-writable', 'internal']);

function shuffle<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ item }) => item);
}
