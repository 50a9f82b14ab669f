import { subjectOf, type Subject } from '#cluster/finding';
import { controllerOf } from '#cluster/objects';
import type { KubernetesObject } from '#config/manifest';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '#fields';
import { readContainers, type Container } from '../lint/container.ts';
import { normalizeImage } from '../lint/image.ts';

/** The kinds that create pods, by apiVersion and kind, and pods themselves. */
export const workloadKinds: readonly (readonly [apiVersion: string, kind: string])[] = [
  ['v1', 'Pod'],
  ['v1', 'ReplicationController'],
  ['apps/v1', 'Deployment'],
  ['apps/v1', 'DaemonSet'],
  ['apps/v1', 'StatefulSet'],
  ['apps/v1', 'ReplicaSet'],
  ['batch/v1', 'Job'],
  ['batch/v1', 'CronJob'],
  ['apps.openshift.io/v1', 'DeploymentConfig'],
];

/** A pod, or the pod template of a workload. */
export interface PodTemplate {
  readonly subject: Subject;
  /** The key of the owner, from keyOf. */
  readonly owner: string | undefined;
  readonly labels: Fields;
  readonly spec: Fields;
  readonly containers: readonly Container[];
  /** The images of all containers, in the form in which nodes list them. */
  readonly images: readonly string[];
  /** Whether the workload runs nothing at present: scaled to zero or suspended. */
  readonly idle: boolean;
  /** The node of a pod; undefined for a workload. */
  readonly node: string | undefined;
}

/** Reads the pod template of a workload; undefined for another kind, and for pods and jobs that have ended. */
export function readPodTemplate(object: KubernetesObject): PodTemplate | undefined {
  if (!workloadKinds.some(([, kind]) => kind === object.kind) || hasEnded(object)) return undefined;
  const { labels } = fieldsOf(object.metadata);
  const owner = controllerOf(object);
  const { replicas, suspend } = fieldsOf(object['spec']);
  const spec = podSpecOf(object);
  const containers = readContainers(spec);
  return {
    subject: subjectOf(object),
    owner: owner && keyOf({ kind: String(owner['kind']), name: String(owner['name']), ...namespaceOf(object) }),
    labels: fieldsOf(labels),
    spec,
    containers,
    images: containers.flatMap(({ image }) => (image === '' ? [] : [normalizeImage(image)])),
    idle: replicas === 0 || suspend === true,
    node: object.kind === 'Pod' ? textOf(spec['nodeName']) : undefined,
  };
}

/** Returns a key that is unique for an object within its API group: `kind/namespace/name`. */
export function keyOf({ kind, name, namespace = '' }: Subject): string {
  return `${kind}/${namespace}/${name}`;
}

function podSpecOf(object: KubernetesObject): Fields {
  const spec = fieldsOf(object['spec']);
  if (object.kind === 'Pod') return spec;
  const { template } = object.kind === 'CronJob' ? fieldsAt(spec, 'jobTemplate', 'spec') : spec;
  return fieldsAt(template, 'spec');
}

function hasEnded({ kind, status }: KubernetesObject): boolean {
  const { phase, conditions } = fieldsOf(status);
  if (kind === 'Pod') return phase === 'Succeeded' || phase === 'Failed';
  return (
    kind === 'Job' &&
    listOf(conditions).some(({ type, status: is }) => (type === 'Complete' || type === 'Failed') && is === 'True')
  );
}

function namespaceOf({ metadata: { namespace } }: KubernetesObject): { namespace?: string } {
  return namespace === undefined ? {} : { namespace };
}

/** Returns whether a namespace is one of OpenShift’s own. */
function isPlatformNamespace(namespace: string | undefined): boolean {
  return /^(?:openshift|kube)-/.test(namespace ?? '');
}

/**
 * Returns whether a workload or pod is in a namespace of OpenShift, and is not of a catalog: a cluster boots and
 * updates without catalogs.
 */
export function isPlatformPod({ metadata: { namespace, labels = {} } }: Pick<KubernetesObject, 'metadata'>): boolean {
  return isPlatformNamespace(namespace) && labels['olm.catalogSource'] === undefined;
}

/**
 * Returns whether an image is in the registry and organization of the release image, as all images of a release are.
 * Optional operators, such as those of storage and virtualization, have their images elsewhere, also in the namespaces
 * of OpenShift. If the release image is unknown, each image counts.
 */
export function isReleaseImage(image: string, release: string | undefined): boolean {
  const organization = /^(.+)\/[^/]+@/.exec(release ?? '')?.[1];
  return organization === undefined || image.startsWith(`${organization}/`);
}
