import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding } from '#cluster/finding';
import { type StoredObject, listServed } from '#cluster/objects';
import { readClusterVersion, blocks } from '#cluster/version';
import { ignoreFailure, ignoring, isPluginError } from '#errors';
import { fieldsAt, fieldsOf, textOf } from '#fields';
import {
  formatOSImageStream,
  installedVersionOf,
  noStreamsAdvice,
  needsStreams,
  type OSImageStreams,
} from '#release/payload';
import { isSameMinor } from '#release/version';
import type { ImageSupply } from './versionCheck.ts';

/** What decides whether the operating system streams of a release can be described in a cluster. */
export interface StreamSupply extends Pick<ImageSupply, 'mirrored' | 'featureSet'> {
  readonly clusterVersion: StoredObject;
  /** The OSImageStream `cluster`, if there is one. */
  readonly existing: StoredObject | undefined;
}

const advice = {
  described:
    'Nothing, if the agents update the cluster: their controller writes OSImageStream. If you update by hand, apply ' +
    'it while the update runs: oc adm-upgrade-bundle streams.',
  unused: 'Nothing: no node needs the images of the other streams.',
  preview:
    'Install mirrors on the control plane (oc adm-upgrade-bundle install), which serve the bundle before the update ' +
    'begins. Only from 4.23 on can the controller of the agents describe the streams.',
};

const previews = ['TechPreviewNoUpgrade', 'DevPreviewNoUpgrade'];

/**
 * Finds why the operating system streams of a release cannot be described in a cluster without mirrors: a blocker,
 * because machine-config-controller would wait for a registry. `pools`: names the streams that their nodes use.
 */
export function checkStreams(
  streams: OSImageStreams | undefined,
  release: string,
  { mirrored, featureSet, clusterVersion, existing }: StreamSupply,
  pools: readonly StoredObject[] = [],
): Finding[] {
  if (!needsStreams(streams, featureSet)) return [];
  const subject = subjectOf(clusterVersion);
  const { version, availableStreams } = streams;
  const names = availableStreams.map(({ name }) => name).join(', ');
  try {
    const cluster = { installedVersion: installedVersionOf(clusterVersion), existing };
    const { status } = formatOSImageStream(streams, release, cluster);
    const message = `${version} needs its operating system streams described in the cluster: ${names}`;
    const needs: Finding = { check: 'streams', severity: 'info', subject, message, advice: advice.described };
    return [...(mirrored ? [] : [needs]), ...listUses(status.defaultStream, availableStreams.length, pools)];
  } catch (error) {
    if (!isPluginError(error, 'not-ready')) throw error;
    const { message, hint = noStreamsAdvice } = error;
    return mirrored ? [] : [{ check: 'streams', ...blocks('streams'), subject, message, advice: hint }];
  }
}

/**
 * Finds that machine-config-operator of 4.22 would wait for a registry. In previews it reads the images of operating
 * systems itself, and renders nothing before (openshift machine-config-operator 9027c94c,
 * pkg/operator/osimagestream_ocp.go). `mirrored`: whether the cluster has any mirror of the release, also on the
 * control plane.
 */
export function checkPreviewStreams(
  version: string,
  { mirrored, featureSet = '', clusterVersion }: Omit<StreamSupply, 'existing'>,
): Finding[] {
  const isAffected = isSameMinor(version, '4.22.0') && previews.includes(featureSet);
  if (mirrored || !isAffected || readClusterVersion(clusterVersion).version === version) return [];
  const message =
    `machine-config-operator of ${version} with ${featureSet} reads operating systems from a registry, and the ` +
    'cluster has no mirror';
  const subject = subjectOf(clusterVersion);
  return [{ check: 'streams', ...blocks('streams'), subject, message, advice: advice.preview }];
}

/** Names the stream of each pool, if a release has several. */
function listUses(defaultStream: string, count: number, pools: readonly StoredObject[]): Finding[] {
  if (count < 2) return [];
  return pools.map((pool) => {
    const message = `its nodes will use the stream ${streamOf(pool, pools) ?? defaultStream}`;
    return { check: 'streams', severity: 'info', subject: subjectOf(pool), message, advice: advice.unused };
  });
}

/**
 * Returns the stream that a pool names; undefined for the default one. Custom pools take the stream of the workers
 * (GetEffectiveOSImageStreamName of machine-config-operator).
 */
