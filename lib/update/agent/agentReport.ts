import { isDeepStrictEqual } from 'node:util';
import type { Cluster } from '#cluster/client';
import { formatNodeReport, type NodeReport, type Proposal } from '../record/nodeReport.ts';
import type { NodeProgress, UpgradeBundle } from '../record/upgradeBundle.ts';
import type { AgentState } from './agentMetrics.ts';

/**
 * Returns the pause between two reports if only numbers change, in milliseconds. All nodes together send at most ten
 * reports a second.
 */
export function reportPause(nodes: number): number {
  return Math.max(3000, nodes * 100);
}

/** The longest pause between two reports, in milliseconds. A report shows that the agent runs. */
const heartbeat = 5 * 60_000;
/** The smallest change of the free space to report, in bytes. */
const coarse = 2 ** 30;

/** Reports the progress of a node, in the node’s own Lease. */
export class AgentReport {
  readonly #cluster: Cluster;
  readonly #origin: string | undefined;
  readonly #now: () => number;
  #sent: NodeReport | undefined;
  #sentAt = -Infinity;
  #progress: NodeProgress | undefined;
  #mirror: NodeReport['mirror'];

  /** `origin` is the URL of this agent for other agents, `now` a clock in milliseconds. */
  constructor(cluster: Cluster, origin: string | undefined, now = () => performance.now()) {
    this.#cluster = cluster;
    this.#origin = origin;
    this.#now = now;
  }

  /**
   * The latest progress, which may not be reported yet, and the age of the report; undefined before the first round.
   */
  get state(): AgentState | undefined {
    const age = (this.#now() - this.#sentAt) / 1000;
    const reportAge = Number.isFinite(age) ? age : undefined;
    return this.#progress && { progress: this.#progress, reportAge, ...(this.#mirror && { mirror: this.#mirror }) };
  }

  /** Writes the report of the node about an UpgradeBundle if it has changed. Throws the errors of the cluster. */
  async send(
    bundle: UpgradeBundle,
    progress: NodeProgress,
    more: Pick<NodeReport, 'offers' | 'base' | 'backup' | 'mirror' | 'proposal' | 'version'> = {},
  ): Promise<void> {
    this.#progress = progress;
    this.#mirror = more.mirror;
    const report = { bundle: bundle.metadata.uid ?? '', progress, origin: this.#origin, ...more };
    const age = this.#now() - this.#sentAt;
    const pause = reportPause(Number(bundle.status?.nodesReady?.split('/')[1] ?? 0));
    const isSame = isDeepStrictEqual(coarsen(report), this.#sent && coarsen(this.#sent));
    const isUrgent = !isDeepStrictEqual(urgentPart(report), this.#sent && urgentPart(this.#sent));
    if (!isUrgent && age < (isSame ? heartbeat : pause)) return;
    await this.#write(report);
  }

  /**
   * Writes the bundle that the node has found, the state of its mirror, and what it keeps of a completed update. Writes
   * only if one has changed or the last report is old. Used while no UpgradeBundle is active. Throws the errors of the
   * cluster.
   */
  async propose(
    proposal: Proposal | undefined,
    progress: NodeProgress,
    mirror?: NodeReport['mirror'],
    kept: Pick<NodeReport, 'keeps' | 'offers' | 'base' | 'version'> = {},
  ): Promise<void> {
    this.#progress = progress;
    this.#mirror = mirror;
    const report = { bundle: '', progress, origin: this.#origin, mirror, proposal, ...kept };
    // Numbers alone can wait.
    const about = ({
      bundle,
      mirror: own,
      progress: { phase, imagesLoaded, message },
      ...rest
    }: NodeReport): object => {
      const { keeps, offers, base, version } = rest;
      const images = keeps === undefined ? [] : [keeps, offers, base, version, phase, imagesLoaded, message];
      return [bundle, rest.proposal, own?.versions, own?.port, own?.content, own?.lacking, images];
    };
    const isSame = this.#sent && isDeepStrictEqual(about(this.#sent), about(report));
    if (isSame && this.#now() - this.#sentAt < heartbeat) return;
    await this.#write(report);
  }

  async #write(report: NodeReport): Promise<void> {
    await this.#cluster.apply(formatNodeReport(report), { manager: 'agent', force: true });
    this.#sent = report;
    this.#sentAt = this.#now();
  }
}

/** Returns the parts of a report whose changes are reported immediately. */
function urgentPart({ progress: { phase, message }, ...report }: NodeReport): object {
  const { bundle, version, offers, base, backup, proposal } = report;
  return { bundle, version, offers, base, backup, proposal, phase, message };
}

function coarsen({ progress, ...report }: NodeReport): object {
  const { free, system, database } = progress;
  const rounded = [free, system?.free, database].map((bytes = 0) => Math.round(bytes / coarse));
  return { ...report, progress: { ...progress, free: rounded, system: system?.size, database: undefined } };
}
