import type { BlobRecord } from '#bundle/metadata';
import type { Cluster } from '#cluster/client';
import { Connections, clientTlsOf, derivePreSharedKey } from '#content/http';
import { hexOf, type Digest } from '#content/oci';
import type { Context, TransferEvent } from '#context';
import { isPluginError, messageOf, PluginError, type ErrorCode } from '#errors';
import type { BundleOutline } from '#node/contentCheck';
import { baseBlobsPath, replicaPath, Transfer, type WantedContent } from '#node/transfer';
import { readReport, reportKind, selectOffers } from '../record/nodeReport.ts';
import { PeerPace, PeerStandings, type PeerOutcome, type RateLimit } from './peerStandings.ts';

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

/** What limits a transfer from other nodes. */
export interface FetchLimits {
  /** What the record of a verified bundle says about it. Without it, only the digest of the whole proves anything. */
  readonly outline?: BundleOutline | undefined;
  /** Bytes to leave free on the disk. */
  readonly floor?: number | undefined;
}

/** The other agents of a cluster, as sources of bundles. None of them is trusted. */
export class AgentPeers {
  readonly #cluster: Cluster;
  readonly #node: string;
  readonly #connections: Connections;
  readonly #standings: PeerStandings;
  /** The last transfer, whose checks need not be repeated. */
  #earlier: Transfer | undefined;

  constructor(cluster: Cluster, node: string, connections: Connections, standings = new PeerStandings()) {
    this.#standings = standings;
    this.#cluster = cluster;
    this.#node = node;
    this.#connections = connections;
  }

