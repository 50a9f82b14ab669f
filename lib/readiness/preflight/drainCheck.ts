import { formatBytes } from '../../byteSize.ts';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '../../fields.ts';
import { nameSome } from '../../failures.ts';
import { subjectOf, type Finding } from '../../cluster/finding.ts';
import { conditionsOf, type StoredObject } from '../../cluster/storedObject.ts';
import { parseQuantity, readNode, type ClusterNode } from './node.ts';
import { isControlPlane } from './nodeCheck.ts';
import { isSelected } from './pinnedImageSets.ts';
import type { ClusterSurvey } from './survey.ts';

const advice = {
  budget:
    'Run one more replica, or lower the budget until the update ends (oc edit poddisruptionbudget). A node is not updated before its pods are evicted.',
  now: 'Bring its other pods up first. A node is not updated before its pods are evicted.',
  several:
    'Leave one budget for each pod: the API server evicts no pod that has several. A node is not updated before its pods are evicted.',
  capacity:
    'Add a node, or scale workloads down until the update ends. Pods that do not fit stay pending, and their budgets then let no other node be drained.',
  approve: (name: string): string =>
    `Approve it if you expect this node: oc adm certificate approve ${name}. A node without a valid certificate is not updated.`,
};

/**
 * Finds pods that no drain of a node can evict: their PodDisruptionBudget allows no eviction, or they have several. The
 * machine config operator drains a node before it updates it, reports an error after an hour, and tries again without
 * end. It drains no node of a cluster with one control plane node (openshift/machine-config-operator,
 * pkg/controller/drain/drain_controller.go and pkg/daemon/drain.go).
 */
export function checkDrains({
  budgets,
  workloads,
  infrastructures,
}: Pick<ClusterSurvey, 'budgets' | 'workloads' | 'infrastructures'>): Finding[] {
  if (isSingleNode(infrastructures)) return [];
  const pods = workloads.filter(isEvicted);
  const guarded = budgets.map((budget) => ({
    budget,
    pods: pods.filter((pod) => !mayGoUnready(budget, pod) && guardsPod(budget, pod.metadata)),
  }));
  const shared = pods.filter((pod) => guarded.filter((each) => each.pods.includes(pod)).length > 1);
  return guarded.flatMap(({ budget, pods }): Finding[] => {
    const several = pods.filter((pod) => shared.includes(pod));
    if (several.length > 0)
      return [find(budget, 'blocker', `is not the only budget of ${namePods(several)}`, advice.several)];
    const { disruptionsAllowed, currentHealthy, desiredHealthy, expectedPods } = fieldsOf(budget['status']);
    if (pods.length === 0 || Number(disruptionsAllowed) > 0) return [];
    if (Number(desiredHealthy ?? 0) >= Number(expectedPods ?? 0))
      return [find(budget, 'blocker', `never allows to evict ${namePods(pods)}`, advice.budget)];
    const health = `${Number(currentHealthy)} of ${Number(expectedPods)} are healthy, and ${Number(desiredHealthy)} must stay`;
    return [find(budget, 'warning', `does not allow to evict ${namePods(pods)} now: ${health}`, advice.now)];
  });
}

/**
 * Finds nodes whose pods do not fit on the other nodes of their role, by the sums of requests. As many nodes are drained
 * together as the pools allow (maxUnavailable, 1 by default). A drain does not wait for the new pods.
 */
export function checkCapacity({
  nodes,
  workloads,
  pools,
  infrastructures,
}: Pick<ClusterSurvey, 'nodes' | 'workloads' | 'pools' | 'infrastructures'>): Finding[] {
  if (isSingleNode(infrastructures)) return [];
  const loads = nodes.map((node) => loadOf(node, workloads));
  return [true, false].flatMap((controlPlane): Finding[] => {
    const own = loads.filter((load) => isControlPlane(load.node) === controlPlane);
    const owned = pools.filter(({ metadata }) => (metadata.name === 'master') === controlPlane);
    const drained = Math.max(1, sum(owned.map(maxUnavailable)));
    return (['cpu', 'memory'] as const).flatMap((resource): Finding[] => {
      const [largest] = own.toSorted((a, b) => b.moving[resource] - a.moving[resource]);
      const leaving = own.toSorted((a, b) => b.moving[resource] - a.moving[resource]).slice(0, drained);
      const staying = own.filter((load) => !leaving.includes(load) && load.node.ready && load.node.schedulable);
      const needed = sum(leaving.map(({ moving }) => moving[resource]));
      const free = sum(staying.map((load) => Math.max(0, load.free[resource])));
      if (!largest || needed <= free) return [];
      const names = nameSome(leaving.map(({ node }) => node.name));
      const message = `the pods of ${names} request ${formatAmount(resource, needed)}, and the other nodes of the role have ${formatAmount(resource, free)} left`;
      const subject = { kind: 'Node', name: largest.node.name };
      return [{ check: 'drains', severity: 'warning', subject, message, advice: advice.capacity }];
    });
  });
}

