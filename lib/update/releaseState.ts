import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '../fields.ts';
import { digestIn } from '../content/oci/reference.ts';
import { conditionsOf, type StoredObject } from '../cluster/storedObject.ts';

/** Returns whether ClusterVersion requests a release. */
export function isRequested(clusterVersion: StoredObject, release: string): boolean {
  const image = textOf(fieldsAt(clusterVersion, 'spec', 'desiredUpdate')['image']);
  return image !== undefined && digestIn(image) === digestIn(release);
}

/** Returns whether the version operator has installed a release, and no other release since. */
export function isInstalled(clusterVersion: StoredObject, release: string): boolean {
  return findLatest(clusterVersion, release)?.['state'] === 'Completed';
}

/** Returns whether the cluster has run a release since before a time, in ISO 8601, so that nothing is updated to it. */
export function hasRunSince(clusterVersion: StoredObject, release: string, time = ''): boolean {
  if (!isInstalled(clusterVersion, release)) return false;
  return Date.parse(textOf(findLatest(clusterVersion, release)?.['completionTime']) ?? '') < Date.parse(time);
}

/** Returns the time when the version operator began to install a release. Undefined if it has not, or has begun another. */
export function readStart(clusterVersion: StoredObject, release: string): Date | undefined {
  const start = Date.parse(textOf(findLatest(clusterVersion, release)?.['startedTime']) ?? '');
  return Number.isNaN(start) ? undefined : new Date(start);
}

/** Returns the share of its work that the version operator reports as done, in percent. Undefined if it reports none. */
export function readPercent(clusterVersion: StoredObject): number | undefined {
  const { message = '' } = conditionsOf(clusterVersion).get('Progressing') ?? {};
  const percent = /\((\d{1,3})% complete\)/.exec(message)?.[1];
  return percent === undefined ? undefined : Math.min(100, Number(percent));
}

/** Returns the latest entry in the history of ClusterVersion if it is of a release. */
function findLatest(clusterVersion: StoredObject, release: string): Fields | undefined {
  const [latest] = listOf(fieldsOf(clusterVersion['status'])['history']);
  return digestIn(textOf(latest?.['image']) ?? '') === digestIn(release) ? latest : undefined;
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
