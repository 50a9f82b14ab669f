import { subjectOf, type Finding, type Weight } from '#cluster/finding';
import { isSelected, conditionsOf, controllerOf, type StoredObject } from '#cluster/objects';
import { blocks } from '#cluster/version';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '#fields';
import { formatBytes } from '#text';
import { type ClusterNode, isPoolNode, parseQuantity, readNode } from '../nodes/node.ts';
import { isControlPlane } from '../nodes/nodeCheck.ts';
import { topologyOf } from './operatorCheck.ts';
import type { ClusterSurvey } from './survey.ts';

const advice = {
  budget:
    'Run one more replica, or lower the budget until the update ends (oc edit poddisruptionbudget). A node is ' +
    'not updated before its pods are evicted.',
  now: 'Bring its other pods up first. A node is not updated before its pods are evicted.',
  several:
    'Leave one budget for each pod: the API server evicts no pod that has several. A node is not updated before its ' +
    'pods are evicted.',
  controlled:
    'Nothing, if its controller moves its pods when a node is cordoned or drained. Otherwise see the ' +
    'documentation of the controller. A drain waits up to an hour before it reports an error.',
  capacity:
    'Add a node, or scale workloads down until the update ends. Pods that do not fit stay pending, and their ' +
    'budgets then let no other node be drained.',
};

/** The controllers of pods that do nothing when a node is cordoned: they only replace a pod that is gone. */
const replacing = ['ReplicaSet', 'StatefulSet', 'Deployment', 'ReplicationController', 'DeploymentConfig', 'Job'];

/**
 * Finds pods that no drain of a node can evict: their PodDisruptionBudget allows no eviction, or they have several. The
 * machine config operator drains a node before it updates it, reports an error after an hour, and tries again without
 * end. It drains no node of a cluster with one control plane node (openshift/machine-config-operator,
 * pkg/controller/drain/drain_controller.go and pkg/daemon/drain.go). A budget that a controller guards only warns, and
 * so does one whose pods belong to a controller that moves them. CloudNativePG moves a primary from a cordoned node,
 * and KubeVirt migrates a machine when its pod is evicted. Also finds machines that cannot be migrated and must be.
 */
export function checkDrains({
  budgets,
  workloads,
  infrastructures,
  machines,
}: Pick<ClusterSurvey, 'budgets' | 'workloads' | 'infrastructures' | 'machines'>): Finding[] {
  if (isSingleNode(infrastructures)) return [];
  const pods = workloads.filter(isEvicted);
  const guarded = budgets.map((budget) => ({
    budget,
    pods: pods.filter((pod) => !mayGoUnready(budget, pod) && guardsPod(budget, pod.metadata)),
  }));
  const shared = pods.filter(
    (pod) => !isMachinePod(pod) && guarded.filter((each) => each.pods.includes(pod)).length > 1,
  );
  const held = guarded.flatMap(({ budget, pods }): Finding[] => {
    const several = pods.filter((pod) => shared.includes(pod));
    if (several.length > 0) {
      const weight = several.every((pod) => movingControllerOf(pod).length > 0) ? warns : blocks('severalBudgets');
      return [find(budget, weight, `is not the only budget of ${namePods(several)}`, advice.several)];
    }
    const { disruptionsAllowed, currentHealthy, desiredHealthy, expectedPods } = fieldsOf(budget['status']);
    // A machine is migrated, although its budget allows no eviction, or is found below.
    const others = pods.filter((pod) => !isMachinePod(pod));
    if (others.length === 0 || Number(disruptionsAllowed) > 0) return [];
    if (Number(desiredHealthy ?? 0) < Number(expectedPods ?? 0)) {
      const health =
        `${Number(currentHealthy)} of ${Number(expectedPods)} are healthy, and ${Number(desiredHealthy)} must ` +
        'stay';
      return [find(budget, warns, `does not allow to evict ${namePods(others)} now: ${health}`, advice.now)];
    }
    const never = `never allows to evict ${namePods(others)}`;
    const [controller] = [budget, ...others].flatMap(movingControllerOf);
    if (controller !== undefined)
      return [find(budget, warns, `${never}: ${controller} decides about it`, advice.controlled)];
    return [find(budget, blocks('drain'), never, advice.budget)];
  });
  return [...held, ...checkMachines(machines, pods, (pod) => guarded.some((each) => each.pods.includes(pod)))];
}

/** Returns the controller of an object that may move its pods itself, such as `Cluster/db`; none without one. */
function movingControllerOf(object: StoredObject): string[] {
  const owner = controllerOf(object);
  if (!owner || replacing.includes(String(owner['kind']))) return [];
  return [`${String(owner['kind'])}/${String(owner['name'])}`];
}

