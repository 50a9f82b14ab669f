import type { Cluster } from '../../kubernetes/client.ts';
import { clusterVersionReference } from '../../kubernetes/clusterVersion.ts';
import { fieldsOf, listOf, textOf } from '../../kubernetes/fields.ts';
import { restoreNodeChanges } from './pauses.ts';
import { listOwnSets, ownership, pinnedImageSetKind } from '../../preflight/pinnedImageSets.ts';
import { activeBundle, type Phase, type UpgradeBundle } from '../upgradeBundle.ts';

const pausing: readonly (Phase | undefined)[] = ['Loading', 'Loaded', 'Pinned', 'Upgrading'];

/**
 * Takes back what belongs to no UpgradeBundle that goes on: pauses, and pins of releases that the cluster does not run. So whatever a
 * controller left behind that was killed goes, and whatever an UpgradeBundle was that is deleted.
 */
export async function garbageCollect(cluster: Cluster, bundles: readonly UpgradeBundle[]): Promise<void> {
  const active = activeBundle(bundles);
  // One that only just begins to load has paused before it says so.
  const pauses = active && [...pausing, 'Verified'].includes(active.status?.phase);
  await restoreNodeChanges(cluster, pauses ? active.metadata.name : undefined);
  const [latest] = listOf(fieldsOf((await cluster.read(clusterVersionReference))?.['status'])['history']);
  // While the cluster changes its release, its nodes need both.
  if (latest?.['state'] !== 'Completed') return;
  const running = textOf(latest['image']);
  await removePins(cluster, ({ bundle, release }) => bundle !== active?.metadata.name && release !== running);
}

/** Deletes those of our PinnedImageSets that are meant. */
export async function removePins(
  cluster: Cluster,
  isMeant: (set: { bundle: string | undefined; release: string | undefined }) => boolean,
): Promise<void> {
  for (const { metadata } of await listOwnSets(cluster)) {
    const { name, annotations = {} } = metadata;
    const meant = isMeant({ bundle: annotations[ownership.bundle], release: annotations[ownership.release] });
    if (meant) await cluster.delete({ ...pinnedImageSetKind, metadata: { name } });
  }
}
