import { fieldsAt, listOf, textOf } from '../../fields.ts';
import type { BundleMetadata } from '../../bundle/metadata.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { clusterVersionReference } from '../../kubernetes/clusterVersion.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import { listNames, type BundleCondition } from '../conditions.ts';

/**
 * Requests an update from the version operator, without force, and accepts the known risks that the bundle names.
 * Returns the condition about them. A merge patch keeps other fields, so this one removes a forced update and another
 * architecture.
 */
export async function requestUpdate(
  cluster: Cluster,
  clusterVersion: StoredObject,
  { version, release, risks = [] }: Pick<BundleMetadata, 'version' | 'release' | 'risks'>,
): Promise<BundleCondition[]> {
  const names = [...new Set(risks.map(({ name }) => name))];
  const before = listAccepted(clusterVersion);
  const added = names.filter((name) => !before.includes(name));
  const acceptRisks = [...before, ...added].map((name) => ({ name }));
  const desiredUpdate = {
    ...{ image: release, version, force: false, architecture: null },
    ...(added.length > 0 && { acceptRisks }),
  };
  // Change only the version of the object that was found ready.
  const { resourceVersion } = clusterVersion.metadata;
  const patch = { metadata: { resourceVersion }, spec: { desiredUpdate } };
  const accepted = listAccepted(await cluster.patch(clusterVersionReference, patch));
  if (names.length === 0) return [];
  const isKept = names.every((name) => accepted.includes(name));
  return [describeAccepted(version, names, isKept)];
}

function listAccepted(clusterVersion: StoredObject): string[] {
  const { acceptRisks } = fieldsAt(clusterVersion, 'spec', 'desiredUpdate');
  return listOf(acceptRisks).flatMap(({ name }) => textOf(name) ?? []);
}

/** `isKept`: whether the cluster has the field, which API servers drop without the gate ClusterUpdateAcceptRisks. */
function describeAccepted(version: string, names: readonly string[], isKept: boolean): BundleCondition {
  const how = isKept
    ? 'written to acceptRisks of ClusterVersion'
    : 'this cluster has no acceptRisks, so the update is requested by its image alone';
  return {
    ...{ type: 'RisksAccepted', status: 'True', reason: isKept ? 'AcceptRisks' : 'ExplicitImage' },
    message: `the risks of the update to ${version} that the bundle accepts: ${listNames(names)}; ${how}`,
  };
}
