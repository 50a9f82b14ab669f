import type { BundleMetadata } from '../../bundle/metadata.ts';
import type { Cluster } from '../../cluster/client.ts';
import { clusterVersionReference } from '../../cluster/clusterVersion.ts';
import type { StoredObject } from '../../cluster/storedObject.ts';
import { listNames, type BundleCondition } from '../conditions.ts';
import { listAcceptedRisks } from './riskCheck.ts';

/**
 * Requests an update from the version operator, without force, and accepts the known risks with some names, which are
 * those of `spec.acceptRisks`. Returns the condition about them. A merge patch keeps other fields, so this one removes a
 * forced update and another architecture.
 */
export async function requestUpdate(
  cluster: Cluster,
  clusterVersion: StoredObject,
  { version, release }: Pick<BundleMetadata, 'version' | 'release'>,
  names: readonly string[],
): Promise<BundleCondition[]> {
  const before = listAcceptedRisks(clusterVersion);
  const added = names.filter((name) => !before.includes(name));
  const acceptRisks = [...before, ...added].map((name) => ({ name }));
  const desiredUpdate = {
    ...{ image: release, version, force: false, architecture: null },
    ...(added.length > 0 && { acceptRisks }),
  };
  // Change only the version of the object that was found ready.
  const { resourceVersion } = clusterVersion.metadata;
  const patch = { metadata: { resourceVersion }, spec: { desiredUpdate } };
  const accepted = listAcceptedRisks(await cluster.patch(clusterVersionReference, patch));
  if (names.length === 0) return [];
  const isKept = names.every((name) => accepted.includes(name));
  return [describeAccepted(version, names, isKept)];
}

/** `isKept`: whether the cluster has the field, which API servers drop without the gate ClusterUpdateAcceptRisks. */
function describeAccepted(version: string, names: readonly string[], isKept: boolean): BundleCondition {
  const how = isKept
    ? 'written to acceptRisks of ClusterVersion'
    : 'this cluster has no acceptRisks, so the update is requested by its image alone';
  return {
    ...{ type: 'RisksAccepted', status: 'True', reason: isKept ? 'AcceptRisks' : 'ExplicitImage' },
    message: `the risks that spec.acceptRisks accepts for the update to ${version}: ${listNames(names)}; ${how}`,
  };
}