  /**
   * Fetches a bundle from any node into a folder; see FetchOutcome. Resumes an interrupted transfer, also from another
   * node. Leaves a node that sends something else, or slowly beside others. Throws `busy`, `disk-full`, `not-writable`,
   * `interrupted`, and the errors of the cluster.
   */
  async fetch(
    digest: Digest,
    folder: string,
    context: Context,
    { outline, floor }: FetchLimits = {},
  ): Promise<FetchOutcome> {
    const search = {
      digest,
      content: 'bundle',
      path: peerPath(digest),
      to: replicaPath(folder, digest),
      floor,
    } as const;
    const holders = this.#chooseHolders(digest, 'bundle');
    const { outcome, wrong } = await this.#ask(search, { kind: 'bundle', digest, outline }, holders, context);
    if (outcome === 'fetched' || outline || wrong.length === 0) return outcome;
    // Without a record it can be that another program has packed the tar.
    return (await this.#ask(search, { kind: 'bundle', digest, isAnyTar: true }, wrong, context)).outcome;
  }

  /** Fetches the base blobs of a delta bundle, as `fetch` does a bundle. */
  async fetchBase(
    digest: Digest,
    blobs: readonly BlobRecord[],
    folder: string,
    context: Context,
    { floor }: FetchLimits = {},
  ): Promise<FetchOutcome> {
    const search = {
      digest,
      content: 'base',
      path: peerBasePath(digest),
      to: baseBlobsPath(folder, digest),
      floor,
    } as const;
    const holders = this.#chooseHolders(digest, 'base');
    return (await this.#ask(search, { kind: 'base', digest, blobs }, holders, context)).outcome;
  }

  /** Asks nodes that offer the content, until one gives it. Also returns the nodes that sent something else. */
  async #ask(
    search: Search,
    wanted: WantedContent,
    holders: AsyncIterable<Holder> | Iterable<Holder>,
    context: Context,
  ): Promise<{ readonly outcome: FetchOutcome; readonly wrong: readonly Holder[] }> {
    const { floor, to } = search;
    const answers = new Map<Holder, Answer>();
    const those = (wantedAnswer: Answer): Holder[] =>
      [...answers].flatMap(([holder, answer]) => (answer === wantedAnswer ? [holder] : []));
    let transfer: Transfer | undefined;
    const ask = async (holder: Holder, limit = this.#standings.limitFor(holder.name), isLast = false) => {
      transfer ??= await Transfer.open(wanted, to, context, { floor, earlier: this.#earlier });
      const answer = await this.#receive(transfer, search, { holder, limit, isLast }, context);
      answers.set(holder, answer);
      return answer === 'complete';
    };
    const fetched = { outcome: 'fetched', wrong: [] } as const;
    try {
      for await (const holder of holders) if (await ask(holder)) return fetched;
      const isOtherBusy = those('busy').length > 0;
      for (const holder of this.#standings.sortByRate(those('slow'))) {
        const limit = this.#standings.lastLimitFor(holder.name, isOtherBusy);
        if (limit && (await ask(holder, limit, true))) return fetched;
      }
      const wrong = those('wrong');
      if (transfer?.hasClaims && wrong.length > 0) {
        // What an earlier node claimed may be wrong instead. It was the first, and is asked last.
        await transfer.clear();
        for (const holder of wrong.toReversed()) if (await ask(holder)) return fetched;
      }
      const [full] = [...answers.values()].filter((answer) => answer instanceof PluginError);
      if (full && [...answers.values()].every((answer) => answer instanceof PluginError)) throw full;
      return { outcome: answers.size > 0 ? 'busy' : 'none', wrong: those('wrong') };
    } finally {
      await transfer?.[Symbol.asyncDispose]();
      this.#earlier = transfer ?? this.#earlier;
    }
  }

  /** Receives the content from a node. Throws the errors that the node did not cause. */
  async #receive(
    transfer: Transfer,
    { digest, path, content }: Search,
    { holder: { name, origin }, limit, isLast }: Attempt,
    context: Context,
  ): Promise<Answer> {
    // The last incomplete part stays if no other node can send it, so that slow networks need not begin it again.
    using pace = new PeerPace(limit, isLast ? undefined : new PluginError('unreachable', 'it sends too slowly'));
    const onEvent = (event: TransferEvent): void => {
      if (event.kind === 'bytes') pace.count(event.bytes);
      context.onEvent(event);
    };
    const note = (outcome: PeerOutcome): PeerOutcome => {
      this.#standings.note(name, outcome, pace.rate, pace.bytes);
      return outcome;
    };
    try {
      const signal = AbortSignal.any([context.signal, pace.signal]);
      const server = { url: new URL(path, origin), token: undefined, retry };
      await transfer.receive(server, this.#connections, { ...context, onEvent, signal });
      return note('complete');
    } catch (error) {
      if (context.signal.aborted) {
        // The disk was filled by what a node claimed.
        if (transfer.isClaimed && isPluginError(context.signal.reason)) {
          note('wrong');
          await transfer.clear();
        }
        throw error;
      }
      const isSlow = pace.signal.aborted;
      if (!isSlow && !isPluginError(error)) throw error;
      const why = isSlow ? `it sent ${pace.bytes} bytes, too slowly` : messageOf(error);
      context.log('debug', `${name} cannot provide the ${content} ${digest}: ${why}`);
      if (isSlow) return note('slow');
      if (isPluginError(error, 'digest-mismatch') || isPluginError(error, 'size-mismatch')) return note('wrong');
      if (isPluginError(error, 'disk-full') && transfer.isClaimed) return error;
      if (isPluginError(error, 'server-error') || isPluginError(error, 'rate-limited')) return note('busy');
      if (isPluginError(error) && !ownFaults.has(error.code)) return note('refused');
      throw error;
    }
  }

  /**
   * Yields a few of the nodes that offer a bundle. Reads only some parts of the nodes if many of them offer it. Nodes
   * that were slow or wrong come only if there is no other.
   */
  async *#chooseHolders(digest: Digest, content: Offer): AsyncGenerator<Holder> {
    const given = new Set<string>();
    const last = new Map<string, Holder>();
    const isGood = (name: string): boolean => !this.#standings.isLast(name);
    for (let round = 0; round <= maxRounds; round += 1) {
      // All nodes of some parts can be slow or wrong.
      const isLastRound = round === maxRounds;
      if (isLastRound && [...given].some(isGood)) return;
      const some = isLastRound ? [] : await this.#listOffers(digest, content, 'some');
      const isAll = some.length === 0;
      for (const holder of shuffle(isAll ? await this.#listOffers(digest, content, 'all') : some)) {
        if (given.size === maxHolders) return;
        if (given.has(holder.name)) continue;
        if (!isGood(holder.name)) last.set(holder.name, holder);
        else {
          given.add(holder.name);
          yield holder;
        }
      }
      if (isAll) break;
    }
    if (given.size === 0) yield* [...last.values()].slice(0, maxHolders);
  }

  async #listOffers(digest: Digest, content: Offer, which: 'all' | 'some'): Promise<Holder[]> {
    const { apiVersion, kind, namespace } = reportKind;
    const labelSelector = selectOffers(digest, which);
    const leases = await this.#cluster.list(apiVersion, kind, { namespace, labelSelector });
    return leases.flatMap((lease) => {
      const { node: name = '', report: { origin, base } = {} } = readReport(lease) ?? {};
      if (content === 'base' && base !== 'offered') return [];
      // A report is not trusted. Agents talk by TLS only.
      return origin?.startsWith('https://') && name !== this.#node ? [{ name, origin }] : [];
    });
  }
}

/** The result of asking other nodes: one gave the content, each refused it for now, or none offers it. */
export type FetchOutcome = 'fetched' | 'busy' | 'none';

/** A bundle, or the base blobs of a delta. */
type Offer = 'bundle' | 'base';

/** What to ask for, and the file for it. */
interface Search {
  readonly digest: Digest;
  readonly content: Offer;
  readonly path: string;
  readonly to: string;
  readonly floor: number | undefined;
}

/** A node that offers a bundle, and its address. */
interface Holder {
  readonly name: string;
  readonly origin: string;
}

/** A request to a node. `isLast`: all others have refused. */
interface Attempt {
  readonly holder: Holder;
  readonly limit: RateLimit;
  readonly isLast: boolean;
}

/** The end of a request, or an error because the disk has no room for what the node claims. */
type Answer = PeerOutcome | PluginError;

/** Error codes that the other node did not cause. */
const ownFaults: ReadonlySet<ErrorCode> = new Set(['interrupted', 'busy', 'disk-full', 'not-writable', 'internal']);

function shuffle<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ item }) => item);
}
