import { isDeepStrictEqual } from 'node:util';
import type { Digest } from '../../oci/digest.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { formatNodeReport, type NodeReport, type Proposal } from '../nodeReport.ts';
import type { NodeProgress, UpgradeBundle } from '../upgradeBundle.ts';

/** How often the cluster is told while only numbers change, in milliseconds: by all nodes together no more than ten times a second. */
export function reportPause(nodes: number): number {
  return Math.max(3000, nodes * 100);
}

/** After how many milliseconds the cluster is told all the same, so that it knows that somebody is there. */
const heartbeat = 5 * 60_000;
/** A change of the free space that is worth telling, in bytes. */
const coarse = 2 ** 30;

/** Tells the cluster how far a node has come, in a Lease of its own. */
export class AgentReport {
  readonly #cluster: Cluster;
  readonly #origin: string | undefined;
  #sent: NodeReport | undefined;
  #sentAt = -Infinity;

  /** `origin` is where other agents reach this one. */
  constructor(cluster: Cluster, origin: string | undefined) {
    this.#cluster = cluster;
    this.#origin = origin;
  }

  /** Writes what is to be said of the node for an UpgradeBundle, where it is something else than before. Throws what asking the cluster throws. */
  async send(bundle: UpgradeBundle, progress: NodeProgress, offers: Digest | undefined): Promise<void> {
    const report = { bundle: bundle.metadata.uid ?? '', progress, origin: this.#origin, offers };
    const age = performance.now() - this.#sentAt;
    const pause = reportPause(Number(bundle.status?.nodesReady?.split('/')[1] ?? 0));
    const isSame = isDeepStrictEqual(coarsen(report), this.#sent && coarsen(this.#sent));
    const isUrgent = !isDeepStrictEqual(gist(report), this.#sent && gist(this.#sent));
    if (!isUrgent && age < (isSame ? heartbeat : pause)) return;
    await this.#write(report);
  }

  /**
   * Writes which bundle the node has found while no UpgradeBundle is at work, unless that is what it wrote last. Throws what asking the cluster throws.
   */
  async propose(proposal: Proposal | undefined, progress: NodeProgress): Promise<void> {
    if (this.#sent?.bundle === '' && isDeepStrictEqual(this.#sent.proposal, proposal)) return;
    await this.#write({ bundle: '', progress, origin: this.#origin, proposal });
  }

  async #write(report: NodeReport): Promise<void> {
    await this.#cluster.apply(formatNodeReport(report), { manager: 'agent', force: true });
    this.#sent = report;
    this.#sentAt = performance.now();
  }
}

/** What is told at once when it changes. */
function gist({ bundle, offers, progress: { phase, message } }: NodeReport): object {
  return { bundle, offers, phase, message };
}

function coarsen({ progress, ...report }: NodeReport): object {
  return { ...report, progress: { ...progress, free: Math.round((progress.free ?? 0) / coarse) } };
}
