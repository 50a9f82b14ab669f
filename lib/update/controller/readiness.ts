import type { Cluster } from '#cluster/client';
import type { Finding } from '#cluster/finding';
import { type StoredObject, listServed } from '#cluster/objects';
import { readClusterVersion } from '#cluster/version';
import { sumSizes } from '#content/oci';
import { fieldsOf } from '#fields';
import {
  isPoolNode,
  readNode,
  checkNode,
  losesOnlyOwnPins,
  pinnedImageSetKind,
  type NodeDisks,
} from '#readiness/nodes';
import {
  checkDrains,
  checkEtcdMembers,
  checkOperators,
  checkPools,
  featureSetOf,
  hasMirrors,
  isOwnMirrorSet,
  keepsBundles,
  surveyedKinds,
  type DigestMirrors,
  checkPreviewStreams,
  checkStreams,
  checkPath,
  checkState,
  checkWebhooks,
  dependsOnPods,
  listServiceNamespaces,
} from '#readiness/preflight';
import { isSameMinor, parseArchitecture } from '#release/version';
import type { BundleFacts } from '../record/bundleFacts.ts';
import type { NodeProgress } from '../record/upgradeBundle.ts';
import type { LoadState } from './loadState.ts';
import { isPaused } from './pauses.ts';

/** The present objects of a cluster that decide about an update. */
export interface Site {
  readonly clusterVersion: StoredObject;
  readonly operators: readonly StoredObject[];
  readonly pools: readonly StoredObject[];
  readonly poolNodes: readonly StoredObject[];
  readonly pinnedSets: readonly StoredObject[];
  readonly nodes: readonly StoredObject[];
  readonly osImageStreams: readonly StoredObject[];
  /** The pods of machine-config-controller. */
  readonly controllerPods: readonly StoredObject[];
}

/**
 * Finds obstacles to an update with a bundle, by the checks of preflight: version path, operators, pools, nodes and
 * their architecture, budgets, etcd and webhooks. Also checks the free space of nodes if `load` is given, which is
 * before the nodes load.
 */
export async function findObstacles(
  cluster: Cluster,
  site: Site,
  { metadata, bytes, pinsIn, streams }: Pick<BundleFacts, 'metadata' | 'bytes' | 'pinsIn' | 'streams'>,
  load: Pick<LoadState, 'nodes' | 'base'> | undefined,
): Promise<Finding[]> {
  const { version, previous, images, blobs, base } = metadata;
  const target = { version, previous, pinsIn, arch: parseArchitecture(metadata.arch) };
  const isMinor = !isSameMinor(readClusterVersion(site.clusterVersion).version, version);
  const [mirrors, featureSet, pinning] = await Promise.all([
    readMirrors(cluster),
    readFeatureSet(cluster),
    cluster.findKind(pinnedImageSetKind.apiVersion, pinnedImageSetKind.kind),
  ]);
  const reported = load?.nodes ?? [];
  const knowledge = {
    imageLimits: [],
    pinned: new Map<string, Set<string>>(),
    disks: new Map(reported.flatMap((node) => disksOf(node) ?? [])),
    databases: new Map(reported.flatMap(({ name, database }) => (database === undefined ? [] : [[name, database]]))),
    retains: mirrors.digestMirrors.some(keepsBundles),
  };
  const needed = load?.base.isStored ? blobs : [...blobs, ...(base?.blobs ?? [])];
  // A node that begins the first of several updates needs the space for all.
  const needs = { ...target, images, size: bytes ?? sumSizes(needed) };
  const isMirrored = mirrors.digestMirrors.some(isOwnMirrorSet);
  const supply = { mirrored: hasMirrors({ images }, mirrors), pinsImages: pinning !== undefined, featureSet };
  const { clusterVersion } = site;
  const existing = site.osImageStreams.find(({ metadata: { name } }) => name === 'cluster');
  const nodes = site.nodes.map(readNode).filter(isPoolNode);
  const findings = [
    ...checkPath(site.clusterVersion, target, supply),
    ...checkStreams(streams, metadata.release, { ...supply, clusterVersion, existing }),
    ...checkPreviewStreams(version, { ...supply, clusterVersion, mirrored: supply.mirrored || isMirrored }),
    ...checkState(site.clusterVersion, target),
    ...checkOperators(site.operators, isMinor),
    ...checkPools(site.pools, isPaused, losesOnlyOwnPins(site)),
    ...(await findHazards(cluster)),
    ...nodes.flatMap((node) => checkNode(node, [], [], load && needs, knowledge)),
  ];
  return findings.filter(({ severity }) => severity === 'blocker');
}

