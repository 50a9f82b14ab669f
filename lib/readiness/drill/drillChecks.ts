import { fieldsOf } from '../../fields.ts';
import { PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import type { Context } from '../../context.ts';
import { listDenied, type AccessRequest } from '../../cluster/accessReview.ts';
import type { Cluster } from '../../cluster/client.ts';
import { conditionsOf, type StoredObject } from '../../cluster/storedObject.ts';
import { formatSubject } from '../../cluster/finding.ts';
import { guardsPod } from '../preflight/drainCheck.ts';
import { readRunningDrill } from '../preflight/drillRecord.ts';
import { readNode, type ClusterNode } from '../preflight/node.ts';
import { isArbiter, isControlPlane } from '../preflight/nodeCheck.ts';
import { runPreflight } from '../preflight/preflight.ts';
import { agentNamespace } from '../../update/upgradeBundle.ts';
import type { DrillPod } from './drillPods.ts';
import { shellCommand } from '../../shellWord.ts';

/** What a drill does with its node. */
export interface DrillMode {
  /** Drain and reboot the node, instead of a restart of its container runtime. */
  readonly reboot: boolean;
  /** Accept that the whole cluster is down while its only node, or its only control plane node, reboots. */
  readonly single: boolean;
}

/** Throws `denied` with the rights that a drill needs and the user lacks. */
export async function checkDrillRights(cluster: Cluster, { reboot }: Pick<DrillMode, 'reboot'>): Promise<void> {
  const object = (apiVersion: string, kind: string, namespace?: string) => ({
    ...{ apiVersion, kind },
    metadata: { name: '', namespace },
  });
  const requests: AccessRequest[] = [
    { verb: 'patch', object: object('v1', 'Node') },
    { verb: 'list', object: object('v1', 'Pod', '') },
    { verb: 'create', object: object('v1', 'Pod', agentNamespace), subresource: 'exec' },
    { verb: 'create', object: object('v1', 'Event', 'default') },
    ...(reboot
      ? ([
          { verb: 'create', object: object('v1', 'Pod', ''), subresource: 'eviction' },
          { verb: 'list', object: object('policy/v1', 'PodDisruptionBudget', '') },
        ] as const)
      : []),
  ];
  const denied = await listDenied(cluster, requests);
  if (denied.length === 0) return;
  throw new PluginError('denied', `a drill needs rights that you do not have: ${denied.join(', ')}`, {
    hint: 'Check them with “oc auth can-i”, or use the context of an administrator.',
    settings: ['context'],
  });
}

/** Throws `not-ready` with the blockers of preflight. Returns the version that the cluster runs. */
export async function checkPreflight(cluster: Cluster, context: Context): Promise<string> {
  const { ready, findings, version } = await runPreflight(cluster, undefined, context);
  if (ready) return version;
  const blockers = findings.filter(({ severity }) => severity === 'blocker');
  const named = blockers.map(({ subject, message }) => `${formatSubject(subject)} ${message}`);
  const message = `preflight has ${blockers.length === 1 ? 'a blocker' : `${blockers.length} blockers`}: ${nameSome(named, 3, '; ')}`;
  const hint =
    'Fix what oc adm-upgrade-bundle preflight reports. A drill shows that a sound cluster needs no registry.';
  throw new PluginError('not-ready', message, { hint });
}

/**
 * Checks that the cluster can do without a node for some time: no other drill, all nodes of the control plane healthy,
 * and enough members of etcd. Arbiters have members too. `topology`: how the cluster runs its control plane. Throws `busy`,
 * `not-found` and `not-ready`.
 */
export function checkNodes(
  name: string,
  nodes: readonly StoredObject[],
  pods: readonly StoredObject[],
  { reboot, single }: DrillMode,
  topology = '',
): void {
  const all = nodes.map(readNode);
  const node = all.find((each) => each.name === name);
  if (!node) throw new PluginError('not-found', `there is no node ${name}`, { hint: 'See “oc get nodes”.' });
  checkOthers(nodes);
  if (!node.ready) throw unready(`the node ${name} is not ready`);
  if (reboot && !node.schedulable) {
    throw unready(`the node ${name} is cordoned already`, shellCommand`Uncordon it first: oc adm uncordon ${name}`);
  }
  const planes = all.filter(isControlPlane);
  const others = planes.filter((each) => each.name !== name);
  const isOnly = isControlPlane(node) && others.length === 0;
  if ((all.length === 1 || isOnly) && !single) {
    const what = all.length === 1 ? 'the only node of the cluster' : 'the only control plane node';
    throw unready(
      `${name} is ${what}: the API${reboot ? ' and all pods are' : ' may be'} down meanwhile`,
      'Run the drill in a maintenance window, and confirm it.',
      ['yes'],
    );
  }
  const members = all.filter((each) => isControlPlane(each) || isArbiter(each));
  if (!members.includes(node) || isOnly) return;
  const rest = members.filter((each) => each !== node);
  const sick = rest.filter((each) => !each.ready || !hasHealthyMember(each, pods));
  const remainingCount = rest.length - sick.length;
  // Two members have a quorum of two: without the node, etcd would stop, unless fencing keeps it for the other.
  const quorum = topology === 'DualReplica' ? 1 : Math.floor(members.length / 2) + 1;
  if (remainingCount >= quorum && sick.length === 0) return;
  throw unready(
    sick.length > 0
      ? `the control plane is not healthy: ${nameSome(sick.map((each) => each.name))}`
      : `etcd needs ${quorum} of ${members.length} members, and ${remainingCount} are left without ${name}`,
    'All other control plane nodes, and their etcd pods, must be ready.',
  );
}

function checkOthers(nodes: readonly StoredObject[]): void {
  for (const node of nodes) {
    const drill = readRunningDrill(node);
    if (!drill) continue;
    const { name } = node.metadata;
    throw new PluginError('busy', `a drill of ${name} has been running since ${drill.started}`, {
      hint: `Wait for its end, at the latest at ${drill.until}, or end it.`,
      settings: ['end'],
    });
  }
}

/** Etcd runs as a static pod; other distributions run it elsewhere. */
function hasHealthyMember({ name }: ClusterNode, pods: readonly StoredObject[]): boolean {
  const members = pods.filter(
    ({ metadata }) => metadata.namespace === 'openshift-etcd' && metadata.name === `etcd-${name}`,
  );
  return members.every((pod) => {
    const ready = conditionsOf(pod).get('Ready');
    return ready === undefined || ready.status === 'True';
  });
}

/**
 * Checks that a node can be drained: every pod comes back elsewhere, and no PodDisruptionBudget forbids its eviction.
 * Throws `not-ready` with the pods.
 */
export function checkDrain(pods: readonly DrillPod[], budgets: readonly StoredObject[]): void {
  const evictable = pods.filter((pod) => pod.evictable);
  const lost = evictable.filter(({ owner }) => owner === '');
  if (lost.length > 0) {
    throw unready(
      `nothing would create these pods again: ${nameSome(lost.map(nameOf))}`,
      'Delete them, or create them by a workload such as a Deployment.',
    );
  }
  // An eviction migrates a virtual machine, although its budget allows none.
  const held = evictable.flatMap((pod) => {
    if (pod.owner.startsWith('VirtualMachineInstance/')) return [];
    const budget = budgets.find((each) => isExhausted(each) && guardsPod(each, pod));
    return budget ? [`${nameOf(pod)} (${budget.metadata.name})`] : [];
  });
  if (held.length === 0) return;
  throw unready(
    `a PodDisruptionBudget allows no eviction of ${nameSome(held)}`,
    'See “oc get poddisruptionbudget -A”: ALLOWED DISRUPTIONS must be at least 1.',
  );
}

function isExhausted({ status }: StoredObject): boolean {
  const { disruptionsAllowed } = fieldsOf(status);
  return disruptionsAllowed === 0;
}

function nameOf({ namespace, name }: DrillPod): string {
  return `${namespace}/${name}`;
}

function unready(
  message: string,
  hint = 'See “oc get nodes” and “oc get clusteroperators”.',
  settings: readonly string[] = [],
): PluginError {
  return new PluginError('not-ready', message, { hint, settings });
}
