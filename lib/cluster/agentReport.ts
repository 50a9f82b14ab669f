import { isDeepStrictEqual } from 'node:util';
import { digestOf } from '../oci/digest.ts';
import type { Cluster } from './client.ts';
import type { NodeProgress, UpgradeBundle } from './upgradeBundle.ts';

/**
 * How often the cluster is told while only numbers change, in milliseconds. Every agent reads what each of them writes: a cluster that is ten times
 * as large is told a tenth as often by each.
 */
export function reportPause(nodes: number): number {
  return Math.max(3000, nodes * 100);
}

/** A change of the free space that is worth telling, in bytes. */
const coarse = 2 ** 30;

/** Tells the cluster how far a node has come: its own entry of an UpgradeBundle, and nothing else of it. */
export class AgentReport {
  readonly #cluster: Cluster;
  readonly #manager: string;
  #last = -Infinity;

  constructor(cluster: Cluster, node: string) {
    this.#cluster = cluster;
    // The cluster takes at most 128 characters for the name of who writes.
    this.#manager = node.length <= 120 ? `agent-${node}` : `agent-${digestOf(node).slice(7, 71)}`;
  }

  /** Writes an entry where it says something else than the one that is there. Throws what asking the cluster throws. */
  async send({ apiVersion, kind, metadata: { name }, status }: UpgradeBundle, entry: NodeProgress): Promise<void> {
    const known = status?.nodes?.find((each) => each.name === entry.name);
    const now = performance.now();
    const pause = reportPause(status?.nodes?.length ?? 0);
    const isSame = known?.phase === entry.phase && known.message === entry.message;
    if (isSame && (isDeepStrictEqual(coarsen(known), coarsen(entry)) || now - this.#last < pause)) return;
    const object = { apiVersion, kind, metadata: { name }, status: { nodes: [entry] } };
    await this.#cluster.apply(object, { subresource: 'status', manager: this.#manager, force: true });
    this.#last = now;
  }
}

function coarsen(entry: NodeProgress): object {
  const { free = 0 } = entry;
  return { ...entry, free: Math.round(free / coarse) };
}