interface NodeLoad {
  readonly node: ClusterNode;
  /** The requests of the pods that a drain evicts, and what is left for others: cores, and bytes. */
  readonly moving: Readonly<Record<'cpu' | 'memory', number>>;
  readonly free: Readonly<Record<'cpu' | 'memory', number>>;
}

function loadOf(object: StoredObject, workloads: readonly StoredObject[]): NodeLoad {
  const node = readNode(object);
  const { allocatable } = fieldsOf(object['status']);
  const pods = workloads.filter(
    ({ kind, spec, status }) =>
      kind === 'Pod' &&
      fieldsOf(spec)['nodeName'] === node.name &&
      ['Running', 'Pending'].includes(String(fieldsOf(status)['phase'])),
  );
  const requested = (resource: 'cpu' | 'memory', of: readonly StoredObject[]): number =>
    sum(
      of.flatMap(({ spec }) =>
        listOf(fieldsOf(spec)['containers']).map(
          ({ resources }) => parseQuantity(fieldsAt(resources, 'requests')[resource]) ?? 0,
        ),
      ),
    );
  const measure = (of: (resource: 'cpu' | 'memory') => number) => ({ cpu: of('cpu'), memory: of('memory') });
  return {
    node,
    moving: measure((resource) => requested(resource, pods.filter(isEvicted))),
    // A node that does not say what it has counts as large enough.
    free: measure(
      (resource) => (parseQuantity(fieldsOf(allocatable)[resource]) ?? Infinity) - requested(resource, pods),
    ),
  };
}

function maxUnavailable({ spec, status }: StoredObject): number {
  const { maxUnavailable: limit = 1 } = fieldsOf(spec);
  const machines = Number(fieldsOf(status)['machineCount'] ?? 1);
  const share =
    typeof limit === 'string' && limit.endsWith('%')
      ? Math.floor((machines * Number.parseFloat(limit)) / 100)
      : Number(limit);
  return Math.min(machines, Math.max(1, share));
}

function formatAmount(resource: 'cpu' | 'memory', amount: number): string {
  return resource === 'cpu' ? `${Number(amount.toFixed(1))} CPUs` : `${formatBytes(amount)} of memory`;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function isSingleNode(infrastructures: readonly StoredObject[]): boolean {
  return infrastructures.some(({ status }) => fieldsOf(status)['controlPlaneTopology'] === 'SingleReplica');
}

function find(budget: StoredObject, severity: Finding['severity'], message: string, advised: string): Finding {
  return { check: 'drains', severity, subject: subjectOf(budget), message, advice: advised };
}

// A drain leaves the pods of DaemonSets and static pods; the API server evicts pending and ended pods at once.
function isEvicted({ kind, metadata, status }: StoredObject): boolean {
  const { ownerReferences, deletionTimestamp } = fieldsOf(metadata);
  return (
    kind === 'Pod' &&
    fieldsOf(status)['phase'] === 'Running' &&
    deletionTimestamp === undefined &&
    !listOf(ownerReferences).some((owner) => owner['kind'] === 'DaemonSet' || owner['kind'] === 'Node')
  );
}

/**
 * Returns whether a PodDisruptionBudget is for a pod. A budget without a selector is for none, and one with an empty
 * selector for all pods of its namespace.
 */
export function guardsPod(
  { metadata, spec }: StoredObject,
  { namespace, labels = {} }: { readonly namespace?: string; readonly labels?: Fields },
): boolean {
  const { selector } = fieldsOf(spec);
  return selector !== undefined && metadata.namespace === namespace && isSelected(labels, fieldsOf(selector));
}

function mayGoUnready({ spec }: StoredObject, pod: StoredObject): boolean {
  const isUnready = conditionsOf(pod).get('Ready')?.status === 'False';
  return isUnready && fieldsOf(spec)['unhealthyPodEvictionPolicy'] === 'AlwaysAllow';
}

function namePods(pods: readonly StoredObject[]): string {
  const names = pods.map(
    ({ metadata, spec }) => `${metadata.name} on ${textOf(fieldsOf(spec)['nodeName']) ?? 'no node'}`,
  );
  return `${pods.length === 1 ? 'pod' : `${pods.length} pods:`} ${nameSome(names.sort(), 3)}`;
}

/** The signers of the certificates of kubelets (Kubernetes, certificate signing requests). */
const kubeletSigners = ['kubernetes.io/kube-apiserver-client-kubelet', 'kubernetes.io/kubelet-serving'];

/** Finds requests of kubelets for certificates that wait for a person. */
export function checkSigningRequests(requests: readonly StoredObject[]): Finding[] {
  return requests.flatMap((request): Finding[] => {
    const { signerName, username } = fieldsOf(request['spec']);
    const conditions = conditionsOf(request);
    const isDecided = ['Approved', 'Denied', 'Failed'].some((type) => conditions.has(type));
    if (isDecided || !kubeletSigners.includes(String(signerName))) return [];
    const message = `waits for approval: a certificate (${String(signerName)}) for ${textOf(username) ?? 'a node'}`;
    const subject = subjectOf(request);
    return [{ check: 'nodes', severity: 'warning', subject, message, advice: advice.approve(subject.name) }];
  });
}
