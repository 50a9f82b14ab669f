import type { Bundle, SignedBundle } from '#bundle/open';
import { pushBundle, type PushOptions, type PushResult } from '#bundle/push';
import type { ApplyOptions } from '#cluster/apply';
import type { ConfigManifest } from '#config/manifest';
import { mirrorSetManifest } from '#config/mirrorSets';
import { repositoryIn } from '#content/oci';
import type { ContentStore } from '#content/store';
import type { Context } from '#context';
import { applyToCluster, checkCluster, checkRightsInCluster, type Applied } from './mirror/clusterConfig.ts';
import { withResumeHint, type MirroringAccess } from './mirror/request.ts';

/** Options of pushing a bundle to a registry and of applying its configuration to a cluster. */
export interface PushAndApplyOptions extends PushOptions, Pick<ApplyOptions, 'overwrite'> {
  /** Let the API server check the objects of a dry run. */
  readonly dryRunMode?: ApplyOptions['dryRun'];
  /** Whether to apply the CatalogSources of the bundle too, which its release signature does not cover. */
  readonly catalogs: boolean;
}

/**
 * Pushes a bundle, then applies to the cluster its signatures and the mirror set that sends nodes to the destination.
 * Checks the cluster and the rights there first. Throws the errors of both checks and of `pushBundle`.
 */
export function pushAndApply(
  bundle: Bundle,
  signed: SignedBundle,
  destination: ContentStore,
  options: PushAndApplyOptions,
  access: Pick<MirroringAccess, 'openCluster'>,
  context: Context,
): Promise<PushResult & Applied> {
  return withResumeHint(async () => {
    const { catalogs, signatures } = signed.config;
    const kind = (await checkCluster(access, 'idms', context)) ?? 'idms';
    const sources = listPushedSources(bundle, destination.name);
    const manifests: ConfigManifest[] = [
      ...signatures,
      ...(sources.length > 0
        ? [
            mirrorSetManifest(
              kind,
              sources.map((source) => ({ source, mirrors: [destination.name] })),
            ),
          ]
        : []),
      ...(options.catalogs ? catalogs : []),
    ];
    await checkRightsInCluster(access, manifests, options, context);
    const result = await pushBundle(bundle, signed, destination, options, context);
    const applying = { overwrite: options.overwrite, dryRun: options.dryRunMode };
    return { ...result, ...(await applyToCluster(access, manifests, applying, context)) };
  });
}

// The repositories of all images of the bundle, extra images included.
function listPushedSources({ metadata }: Pick<Bundle, 'metadata'>, destination: string): string[] {
  const sources = new Set([metadata.release, ...metadata.images].map(repositoryIn));
  return [...sources].filter((source) => source !== destination);
}
