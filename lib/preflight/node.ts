import type { KubernetesObject } from '../config/manifest.ts';
import { conditionsOf, fieldsOf, listOf, textOf, textsOf, type Fields } from '../kubernetes/fields.ts';
import { normalizeImage, type PodTemplate } from './podTemplate.ts';

/** A node as the cluster knows it. */
export interface ClusterNode {
  readonly name: string;
  readonly labels: Fields;
  /** By Go’s name: `amd64`. */
  readonly architecture: string;
  readonly ready: boolean;
  readonly schedulable: boolean;
  /** It evicts pods for want of disk space. */
  readonly pressed: boolean;
  readonly taints: readonly Fields[];
  /** The names of the images that its kubelet lists: the largest ones, up to a limit. */
  readonly images: ReadonlySet<string>;
  /** How many images it lists. */
  readonly listed: number;
  /** The file system of its images, in bytes; what pods may have of it, and undefined where the node does not say. */
  readonly capacity: number | undefined;
  readonly allocatable: number | undefined;
}

/** Reads a Node object. */
export function readNode(object: KubernetesObject): ClusterNode {
  const { status, spec } = object;
  const { nodeInfo, images, capacity, allocatable } = fieldsOf(status);
  const { unschedulable, taints } = fieldsOf(spec);
  const listed = listOf(images);
  const conditions = conditionsOf(object);
  return {
    name: object.metadata.name,
    labels: fieldsOf(object.metadata.labels),
    architecture: textOf(fieldsOf(nodeInfo)['architecture']) ?? '',
    ready: conditions.get('Ready')?.status === 'True',
    schedulable: unschedulable !== true,
    pressed: conditions.get('DiskPressure')?.status === 'True',
    taints: listOf(taints),
    images: new Set(listed.flatMap(({ names }) => textsOf(names)).map(normalizeImage)),
    listed: listed.length,
    capacity: parseQuantity(fieldsOf(capacity)['ephemeral-storage']),
    allocatable: parseQuantity(fieldsOf(allocatable)['ephemeral-storage']),
  };
}

/** Whether a pod of a template may come to run on a node, as far as its node, node selector and tolerations say. */
export function mayRunOn({ spec, node: bound }: PodTemplate, { name, labels, taints }: ClusterNode): boolean {
  // Static pods are what their node’s own files say.
  if (bound !== undefined) return bound === name;
  const selected = Object.entries(fieldsOf(spec['nodeSelector'])).every(([label, value]) => labels[label] === value);
  const tolerations = listOf(spec['tolerations']);
  return selected && taints.every((taint) => isPassing(taint) || tolerations.some((each) => tolerates(each, taint)));
}

/** A Kubernetes quantity (`125293548Ki`, `115470533646`, `100G`) as a number; undefined for none. */
function parseQuantity(value: unknown): number | undefined {
  const [, digits, unit = '', binary] = /^(\d+(?:\.\d+)?)([kKMGTPE])?(i)?$/.exec(String(value)) ?? [];
  if (digits === undefined) return undefined;
  return Number(digits) * (binary === undefined ? 1000 : 1024) ** ' KMGTPE'.indexOf(unit.toUpperCase() || ' ');
}

// A cordon and a drain pass; a node that is to boot is there for good.
function isPassing({ key, effect }: Fields): boolean {
  return effect === 'PreferNoSchedule' || String(key).startsWith('node.kubernetes.io/');
}

function tolerates({ key, operator, value, effect }: Fields, taint: Fields): boolean {
  if (effect !== undefined && effect !== '' && effect !== taint['effect']) return false;
  if (operator === 'Exists') return key === undefined || key === '' || key === taint['key'];
  return key === taint['key'] && (value ?? '') === (taint['value'] ?? '');
}
