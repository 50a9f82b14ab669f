import type { ConfigManifest } from '../config/manifest.ts';
import type { MirrorSetKind } from '../config/mirrorSets.ts';
import type { Context } from '../context.ts';
import { isPluginError, type PluginError } from '../errors.ts';
import { applyManifests, type ApplyOptions, type ApplyOutcome } from '../cluster/apply.ts';
import type { Cluster } from '../cluster/client.ts';
import { chooseMirrorSetKind } from './mirrorSetKind.ts';
import { checkRights } from './places.ts';
import { joinRegistryTrust } from './registryTrust.ts';
import type { MirroringAccess } from './request.ts';

type ClusterAccess = Pick<MirroringAccess, 'openCluster'>;

/** Checks that the cluster responds, and returns the kind of mirror set that it accepts. Throws the errors of connecting. */
export function checkCluster(
  access: ClusterAccess,
  preferred: MirrorSetKind | undefined,
  context: Context,
): Promise<MirrorSetKind | undefined> {
  return withCluster(access, async (cluster) => {
    await cluster.version();
    return preferred && chooseMirrorSetKind(cluster, preferred, context);
  });
}

/** Throws `denied` if the user may not apply the manifests to the cluster. */
export function checkRightsInCluster(
  access: ClusterAccess,
  manifests: readonly ConfigManifest[],
  options: Pick<ApplyOptions, 'overwrite'>,
  context: Context,
): Promise<void> {
  return withCluster(access, async (cluster) =>
    checkRights(cluster, await joinRegistryTrust(cluster, manifests), options, context),
  );
}

/** The objects that were applied after a copy. */
export interface Applied {
  readonly applied: readonly ApplyOutcome[];
  /** The error that prevented applying them. */
  readonly failure?: PluginError;
}

/**
 * Applies the manifests to the cluster after a copy. Returns the error of the cluster, because the copy may have taken
 * hours and the caller reports its result. Throws `interrupted`.
 */
export async function applyToCluster(
  access: ClusterAccess,
  manifests: readonly ConfigManifest[],
  options: ApplyOptions,
  context: Context,
): Promise<Applied> {
  if (manifests.length === 0) return { applied: [] };
  try {
    const applied = await withCluster(access, async (cluster) =>
      applyManifests(cluster, await joinRegistryTrust(cluster, manifests), options, context),
    );
    return { applied };
  } catch (failure) {
    if (!isPluginError(failure) || failure.code === 'interrupted') throw failure;
    return { applied: [], failure };
  }
}

async function withCluster<R>({ openCluster }: ClusterAccess, use: (cluster: Cluster) => Promise<R>): Promise<R> {
  using cluster = await openCluster();
  return await use(cluster);
}
