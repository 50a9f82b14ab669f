import { signatureLabel } from '../config/signatures.ts';
import type { KubernetesObject } from '../config/manifest.ts';
import { isPluginError } from '../errors.ts';
import { isOlder } from '../release/version.ts';
import type { Cluster } from './client.ts';
import type { ClusterVersion } from './clusterVersion.ts';
import type { ObjectReference } from './discovery.ts';

/** Why a manifest is of no use to this cluster; it can be applied nevertheless, without harm, where `applicable`. */
export interface Incompatibility {
  readonly warning: string;
  readonly applicable: boolean;
}

/** What a cluster is, as far as it can be told: `unknown` when we are not allowed to read its ClusterVersion, undefined for no OpenShift. */
export type ClusterVersionInfo = ClusterVersion | 'unknown' | undefined;

/** Reads what versions are compared with. */
export async function readClusterVersionInfo(cluster: Cluster): Promise<ClusterVersionInfo> {
  try {
    return await cluster.clusterVersion();
  } catch (error) {
    if (isPluginError(error, 'denied')) return 'unknown';
    throw error;
  }
}

/** Tells what a cluster cannot do with a manifest: its kind is not served, or nothing reads it yet. Undefined when all is well. */
export async function findIncompatibility(
  cluster: Cluster,
  age: ClusterVersionInfo,
  manifest: KubernetesObject,
): Promise<Incompatibility | undefined> {
  const name = formatObjectName(manifest);
  if (await cluster.findKind(manifest.apiVersion, manifest.kind)) {
    const warning = isSignature(manifest) ? warnOfSignature(name, age) : undefined;
    return warning === undefined ? undefined : { warning, applicable: true };
  }
  const where = `${cluster.name}${typeof age === 'object' ? ` (OpenShift ${age.version})` : ''}`;
  const advice = await adviceFor(cluster, manifest);
  const warning = `${name}: ${where} does not serve ${manifest.kind} (${manifest.apiVersion}). ${advice}`;
  return { warning, applicable: false };
}

/** How people name an object: `imagedigestmirrorset/release`. */
export function formatObjectName({ kind, metadata }: Pick<ObjectReference, 'kind' | 'metadata'>): string {
  return `${kind.toLowerCase()}/${metadata.name}`;
}

function isSignature({ kind, metadata }: KubernetesObject): boolean {
  return kind === 'ConfigMap' && metadata.labels?.[signatureLabel] !== undefined;
}

/** The first version whose operator reads signatures from ConfigMaps; 4.3 learnt it in a late patch (openshift/cluster-version-operator#279 and #340). */
const firstSignatureReader = '4.4.0-0';

function warnOfSignature(name: string, age: ClusterVersionInfo): string | undefined {
  if (age === 'unknown') return undefined;
  if (!age) return `${name}: this is no OpenShift cluster: nothing reads signatures of releases here.`;
  if (age.version === '' || !isOlder(age.version, firstSignatureReader)) return undefined;
  return (
    `${name}: the version operator of OpenShift ${age.version} may not read signatures from ConfigMaps, ` +
    'as those from 4.4 on do. An update to this release may need --force.'
  );
}

async function adviceFor(cluster: Cluster, { kind }: KubernetesObject): Promise<string> {
  const mirrors = {
    ImageContentSourcePolicy: 'operator.openshift.io/v1alpha1',
    ImageDigestMirrorSet: 'config.openshift.io/v1',
  };
  if (kind === 'ImageDigestMirrorSet' || kind === 'ImageTagMirrorSet') {
    const older = await cluster.findKind(mirrors.ImageContentSourcePolicy, 'ImageContentSourcePolicy');
    return `It came with OpenShift 4.13${older ? '; make an ImageContentSourcePolicy with --print-mirror-instructions=icsp' : ''}.`;
  }
  if (kind === 'ImageContentSourcePolicy') {
    const newer = await cluster.findKind(mirrors.ImageDigestMirrorSet, 'ImageDigestMirrorSet');
    return newer ? 'Use an ImageDigestMirrorSet: --print-mirror-instructions=idms.' : 'Is this an OpenShift cluster?';
  }
  if (kind === 'UpdateService') {
    return 'Install the OpenShift Update Service operator (cincinnati-operator) first, then apply this again.';
  }
  return 'Install the operator, or update to the OpenShift version, that brings it; then apply this again.';
}
