import type { KubernetesObject, ConfigManifest } from '#config/manifest';
import { signatureLabel } from '#config/signatures';
import { isPluginError, PluginError } from '#errors';
import { isOlder } from '#release/version';
import type { Cluster } from '../client.ts';
import type { ClusterVersion } from '../version/clusterVersion.ts';
import type { ObjectReference } from './discovery.ts';
import type { StoredObject } from './storedObject.ts';

/**
 * The version of a cluster. `unknown` if the user may not read its ClusterVersion; undefined if it is not OpenShift.
 */
export type ClusterVersionInfo = ClusterVersion | 'unknown' | undefined;

/**
 * Reads the version of a cluster for checkCompatibility; `unknown` if the user may not read it. Throws the other
 * errors of the cluster.
 */
export async function readClusterVersionInfo(cluster: Cluster): Promise<ClusterVersionInfo> {
  try {
    return await cluster.clusterVersion();
  } catch (error) {
    if (isPluginError(error, 'denied')) return 'unknown';
    throw error;
  }
}

/**
 * Returns a warning if nothing in the cluster uses a manifest; else undefined. Throws `not-served` if the cluster does
 * not serve its kind.
 */
export async function checkCompatibility(
  cluster: Cluster,
  age: ClusterVersionInfo,
  manifest: KubernetesObject,
): Promise<string | undefined> {
  if (await cluster.findKind(manifest.apiVersion, manifest.kind)) {
    return isSignature(manifest) ? warnOfSignature(formatObjectName(manifest), age) : undefined;
  }
  const where = `${cluster.name}${typeof age === 'object' ? ` (OpenShift ${age.version})` : ''}`;
  throw new PluginError('not-served', `${where} does not serve ${manifest.kind} (${manifest.apiVersion})`, {
    hint: adviceFor(manifest),
  });
}

/** Formats an object for messages: `imagedigestmirrorset/release`. */
export function formatObjectName({ kind, metadata }: Pick<ObjectReference, 'kind' | 'metadata'>): string {
  return `${kind.toLowerCase()}/${metadata.name}`;
}

function isSignature({ kind, metadata }: KubernetesObject): boolean {
  return kind === 'ConfigMap' && metadata.labels?.[signatureLabel] !== undefined;
}

/**
 * The first version whose operator reads signatures from ConfigMaps. A late patch of 4.3 does too
 * (openshift/cluster-version-operator#279 and #340).
 */
const firstSignatureReader = '4.4.0-0';

function warnOfSignature(name: string, age: ClusterVersionInfo): string | undefined {
  if (age === 'unknown') return undefined;
  if (!age) return `${name}: this is not an OpenShift cluster: nothing reads release signatures here.`;
  if (age.version === '' || !isOlder(age.version, firstSignatureReader)) return undefined;
  return (
    `${name}: the version operator of OpenShift ${age.version} may not read signatures from ConfigMaps, ` +
    'as those from 4.4 on do. An update to this release may need to be forced.'
  );
}

function adviceFor({ kind }: KubernetesObject): string {
  if (/^Image.*(?:MirrorSet|SourcePolicy)$/.test(kind)) return 'Check that this is an OpenShift cluster.';
  if (kind === 'UpdateService') {
    return 'Install the OpenShift Update Service operator (cincinnati-operator) first, then apply this again.';
  }
  return 'Install the operator, or update to the OpenShift version, that brings it; then apply this again.';
}

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
  const message =
    `${where} has objects that are not configuration of a release, so nothing is ` +
    `applied: ${[...named, ...more].join(', ')}`;
  const hint =
    `Applied are ${kinds.join(', ')}. Find out where the rest came from; ` +
    'apply what belongs in the cluster with “oc apply -f FILE”, remove it from here, and run this again.';
  throw new PluginError('unsupported', message, { hint });
}
