import type { ConfigManifest } from '#config/manifest';
import { PluginError } from '#errors';
import type { Cluster } from '../client.ts';
import { formatObjectName } from './compatibility.ts';
import type { StoredObject } from './storedObject.ts';

/** Reads all objects of a kind, as `Cluster.list` does; none if the cluster does not serve the kind. */
export async function listServed(
  cluster: Cluster,
  ...[apiVersion, kind, options]: Parameters<Cluster['list']>
): Promise<StoredObject[]> {
  return (await cluster.findKind(apiVersion, kind)) ? await cluster.list(apiVersion, kind, options) : [];
}

/**
 * Reads the objects of a kind whose metadata match, and only the metadata of the others; none if the cluster does not
 * serve the kind. Throws the errors of `Cluster.read`.
 */
export async function readMatching(
  cluster: Cluster,
  apiVersion: string,
  kind: string,
  matches: (object: StoredObject) => boolean,
): Promise<StoredObject[]> {
  if (!(await cluster.findKind(apiVersion, kind))) return [];
  const matchingObjects = (await cluster.listMetadata(apiVersion, kind)).filter(matches);
  const read = matchingObjects.map(({ metadata: { name, namespace } }) =>
    cluster.read({ apiVersion, kind, metadata: { name, namespace } }),
  );
  return (await Promise.all(read)).filter((each) => each !== undefined);
}

/** The kinds of release configuration by their groups; the core group has no name. */
const acceptedKinds: ReadonlyMap<string, readonly string[]> = new Map([
  ['', ['Namespace', 'ConfigMap']],
  ['config.openshift.io', ['ImageDigestMirrorSet', 'ImageTagMirrorSet']],
  ['operator.openshift.io', ['ImageContentSourcePolicy']],
  ['updateservice.operator.openshift.io', ['UpdateService']],
  ['upgrade-bundle.openshift.io', ['UpgradeBundle']],
]);

const mostNamed = 5;

/**
 * Checks that manifests are only release configuration. Content of a USB drive must not add a Secret, a role or a
 * ClusterVersion. Throws `unsupported` with the other objects.
 */
export function checkKinds(manifests: readonly ConfigManifest[], where: string): void {
  const others = manifests.filter(({ object: { apiVersion, kind } }) => {
    const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '';
    return !acceptedKinds.get(group)?.includes(kind);
  });
  if (others.length === 0) return;
  const named = others.slice(0, mostNamed).map(({ object, path }) => `${formatObjectName(object)} (${path})`);
  const more = others.length > mostNamed ? [`${others.length - mostNamed} more`] : [];
  const kinds = [...acceptedKinds.values()].flat();
  const message = `${where} has objects that are not configuration of a release, so nothing is applied: ${[...named, ...more].join(', ')}`;
  const hint =
    `Applied are ${kinds.join(', ')}. Find out where the rest came from; ` +
    'apply what belongs in the cluster with “oc apply -f FILE”, remove it from here, and run this again.';
  throw new PluginError('unsupported', message, { hint });
}
