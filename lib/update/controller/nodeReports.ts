import { conditionsOf, type StoredObject } from '#cluster/objects';
import { isPoolNode, mayHaveAgent, readNode } from '#readiness/nodes';
import { clearCondition, listNames, type BundleCondition } from '../record/conditions.ts';
import { readReport, type BackupReport, type BaseState } from '../record/nodeReport.ts';
import { hasEnded, isAtLeast, type NodeProgress, type UpgradeBundle } from '../record/upgradeBundle.ts';

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
  readonly base?: BaseState;
  readonly backup?: BackupReport;
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
    const progressByNode = new Map<string, KnownProgress>();
    for (const lease of leases) {
      const received = readReport(lease);
      if (!received) continue;
      const { node, renewed, report } = received;
      const before = this.#renewals.get(node);
      // Measured with the own clock, because the clocks of nodes may differ.
      const at = before?.renewed === renewed ? before.at : now;
      this.#renewals.set(node, { renewed, at });
      const isSelected =
        (report?.bundle === bundle || report?.keeps === bundle) &&
        (version === undefined || report.version === version);
      if (isSelected)
        progressByNode.set(node, {
          progress: report.progress,
          isRecent: now - at < silenceLimit,
          base: report.base,
          backup: report.backup,
        });
    }
    return progressByNode;
  }
}

/** The nodes of a cluster and the reports of their agents about an UpgradeBundle. */
interface ReportedSite {
  readonly bundle: UpgradeBundle;
  readonly site: { readonly nodes: readonly StoredObject[] };
  readonly reports: ReadonlyMap<string, KnownProgress>;
}

/**
 * Names the nodes that are not ready, with the words of their kubelets, and nodes whose agents are silent, before the
 * update itself. During an update nodes restart, and the condition `Updated` names them. `now`: milliseconds since
 * 1970.
 */
export function describeNodes({ bundle, site, reports }: ReportedSite, now = Date.now()): BundleCondition[] {
  const isOld = now - Date.parse(bundle.metadata.creationTimestamp ?? '') > silenceLimit;
  const isBefore = !hasEnded(bundle) && !isAtLeast(bundle, 'Upgrading');
  const nodes = isBefore
    ? site.nodes
        .map((node) => ({ ...readNode(node), said: conditionsOf(node).get('Ready') }))
        .filter((node) => isPoolNode(node))
    : [];
  const unready = nodes.flatMap(({ name, ready, said }) =>
    ready ? [] : [`node ${name} is not ready: ${said?.message ?? 'it has never reported'}`],
  );
  const silent = nodes
    .filter((node) => {
      const { name, ready } = node;
      const isExpected = ready && mayHaveAgent(node);
      return isExpected && reports.get(name)?.isRecent !== true && (reports.has(name) || isOld);
    })
    .map(({ name }) => name);
  const agents = silent.length === 0 ? [] : [`no agent has reported for 15 minutes from ${listNames(silent)}`];
  const problems = [...unready, ...agents];
  if (problems.length === 0)
    return clearCondition(bundle.status, 'NodesNotReady', 'NodesReady', 'the nodes are ready, and their agents report');
  const reason = unready.length > 0 ? 'NodesNotReady' : 'AgentsSilent';
  return [{ type: 'NodesNotReady', status: 'True', reason, message: listNames(problems, '; ') }];
}
