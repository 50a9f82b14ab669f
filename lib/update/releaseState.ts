import { digestIn } from '../oci/reference.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import { conditionsOf, fieldsAt, fieldsOf, listOf, textOf } from '../kubernetes/fields.ts';

/** Returns whether ClusterVersion requests a release. */
export function isRequested(clusterVersion: StoredObject, release: string): boolean {
  const image = textOf(fieldsAt(clusterVersion, 'spec', 'desiredUpdate')['image']);
  return image !== undefined && digestIn(image) === digestIn(release);
}

/** Returns whether the version operator has installed a release, and no other release since. */
export function isInstalled(clusterVersion: StoredObject, release: string): boolean {
  const [latest] = listOf(fieldsOf(clusterVersion['status'])['history']);
  return latest?.['state'] === 'Completed' && digestIn(textOf(latest['image']) ?? '') === digestIn(release);
}

/**
 * Returns whether the version operator refuses the requested release (ReleaseAccepted=False). The cluster is then
 * unchanged.
 */
export function isRefused(clusterVersion: StoredObject, release: string): boolean {
  const history = listOf(fieldsOf(clusterVersion['status'])['history']);
  const hasBegun = history.some(
    ({ image, state }) => state === 'Partial' && digestIn(textOf(image) ?? '') === digestIn(release),
  );
  const accepted = conditionsOf(clusterVersion).get('ReleaseAccepted');
  return isRequested(clusterVersion, release) && !hasBegun && accepted?.status === 'False';
}