/**
 * Finds what would stop an update half-way, by the checks of preflight: budgets that block drains, members of etcd, and
 * webhooks that do not answer. Reads pods only in namespaces whose budgets may block. Throws the errors of the cluster.
 */
async function findHazards(cluster: Cluster): Promise<Finding[]> {
  const listIn = async (kind: readonly [string, string], namespaces: Iterable<string>): Promise<StoredObject[]> =>
    (
      await Promise.all([...new Set(namespaces)].map((namespace) => listServed(cluster, ...kind, { namespace })))
    ).flat();
  const [budgets, infrastructures, etcds, validatingWebhooks, mutatingWebhooks] = await Promise.all([
    listServed(cluster, ...surveyedKinds.budgets),
    listServed(cluster, ...surveyedKinds.infrastructures),
    listServed(cluster, ...surveyedKinds.etcds),
    listServed(cluster, ...surveyedKinds.validatingWebhooks),
    listServed(cluster, ...surveyedKinds.mutatingWebhooks),
  ]);
  const services = listServiceNamespaces([...validatingWebhooks, ...mutatingWebhooks]);
  const blocking = listBlocking(budgets);
  const [guarded, machines, endpointSlices, namespaces] = await Promise.all([
    listIn(['v1', 'Pod'], blocking),
    listIn(surveyedKinds.machines, blocking),
    listIn(surveyedKinds.endpointSlices, services),
    services.length > 0 ? listServed(cluster, ...surveyedKinds.namespaces) : [],
  ]);
  const webhooks = { validatingWebhooks, mutatingWebhooks, endpointSlices, namespaces };
  // All pods are read only if a webhook that does not answer chooses among them.
  const chosen = dependsOnPods(webhooks) ? await cluster.list('v1', 'Pod') : [];
  return [
    ...checkDrains({ budgets, workloads: guarded, infrastructures, machines }),
    ...checkEtcdMembers(etcds, infrastructures),
    ...checkWebhooks({ ...webhooks, workloads: chosen }),
  ];
}

/** Returns the file systems of a node by its report; undefined if the report does not state them. */
function disksOf({ name, free, size, system }: NodeProgress): [[string, NodeDisks]] | undefined {
  return free === undefined ? undefined : [[name, { images: { free, size }, ...(system && { system }) }]];
}

/** Returns the namespaces with a budget that allows no eviction now, or with several budgets. */
function listBlocking(budgets: readonly StoredObject[]): string[] {
  const namespaces = budgets.map(({ metadata: { namespace = '' } }) => namespace);
  return budgets.flatMap(({ metadata: { namespace = '' }, status }) => {
    const isShared = namespaces.filter((each) => each === namespace).length > 1;
    return isShared || Number(fieldsOf(status)['disruptionsAllowed'] ?? 0) === 0 ? [namespace] : [];
  });
}

/** Reads the feature set of the cluster; undefined for the default one. Throws the errors of the cluster. */
export async function readFeatureSet(cluster: Cluster): Promise<string | undefined> {
  return featureSetOf(await listServed(cluster, ...surveyedKinds.featureGates));
}

/**
 * Returns whether a cluster has mirrors of images by digest, other than ours on the control plane. Throws the errors of
 * the cluster.
 */
export async function hasMirrorsOf(cluster: Cluster, images: readonly string[]): Promise<boolean> {
  return hasMirrors({ images }, await readMirrors(cluster));
}

async function readMirrors(cluster: Cluster): Promise<DigestMirrors> {
  const [digestMirrors, contentPolicies] = await Promise.all([
    listServed(cluster, ...surveyedKinds.digestMirrors),
    listServed(cluster, ...surveyedKinds.contentPolicies),
  ]);
  return { digestMirrors, contentPolicies };
}
