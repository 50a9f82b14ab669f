import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { clusterVersionReference, listNeededReleases } from '#cluster/version';
import { digestIn } from '#content/oci';
import { fieldsAt, textOf } from '#fields';
import { listOwnSets, ownership, pinnedImageSetKind } from '#readiness/nodes';
import { activeBundle, phaseOf, type Phase, type UpgradeBundle } from '../record/upgradeBundle.ts';
import { keepsPoolsPaused } from './controlPlaneOnly.ts';
import { restoreNodeChanges, restorePools } from './pauses.ts';

const pausing: readonly (Phase | undefined)[] = ['Loading', 'Loaded', 'Pinned', 'Upgrading'];
/** The phases in which the next update has begun and the cluster still runs the release before it. */
const preparing: readonly Phase[] = ['Loading', 'Loaded', 'Pinned', 'Held'];

/**
 * Restores pauses that belong to no active UpgradeBundle, and removes pins of releases that the cluster does not need.
 * A killed controller or a deleted UpgradeBundle may have left both.
 */
export async function garbageCollect(cluster: Cluster, bundles: readonly UpgradeBundle[]): Promise<void> {
  const active = activeBundle(bundles);
  // The controller pauses before it writes the phase Loading.
  const pauses = active && [...pausing, 'Verified'].includes(active.status?.phase);
  await restoreNodeChanges(cluster, pauses ? active.metadata.name : undefined);
  const kept = pauses || (active && keepsPoolsPaused(active)) ? active.metadata.name : undefined;
  await restorePools(cluster, (_, owner) => owner !== kept);
  const version = await cluster.read(clusterVersionReference);
  const needed = version && listPinnedReleases(version, active !== undefined && preparing.includes(phaseOf(active)));
  if (!needed) return;
  await removePins(cluster, ({ bundle, release }) => {
    const isPrepared = bundle === active?.metadata.name && release === active?.status?.release;
    return !isPrepared && !needed(release);
  });
}

/**
 * Returns a test for releases that must stay pinned: the running one, the requested one and, until the next update
 * begins, the previous one for a rollback. Undefined while the version operator installs a release.
 */
export function listPinnedReleases(
  version: StoredObject,
  begins: boolean,
): ((release: string | undefined) => boolean) | undefined {
  const needed = listNeededReleases(version);
  const requested = textOf(fieldsAt(version, 'spec', 'desiredUpdate')['image']);
  if (!needed) return undefined;
  const kept = [...(begins ? needed.slice(0, 1) : needed), ...(requested === undefined ? [] : [requested])];
  // A mirror of a release has the same digest.
  const digests = new Set(kept.map(digestIn));
  return (release) => release !== undefined && digests.has(digestIn(release));
}

/** Deletes our PinnedImageSets that match a condition. */
export async function removePins(
  cluster: Cluster,
  isSelected: (set: { bundle: string | undefined; release: string | undefined }) => boolean,
): Promise<void> {
  for (const { metadata } of await listOwnSets(cluster)) {
    const { name, annotations = {} } = metadata;
    const meant = isSelected({ bundle: annotations[ownership.bundle], release: annotations[ownership.release] });
    if (meant) await cluster.delete({ ...pinnedImageSetKind, metadata: { name } });
  }
}
