import type { ConfigManifest } from '../config/manifest.ts';
import { convertMirrorSet, mirrorSetKinds, type MirrorSetKind } from '../config/mirrorSets.ts';
import type { Context } from '../context.ts';
import { ignoring } from '../errors.ts';
import type { Cluster } from '../cluster/client.ts';
import { formatObjectName, readClusterVersionInfo } from '../cluster/compatibility.ts';
import { isOlder, isSameMinor } from '../release/version.ts';

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
export async function chooseMirrorSetKind(
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