export function streamOf(pool: StoredObject, pools: readonly StoredObject[]): string | undefined {
  const nameOf = (each: StoredObject | undefined): string | undefined =>
    textOf(fieldsAt(fieldsOf(each?.['spec']), 'osImageStream')['name']);
  const isStandard = ['master', 'worker', 'arbiter'].includes(pool.metadata.name);
  return nameOf(pool) ?? (isStandard ? undefined : nameOf(pools.find(({ metadata }) => metadata.name === 'worker')));
}

/** A machine-config-controller that leads and does nothing, because it waits for its OSImageStream. */
export interface WaitingController {
  readonly pod: string;
  /** Since when it leads: `2026-11-25T10:00:00Z`. */
  readonly since: string;
  /** The commit that it compares, by the first line of its log; undefined if the log does not have it any more. */
  readonly commit: string | undefined;
  /** The last line of its log. */
  readonly lastLine: string;
}

/** Lists the pods of machine-config-controller. */
export const controllerPods = {
  apiVersion: 'v1',
  kind: 'Pod',
  namespace: 'openshift-machine-config-operator',
  labelSelector: 'k8s-app=machine-config-controller',
} as const;

const { namespace } = controllerPods;
const name = 'machine-config-controller';
const lease = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } };
const config = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'ControllerConfig', metadata: { name } };

/** How long a controller may lead before it counts as waiting, in milliseconds. One try of it lasts 5 minutes. */
const patience = 10 * 60_000;

/**
 * Finds the one of some pods of machine-config-controller that has led for 10 minutes, and has not rendered the present
 * ControllerConfig. It starts its other controllers only after its first OSImageStream (openshift
 * machine-config-operator d20efd9b9, cmd/machine-config-controller/start.go). Throws the errors of the cluster.
 */
export async function findWaitingController(
  cluster: Cluster,
  pods: readonly StoredObject[],
  now = Date.now(),
): Promise<WaitingController | undefined> {
  if (pods.length === 0) return undefined;
  const { holderIdentity, acquireTime } = fieldsOf((await cluster.read(lease))?.['spec']);
  // The identity is the host name of the pod, and a UUID.
  const holder = textOf(holderIdentity)?.split('_')[0];
  const leader = pods.find((pod) => pod.metadata.name === holder);
  const since = Date.parse(textOf(acquireTime) ?? '');
  if (!leader || !(now - since >= patience)) return undefined;
  const rendered = await cluster.read(config);
  const { generation } = fieldsOf(rendered?.metadata);
  if (fieldsOf(rendered?.['status'])['observedGeneration'] === generation) return undefined;
  const pod = leader.metadata.name;
  // The kubelet of the pod may be unreachable. The wait is worth reporting without the log.
  const read = async (limit: { tailLines?: number; limitBytes?: number }): Promise<string> =>
    (await cluster.readLog({ name: pod, namespace }, { container: name, ...limit }).catch(ignoreFailure)) ?? '';
  const [head, tail] = [await read({ limitBytes: 4096 }), await read({ tailLines: 1, limitBytes: 4096 })];
  return {
    pod,
    since: new Date(since).toISOString().replace(/\.\d+/, ''),
    commit: /^.*\] Version: \S* \(([0-9a-f]{7,64})\)$/m.exec(head)?.[1],
    lastLine: tail.trim().slice(0, 500),
  };
}

/**
 * Finds that machine-config-controller waits for its operating system streams and renders nothing, if the cluster has
 * them (4.23 and later). Finds nothing without the right to read its pods and its Lease.
 */
export async function checkWaitingController(cluster: Cluster): Promise<Finding[]> {
  if (!(await cluster.findKind('machineconfiguration.openshift.io/v1', 'OSImageStream'))) return [];
  const find = async (): Promise<WaitingController | undefined> =>
    findWaitingController(
      cluster,
      await listServed(cluster, controllerPods.apiVersion, controllerPods.kind, controllerPods),
    );
  const waiting = await find().catch(ignoring('denied', 'not-found'));
  if (!waiting) return [];
  const { pod, since, lastLine } = waiting;
  const says = lastLine === '' ? '' : `; its log ends with “${lastLine}”`;
  const subject = { kind: 'Pod', name: pod, namespace };
  const message = `has waited since ${since} for its operating system streams${says}`;
  return [{ check: 'streams', ...blocks('streams'), subject, message, advice: waitAdvice }];
}

const waitAdvice =
  'Describe the streams from the bundle of the running release (oc adm-upgrade-bundle streams), or let it reach a ' +
  'registry or mirror with that release.';
