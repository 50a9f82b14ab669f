import { listDenied, type AccessRequest } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { formatSubject } from '#cluster/finding';
import { conditionsOf, type StoredObject } from '#cluster/objects';
import type { Context } from '#context';
import { PluginError, nameSome } from '#errors';
import { fieldsOf } from '#fields';
import type { DrillRequest } from '#node/runtime';
import { normalizeImage } from '#readiness/lint';
import { readNode, type ClusterNode, isArbiter, isControlPlane } from '#readiness/nodes';
import { guardsPod, readRunningDrill, runPreflight } from '#readiness/preflight';
import { shellCommand } from '#text';
import { agentNamespace } from '#update/record';
import { type DrillPod, checkPod, readPodImages, type Expectation, type PodImages } from './drillPods.ts';

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
    apiVersion,
    kind,
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
  const message =
    'preflight has ' +
    `${blockers.length === 1 ? 'a blocker' : `${blockers.length} blockers`}: ${nameSome(named, 3, '; ')}`;
  const hint =
    'Fix what oc adm-upgrade-bundle preflight reports. A drill shows that a sound cluster needs no registry.';
  throw new PluginError('not-ready', message, { hint });
}

/**
 * Checks that the cluster can do without a node for some time: no other drill, all nodes of the control plane healthy,
 * and enough members of etcd. Arbiters have members too. `topology`: how the cluster runs its control plane. Throws
 * `busy`, `not-found` and `not-ready`.
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

/** A pod, and its owner as `ReplicaSet/router-5d8`. */
interface PodName {
  readonly namespace: string;
  readonly name: string;
  readonly owner: string;
}

/** An image that a registry was asked for. */
export interface RequestedImage {
  readonly image: string;
  readonly count: number;
  /** The time of the first request in ISO 8601. */
  readonly first: string;
  /** The user agents that asked. */
  readonly clients: readonly string[];
  /** The pods of the node that use the image; empty if none does. */
  readonly pods: readonly PodName[];
}

/** What happened to a pod in a drill. */
export interface PodResult extends PodName {
  /** The time from the restart until it ran again, in seconds; undefined if it does not run. */
  readonly seconds: number | undefined;
  /** Why it does not run. */
  readonly message?: string;
}

/** What a drill has found about the pods and images of a node. */
export class DrillReport {
  /** The pods that have to run again. */
  readonly pods: readonly DrillPod[];
  requests: readonly DrillRequest[] = [];
  readonly #running = new Map<DrillPod, number>();
  readonly #reasons = new Map<DrillPod, string>();
  /** Every pod of the node, by its namespace and name. */
  readonly #seen = new Map<string, PodImages>();
  #begun = performance.now();

  constructor(pods: readonly DrillPod[]) {
    this.pods = pods;
    for (const pod of pods) this.#seen.set(`${pod.namespace}/${pod.name}`, pod);
  }

  /** Notes the restart, from which times count. */
  begin(): void {
    this.#begun = performance.now();
  }

  /** Notes the present pods of the cluster. */
  note(present: readonly StoredObject[], node: string, expectation: Expectation): void {
    const seconds = Math.round((performance.now() - this.#begun) / 100) / 10;
    for (const pod of readPodImages(present, node)) this.#seen.set(`${pod.namespace}/${pod.name}`, pod);
    for (const pod of this.pods) {
      const obstacle = checkPod(pod, present, this.pods, node, expectation);
      // A pod that crashes later does not run again.
      if (obstacle !== undefined) this.#running.delete(pod);
      else if (!this.#running.has(pod)) this.#running.set(pod, seconds);
      this.#reasons.set(pod, obstacle ?? '');
    }
  }

  /** The pods that do not run again. */
  get missing(): readonly DrillPod[] {
    return this.pods.filter((pod) => !this.#running.has(pod));
  }

  /** The time from the restart until the last pod ran again, in seconds. */
  get seconds(): number {
    return Math.max(0, ...this.#running.values());
  }

  results(): PodResult[] {
    return this.pods.map((pod) => {
      const seconds = this.#running.get(pod);
      const reason = this.#reasons.get(pod);
      return {
        ...withoutImages(pod),
        seconds,
        ...(seconds === undefined && reason !== undefined && { message: reason }),
      };
    });
  }

  /** The images that a registry was asked for, by the order of the first requests. */
  get asked(): RequestedImage[] {
    return [...Map.groupBy(this.requests, ({ image }) => normalizeImage(image))].map(([image, group]) => ({
      image,
      count: group.length,
      first: group[0]?.time ?? '',
      clients: [...new Set(group.map(({ client }) => client))],
      pods: [...this.#seen.values()]
        .filter(({ images }) => images.some((own) => isSame(own, image)))
        .map(withoutImages),
    }));
  }
}

function withoutImages({ namespace, name, owner }: PodName): PodName {
  return { namespace, name, owner };
}

/** Of a registry that nothing named before, only the end of its name is known. */
function isSame(own: string, asked: string): boolean {
  if (!asked.startsWith('*.')) return own === asked;
  const [end = '', ...path] = asked.slice(1).split('/');
  const [registry = '', ...ownPath] = own.split('/');
  return registry.endsWith(end) && path.join('/') === ownPath.join('/');
}
