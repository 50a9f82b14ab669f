import { isSameMinor, parseArchitecture } from '../../release/version.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import { readClusterVersion } from '../../kubernetes/clusterVersion.ts';
import { formatSubject, type Finding } from '../../kubernetes/finding.ts';
import { readNode } from '../../preflight/node.ts';
import { checkNode } from '../../preflight/nodeCheck.ts';
import { checkOperators, checkPools } from '../../preflight/operatorCheck.ts';
import { hasMirrors } from '../../preflight/preflight.ts';
import { pinnedImageSetKind } from '../../preflight/pinnedImageSets.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import type { LoadState } from './loadState.ts';
import { featureSetOf } from '../../preflight/survey.ts';
import { checkPath, checkState } from '../../preflight/versionCheck.ts';
import { sumSizes } from '../../oci/descriptor.ts';

/** The present objects of a cluster that decide about an update. */
export interface Site {
  readonly clusterVersion: StoredObject;
  readonly operators: readonly StoredObject[];
  readonly pools: readonly StoredObject[];
  readonly poolNodes: readonly StoredObject[];
  readonly pinnedSets: readonly StoredObject[];
  readonly nodes: readonly StoredObject[];
}

/**
 * Finds obstacles to an update with a bundle, by the checks of preflight: version path, operators, pools, nodes and
 * their architecture. Also checks the free space of nodes if `load` is given, which is before the nodes load.
 */
export async function findObstacles(
  cluster: Cluster,
  site: Site,
  { metadata, bytes, pinsIn }: Pick<BundleFacts, 'metadata' | 'bytes' | 'pinsIn'>,
  load: Pick<LoadState, 'nodes' | 'base'> | undefined,
): Promise<Finding[]> {
  const { version, previous, images, blobs, base } = metadata;
  const target = { version, previous, pinsIn, arch: parseArchitecture(metadata.arch) };
  const isMinor = !isSameMinor(readClusterVersion(site.clusterVersion).version, version);
  const free = (load?.nodes ?? []).flatMap((each) =>
    each.free === undefined ? [] : [[each.name, each.free] as const],
  );
  const knowledge = { imageLimits: [], pinned: new Map<string, Set<string>>(), free: new Map(free) };
  const needed = load?.base.isStored ? blobs : [...blobs, ...(base?.blobs ?? [])];
  // A node that begins the first of several updates needs the space for all.
  const needs = { ...target, images, size: bytes ?? sumSizes(needed) };
  const findings = [
    ...checkPath(site.clusterVersion, target, await readSupply(cluster, images)),
    ...checkState(site.clusterVersion, target),
    ...checkOperators(site.operators, isMinor),
    ...checkPools(site.pools),
    ...site.nodes.flatMap((node) => checkNode(readNode(node), [], [], load && needs, knowledge)),
  ];
  return findings.filter(({ severity }) => severity === 'blocker');
}

/** Returns one line about an obstacle: `clusterversion/version runs 4.19.3, from which …`. */
export function describeObstacle({ subject, message }: Finding): string {
  return `${formatSubject(subject)} ${message}`;
}

/** Reads the feature set of the cluster; undefined for the default one. Throws the errors of the cluster. */
export async function readFeatureSet(cluster: Cluster): Promise<string | undefined> {
  const kind = ['config.openshift.io/v1', 'FeatureGate'] as const;
  return featureSetOf((await cluster.findKind(...kind)) ? await cluster.list(...kind) : []);
}

async function readSupply(cluster: Cluster, images: readonly string[]) {
  const list = async (apiVersion: string, kind: string): Promise<StoredObject[]> =>
    (await cluster.findKind(apiVersion, kind)) ? await cluster.list(apiVersion, kind) : [];
  const config = 'config.openshift.io/v1';
  const [digestMirrors, contentPolicies, featureSet, pinning] = await Promise.all([
    list(config, 'ImageDigestMirrorSet'),
    list('operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy'),
    readFeatureSet(cluster),
    cluster.findKind(pinnedImageSetKind.apiVersion, pinnedImageSetKind.kind),
  ]);
  return {
    mirrored: hasMirrors({ images }, { digestMirrors, contentPolicies }),
    pinsImages: pinning !== undefined,
    featureSet,
  };
}
