import { conditionsOf } from '../../kubernetes/fields.ts';
import { readNode } from '../../preflight/node.ts';
import { clearCondition, listNames, type BundleCondition } from '../conditions.ts';
import { isAtLeast, hasEnded } from '../upgradeBundle.ts';
import { silenceLimit } from './nodeReports.ts';
import type { Observation } from './observation.ts';

/**
 * Names the nodes that are not ready, with the words of their kubelets, and nodes whose agents are silent, before the
 * update itself. During an update nodes restart, and the condition `Updated` names them. `now`: milliseconds since 1970.
 */
export function describeNodes({ bundle, site, reports }: Observation, now = Date.now()): BundleCondition[] {
  const isOld = now - Date.parse(bundle.metadata.creationTimestamp ?? '') > silenceLimit;
  const isBefore = !hasEnded(bundle) && !isAtLeast(bundle, 'Upgrading');
  const nodes = isBefore
    ? site.nodes.map((node) => ({ ...readNode(node), said: conditionsOf(node).get('Ready') }))
    : [];
  const unready = nodes.flatMap(({ name, ready, said }) =>
    ready ? [] : [`node ${name} is not ready: ${said?.message ?? 'it has never reported'}`],
  );
  const silent = nodes
    .filter(({ name, ready, labels }) => {
      const isExpected = ready && labels['kubernetes.io/os'] !== 'windows';
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
