import { applyManifests, type ApplyOptions, type ApplyOutcome } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import { formatObjectName, readClusterVersionInfo } from '#cluster/objects';
import { registryAuthorityPath } from '#config/certificateAuthority';
import type { ConfigManifest, WrittenAs } from '#config/manifest';
import { type MirrorSetKind, convertMirrorSet, mirrorSetKinds } from '#config/mirrorSets';
import type { Context } from '#context';
import { isPluginError, type PluginError, ignoring } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { isOlder, isSameMinor } from '#release/version';
import { checkRights } from './measure.ts';
import type { MirroringAccess } from './request.ts';

type ClusterAccess = Pick<MirroringAccess, 'openCluster'>;

/**
 * Checks that the cluster responds, and returns the kind of mirror set that it accepts. Throws the errors of
 * connecting.
 */
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

const imageConfig = { apiVersion: 'config.openshift.io/v1', kind: 'Image', metadata: { name: 'cluster' } } as const;

/** What is written of the image configuration (openshift/api, config/v1, ImageSpec). */
export type ImageConfig = WrittenAs<
  'config.openshift.io/v1',
  'Image',
  { readonly spec: { readonly additionalTrustedCA?: { readonly name: string } } }
>;

/** Returns whether a manifest is the image configuration that names the ConfigMap with the CAs of registries. */
export function isImageConfig({ object }: ConfigManifest): boolean {
  return object.kind === imageConfig.kind && object.apiVersion === imageConfig.apiVersion;
}

/**
 * Makes the cluster use the CAs of registries in the manifests. Adds them to the ConfigMap that its image configuration
 * names. If it names none, adds a manifest that names ours. Without CAs, returns the manifests unchanged.
 */
async function joinRegistryTrust(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
): Promise<readonly ConfigManifest[]> {
  const authority = manifests.find(({ path }) => path === registryAuthorityPath);
  if (!authority || !(await cluster.findKind(imageConfig.apiVersion, imageConfig.kind))) return manifests;
  const spec = fieldsOf((await cluster.read(imageConfig))?.['spec']);
  const name = textOf(fieldsOf(spec['additionalTrustedCA'])['name']) || authority.object.metadata.name;
  const { object } = authority;
  const joined = { ...authority, object: { ...object, metadata: { ...object.metadata, name } } };
  const trust: ImageConfig = { ...imageConfig, spec: { additionalTrustedCA: { name } } };
  return [
    ...manifests.map((manifest) => (manifest === authority ? joined : manifest)),
    { path: 'config/update-service/image.yaml', object: trust },
  ];
}

/**
 * The first patches that accept both kinds in one cluster, by the release notes of 4.13.27 and 4.14.3
 * (openshift-docs#72316, #72317). In earlier ones the API server and the machine config operator refuse the second kind
 * (openshift/kubernetes#1685, openshift/machine-config-operator#3898). 4.15.0 accepts both.
 */
const firstWithBoth = ['4.13.27', '4.14.3'];

/**
 * Returns the kind of mirror set that a cluster accepts; `preferred` if it accepts both. Older clusters serve only the
 * older kind, or refuse the newer kind if objects of the older exist. Logs the reason if it is not the preferred kind.
 */
async function chooseMirrorSetKind(
  cluster: Cluster,
  preferred: MirrorSetKind,
  context: Context,
): Promise<MirrorSetKind> {
  const other = preferred === 'idms' ? 'icsp' : 'idms';
  const [own, others] = [mirrorSetKinds[preferred], mirrorSetKinds[other]];
  if (!(await cluster.findKind(others.apiVersion, others.kind))) return preferred;
  const isServed = (await cluster.findKind(own.apiVersion, own.kind)) !== undefined;
  if (isServed && !(await hasObjects(cluster, other))) return preferred;
  const info = await readClusterVersionInfo(cluster);
  if (isServed && (typeof info !== 'object' || acceptsBoth(info.version))) return preferred;
  const where = `${cluster.name}${typeof info === 'object' ? ` (OpenShift ${info.version})` : ''}`;
  const why = isServed
    ? `has objects of ${others.kind}, and refuses both kinds together`
    : `does not serve ${own.kind}`;
  context.log('info', `${where} ${why}: ${others.kind} takes the place of ${own.kind}`);
  return other;
}

function acceptsBoth(version: string): boolean {
  return !firstWithBoth.some((first) => isSameMinor(version, first) && isOlder(version, first));
}

/** Converts mirror sets to the kind that the cluster accepts. */
export async function adaptMirrorSets(
  cluster: Cluster,
  manifests: readonly ConfigManifest[],
  context: Context,
): Promise<ConfigManifest[]> {
  const adapted: ConfigManifest[] = [];
  for (const manifest of manifests) {
    const kind = (['idms', 'icsp'] as const).find((each) => mirrorSetKinds[each].kind === manifest.object.kind);
    const accepted = kind && (await chooseMirrorSetKind(cluster, kind, context));
    const converted = accepted && accepted !== kind ? convertMirrorSet(manifest, accepted) : manifest;
    if (!converted) context.log('warn', `${formatObjectName(manifest.object)} has fields that the other kind lacks`);
    adapted.push(converted ?? manifest);
  }
  return adapted;
}

async function hasObjects(cluster: Cluster, kind: MirrorSetKind): Promise<boolean> {
  const names = kind === 'icsp' ? [mirrorSetKinds.icsp.kind] : [mirrorSetKinds.idms.kind, 'ImageTagMirrorSet'];
  for (const name of names) {
    const listed = cluster.list(mirrorSetKinds[kind].apiVersion, name, { pageSize: 1 });
    if ((await listed.catch(ignoring('denied', 'not-served')))?.length) return true;
  }
  return false;
}
