import type { StoredObject } from '../../kubernetes/fields.ts';
import { parseReport, readRenewal, type BackupReport, type BaseState } from '../nodeReport.ts';
import type { NodeProgress } from '../upgradeBundle.ts';

/**
 * The time after which a silent agent counts as missing, in milliseconds: three times the longest pause between two
 * reports.
 */
export const silenceLimit = 15 * 60_000;

/** The last report of a node. */
export interface KnownProgress {
  readonly progress: NodeProgress;
  /** Whether the agent has reported within the limit. A node that is switched off does not. */
  readonly isRecent: boolean;
  /** Where the node has the base blobs of a delta bundle, if it has said so. */
  readonly base?: BaseState | undefined;
  readonly backup?: BackupReport | undefined;
}

/** The reports of agents, and their ages by the clock of this process. */
export class NodeReports {
  readonly #renewals = new Map<string, { readonly renewed: string; readonly at: number }>();

  /**
   * Reads the Leases of all agents. Returns the reports about the UpgradeBundle with a uid, by the names of the nodes.
   * With `version`, only reports about that release. `now` is in milliseconds.
   */
  read(
    leases: readonly StoredObject[],
    bundle: string,
    now = performance.now(),
    version?: string,
  ): Map<string, KnownProgress> {
    const known = new Map<string, KnownProgress>();
    for (const lease of leases) {
      const { node, renewed } = readRenewal(lease);
      const before = this.#renewals.get(node);
      // Measured with the own clock, because the clocks of nodes may differ.
      const at = before?.renewed === renewed ? before.at : now;
      this.#renewals.set(node, { renewed, at });
      const report = parseReport(lease);
      const isSelected = report?.bundle === bundle && (version === undefined || report.version === version);
      if (isSelected && report.progress.name === node)
        known.set(node, {
          ...{ progress: report.progress, isRecent: now - at < silenceLimit },
          ...{ base: report.base, backup: report.backup },
        });
    }
    return known;
  }
}
