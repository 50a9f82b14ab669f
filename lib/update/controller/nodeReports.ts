import type { StoredObject } from '../../kubernetes/fields.ts';
import { parseReport, readRenewal } from '../nodeReport.ts';
import type { NodeProgress } from '../upgradeBundle.ts';

/** After how many milliseconds without a word an agent is taken for one that is not there: three times as long as agents are ever silent. */
export const silenceLimit = 15 * 60_000;

/** What is known of a node. */
export interface KnownProgress {
  readonly progress: NodeProgress;
  /** Its agent has said so within the limit; a node that is away says nothing, whatever it said before. */
  readonly heard: boolean;
}

/** What agents say, and how long ago they said it by the clock of whoever reads this. */
export class NodeReports {
  readonly #heard = new Map<string, { readonly renewed: string; readonly at: number }>();

  /** Reads the Leases of all agents, for an UpgradeBundle by its uid: what is known of nodes, by their names. `now` is in milliseconds. */
  read(leases: readonly StoredObject[], bundle: string, now = performance.now()): Map<string, KnownProgress> {
    const known = new Map<string, KnownProgress>();
    for (const lease of leases) {
      const { node, renewed } = readRenewal(lease);
      const before = this.#heard.get(node);
      // The clocks of nodes do not matter.
      const at = before?.renewed === renewed ? before.at : now;
      this.#heard.set(node, { renewed, at });
      const report = parseReport(lease);
      if (report?.bundle === bundle && report.progress.name === node)
        known.set(node, { progress: report.progress, heard: now - at < silenceLimit });
    }
    return known;
  }
}
