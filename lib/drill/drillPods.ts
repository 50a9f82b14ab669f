import { conditionsOf, controllerOf, type StoredObject } from '#cluster/objects';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { readContainers, normalizeImage } from '#readiness/lint';

/** A pod, and the images that it needs. */
export interface PodImages {
  readonly namespace: string;
  readonly name: string;
  /** The owner as `ReplicaSet/router-5d8`; empty for a pod without one. */
  readonly owner: string;
  /** The images of its containers and volumes, as nodes list them. */
  readonly images: readonly string[];
}

/** A pod that ran on a node before a drill. */
export interface DrillPod extends PodImages {
  readonly uid: string;
  /** Whether it belongs to this node: a static pod, or one of a DaemonSet. */
  readonly bound: boolean;
  /** Whether it can be evicted from the node. */
  readonly evictable: boolean;
  /** The containers that ran before. */
  readonly containers: readonly string[];
  readonly labels: Readonly<Record<string, unknown>>;
}

/** How pods come back: in place after a restart, or as others after a drain. */
export interface Expectation {
  readonly reboot: boolean;
  readonly drained: boolean;
}

/** Returns the pods of a node, with the images of their containers and volumes. */
export function readPodImages(pods: readonly StoredObject[], node: string): PodImages[] {
  return pods.filter(({ spec }) => fieldsOf(spec)['nodeName'] === node).map(imagesOf);
}

/** Reads the pods of a node that have to run again: all ready pods, except for jobs and pods that are ending. */
export function readDrillPods(pods: readonly StoredObject[], node: string): DrillPod[] {
  return pods.flatMap((pod) => {
    const { kind } = ownerOf(pod);
    if (fieldsOf(pod['spec'])['nodeName'] !== node || !isReady(pod) || kind === 'Job') return [];
    const bound = kind === 'Node' || kind === 'DaemonSet';
    const { uid = '', labels } = pod.metadata;
    return [
      { ...imagesOf(pod), uid, bound, evictable: !bound, containers: containersOf(pod), labels: fieldsOf(labels) },
    ];
  });
}

function imagesOf(pod: StoredObject): PodImages {
  const { namespace = '', name } = pod.metadata;
  const images = readContainers(fieldsOf(pod['spec'])).flatMap(({ image }) =>
    image === '' ? [] : [normalizeImage(image)],
  );
  return { namespace, name, owner: formatOwner(ownerOf(pod)), images };
}

/** Returns why a pod of before does not run again; undefined if it does. */
export function checkPod(
  before: DrillPod,
  pods: readonly StoredObject[],
  all: readonly DrillPod[],
  node: string,
  { reboot, drained }: Expectation,
): string | undefined {
  const family = pods.filter((pod) => pod.metadata.namespace === before.namespace && isRelated(before, pod));
  const stays = before.bound || !drained;
  const candidates = family.filter((pod) => !stays || fieldsOf(pod['spec'])['nodeName'] === node);
  const ready = candidates.filter((pod) => isReady(pod) && (!reboot || isFresh(before, pod)));
  const replicas = stays
    ? 1
    : all.filter(({ owner, namespace }) => owner === before.owner && namespace === before.namespace).length;
  const own = ready.filter((pod) => !stays || before.owner === '' || before.bound || pod.metadata.uid === before.uid);
  // A pod that moves without a drain, such as by a rollout, is replaced.
  if (own.length >= replicas || (stays && !before.bound && ready.length > 0)) return undefined;
  const waiting = candidates.find((pod) => !isReady(pod)) ?? candidates[0];
  return waiting ? reasonOf(waiting) : 'there is no such pod';
}

function isRelated(before: DrillPod, pod: StoredObject): boolean {
  const owner = ownerOf(pod);
  return before.owner === '' || owner.kind === 'Node'
    ? pod.metadata.name === before.name
    : formatOwner(owner) === before.owner;
}

/** A container that runs after a reboot has a new ID. */
function isFresh(before: DrillPod, pod: StoredObject): boolean {
  return containersOf(pod).every((id) => !before.containers.includes(id));
}

function isReady(pod: StoredObject): boolean {
  return pod.metadata['deletionTimestamp'] === undefined && conditionsOf(pod).get('Ready')?.status === 'True';
}

function containersOf({ status }: StoredObject): string[] {
  return listOf(fieldsOf(status)['containerStatuses']).flatMap(({ containerID }) => textOf(containerID) ?? []);
}

interface Owner {
  readonly kind: string;
  readonly name: string;
}

function ownerOf(pod: StoredObject): Owner {
  const owner = controllerOf(pod);
  return { kind: textOf(owner?.['kind']) ?? '', name: textOf(owner?.['name']) ?? '' };
}

function formatOwner({ kind, name }: Owner): string {
  return kind === '' ? '' : `${kind}/${name}`;
}

function reasonOf(pod: StoredObject): string {
  const { containerStatuses, initContainerStatuses, phase } = fieldsOf(pod['status']);
  const states = [...listOf(initContainerStatuses), ...listOf(containerStatuses)].map(({ name, state }) => ({
    name: String(name),
    waiting: fieldsAt(state, 'waiting'),
  }));
  const stuck = states.find(({ waiting }) => textOf(waiting['reason']) !== undefined);
  if (stuck) {
    const { reason, message } = stuck.waiting;
    return `container ${stuck.name}: ${String(reason)}${textOf(message) === undefined ? '' : `: ${String(message)}`}`;
  }
  const scheduled = conditionsOf(pod).get('PodScheduled');
  if (scheduled?.status === 'False') return scheduled.message || scheduled.reason;
  return `it is ${phase === 'Running' ? 'not ready' : String(phase)}`;
}