const warns = { severity: 'warning' } as const;

/**
 * Finds nodes whose pods do not fit on the other nodes of their role, by the sums of requests. As many nodes are
 * drained together as the pools allow (maxUnavailable, 1 by default). A drain does not wait for the new pods.
 */
export function checkCapacity({
  nodes,
  workloads,
  pools,
  infrastructures,
}: Pick<ClusterSurvey, 'nodes' | 'workloads' | 'pools' | 'infrastructures'>): Finding[] {
  if (isSingleNode(infrastructures)) return [];
  const loads = nodes.filter((node) => isPoolNode(readNode(node))).map((node) => loadOf(node, workloads));
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
      const message =
        `the pods of ${names} request ${formatAmount(resource, needed)}, and the other nodes of the role have ` +
        `${formatAmount(resource, free)} left`;
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
  return topologyOf(infrastructures) === 'SingleReplica';
}

function find(object: StoredObject, weight: Weight, message: string, advised: string): Finding {
  return { check: 'drains', ...weight, subject: subjectOf(object), message, advice: advised };
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

const machineAdvice = {
  stuck:
    'Stop the machine until the update ends, make it migratable, or let it be shut down ' +
    '(spec.template.spec.evictionStrategy: None).',
  migrated:
    'Nothing. A node waits until its machines have moved: a migration takes as long as the copy of their memory, and ' +
    'most clusters migrate two at a time from a node.',
};

/** The kind of a running virtual machine (kubevirt.io/v1). */
const machineKind = 'VirtualMachineInstance';

/** Returns whether a pod runs a virtual machine, which an eviction migrates to another node. */
function isMachinePod(pod: StoredObject): boolean {
  return machineOf(pod) !== undefined;
}

/**
 * Finds virtual machines that a drain waits for without end: their eviction strategy demands a migration, and KubeVirt
 * says that they cannot be migrated. A machine that states no strategy has that of its cluster, and demands a migration
 * if a budget guards its pod. Other strategies let the machine be shut down (kubevirt/kubevirt,
 * pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go; pkg/virt-controller/watch/drain). Warns
 * once of the machines that are migrated.
 */
function checkMachines(
  machines: readonly StoredObject[],
  pods: readonly StoredObject[],
  isGuarded: (pod: StoredObject) => boolean,
): Finding[] {
  const objects = new Map(
    machines.map((machine) => [machineKeyOf(machine.metadata.namespace, machine.metadata.name), machine]),
  );
  const moved: string[] = [];
  const stuck = pods.flatMap((pod): Finding[] => {
    const name = machineOf(pod);
    if (name === undefined) return [];
    const { namespace } = pod.metadata;
    const machine = objects.get(machineKeyOf(namespace, name));
    const strategy =
      textOf(fieldsOf(machine?.['spec'])['evictionStrategy']) ?? (isGuarded(pod) ? 'LiveMigrate' : 'None');
    const node = textOf(fieldsOf(pod['spec'])['nodeName']) ?? 'no node';
    const migratable = machine && conditionsOf(machine).get('LiveMigratable');
    if (strategy !== 'LiveMigrate' || migratable?.status !== 'False') {
      if (strategy !== 'None') moved.push(`${machineKeyOf(namespace, name)} on ${node}`);
      return [];
    }
    const why = [migratable.reason, migratable.message].filter((part) => part !== '').join(', ');
    const message = `cannot leave ${node} for its update, because it cannot be migrated${why === '' ? '' : `: ${why}`}`;
    const subject = { kind: machineKind, name, ...(namespace !== undefined && { namespace }) };
    return [{ check: 'drains', ...blocks('migration'), subject, message, advice: machineAdvice.stuck }];
  });
  if (moved.length === 0) return stuck;
  const message =
    'drains wait for the migration of ' +
    `${moved.length === 1 ? 'a virtual machine' : `${moved.length} virtual machines`}: ${nameSome(moved.sort(), 3)}`;
  const subject = { kind: machineKind, name: '' };
  return [...stuck, { check: 'drains', severity: 'warning', subject, message, advice: machineAdvice.migrated }];
}

function machineKeyOf(namespace: string | undefined, name: string): string {
  return `${namespace ?? ''}/${name}`;
}

/** Returns the name of the virtual machine that a pod runs. */
function machineOf(object: StoredObject): string | undefined {
  const owner = controllerOf(object);
  return object.kind === 'Pod' && owner?.['kind'] === machineKind ? textOf(owner['name']) : undefined;
}
