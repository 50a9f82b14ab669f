import { isIP } from 'node:net';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '../../fields.ts';
import type { KubernetesObject } from '../../config/manifest.ts';
import { PluginError } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { listServed } from '../../cluster/servedObjects.ts';
import { readNode } from '../../readiness/preflight/node.ts';
import { isControlPlane } from '../../readiness/preflight/nodeCheck.ts';
import { poolRoles } from '../../readiness/preflight/pinnedImageSets.ts';
import { ownMirrorSet } from '../../readiness/preflight/survey.ts';
import { isOlder } from '../../release/version.ts';
import { disruptionPolicy } from '../poolRollout.ts';
import { authorityMapName, imageConfig, type MirrorPlan, type SiteMirror } from './mirrorObjects.ts';

/** The state of a cluster that matters for mirrors. */
export interface MirrorSite extends Omit<MirrorPlan, 'port'> {
  /** Whether files change without a reboot or a drain (node disruption policies, OpenShift 4.17). */
  readonly hasPolicies: boolean;
  /** The networks of the machines, such as `192.0.2.0/24`. */
  readonly networks: readonly string[];
  /** The properties that can keep mirrors from working, as sentences. */
  readonly warnings: readonly string[];
}

const config = 'config.openshift.io/v1';
const payload = ['quay.io/openshift-release-dev/ocp-release', 'quay.io/openshift-release-dev/ocp-v4.0-art-dev'];
const firstWithPolicies = '4.17.0-0';

/**
 * Reads the state of a cluster. `more`: repositories to mirror in addition to those of the release. Throws `unsupported`
 * for a cluster whose nodes have only IPv6 addresses, which mirror sets cannot name. Throws `conflict` if the site’s
 * mirror sets contradict each other, and `not-found` without the pull secret of the machine config controller.
 */
export async function readMirrorSite(cluster: Cluster, more: readonly string[]): Promise<MirrorSite> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  const [nodes, pools, sets, policies, [infrastructure], [proxy]] = await Promise.all([
    listServed(cluster, 'v1', 'Node'),
    listServed(cluster, 'machineconfiguration.openshift.io/v1', 'MachineConfigPool'),
    listServed(cluster, config, 'ImageDigestMirrorSet'),
    listServed(cluster, 'operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy'),
    listServed(cluster, config, 'Infrastructure'),
    listServed(cluster, config, 'Proxy'),
  ]);
  const addresses = listAddresses(nodes);
  if (addresses.length === 0) {
    throw new PluginError('unsupported', 'the control plane nodes have no IPv4 address', {
      hint: 'Mirror sets cannot name IPv6 addresses, so mirrors on the control plane need IPv4 or both.',
    });
  }
  await requirePullSecret(cluster);
  const siteMirrors = listSiteMirrors(sets, policies);
  const name = textOf(fieldsAt(await cluster.read(imageConfig), 'spec', 'additionalTrustedCA')['name']);
  const hasPolicies =
    version !== '' && !isOlder(version, firstWithPolicies) && (await cluster.read(disruptionPolicy)) !== undefined;
  return {
    addresses: [...new Set([...listVips(infrastructure), ...addresses])],
    roles: poolRoles(pools),
    sources: [...new Set([...payload, ...more])].sort(),
    siteMirrors,
    trustedAuthorities: name === undefined || name === '' || name === authorityMapName ? undefined : name,
    hasPolicies,
    networks: await readNetworks(cluster),
    warnings: describeProxy(proxy),
  };
}

/** Lists the IPv4 addresses of the control plane nodes, the newest node first: an old one may be gone. */
export function listAddresses(nodes: readonly KubernetesObject[]): string[] {
  return nodes
    .filter((node) => isControlPlane(readNode(node)))
    .toSorted((a, b) => createdAt(b).localeCompare(createdAt(a)))
    .flatMap(({ status }) => listOf(fieldsOf(status)['addresses']))
    .flatMap(({ type, address }) => (type === 'InternalIP' && isIP(String(address)) === 4 ? [String(address)] : []));
}

function createdAt({ metadata }: KubernetesObject): string {
  return textOf(fieldsOf(metadata)['creationTimestamp']) ?? '';
}

/** Lists the API addresses that move to a living control plane node, if OpenShift itself balances the load. */
function listVips(infrastructure: KubernetesObject | undefined): string[] {
  const platforms = Object.values(fieldsAt(infrastructure, 'status', 'platformStatus')).map(fieldsOf);
  return platforms
    .filter((platform) => fieldsOf(platform['loadBalancer'])['type'] !== 'UserManaged')
    .flatMap((platform) => textsOf(platform['apiServerInternalIPs']))
    .filter((address) => isIP(address) === 4);
}

function listSiteMirrors(sets: readonly StoredObject[], policies: readonly StoredObject[]): SiteMirror[] {
  const entries = [
    ...sets
      .filter(({ metadata }) => metadata.name !== ownMirrorSet)
      .flatMap(({ spec }) => listOf(fieldsOf(spec)['imageDigestMirrors'])),
    ...policies.flatMap(({ spec }) => listOf(fieldsOf(spec)['repositoryDigestMirrors'])),
  ];
  const bySource = Map.groupBy(entries, ({ source }) => String(source));
  return [...bySource].map(([source, group]) => {
    const stated = new Set(group.flatMap((entry) => textOf(entry['mirrorSourcePolicy']) ?? []));
    if (stated.size > 1) {
      throw new PluginError(
        'conflict',
        `mirror sets of the site have different values of mirrorSourcePolicy for ${source}`,
        {
          hint: 'The machine config operator refuses all mirror sets until they agree: oc get imagedigestmirrorset -o yaml.',
        },
      );
    }
    return { source, mirrors: group.flatMap(({ mirrors }) => textsOf(mirrors)), policy: [...stated][0] };
  });
}

async function requirePullSecret(cluster: Cluster): Promise<void> {
  const metadata = { name: 'pull-secret', namespace: 'openshift-config' };
  if (await cluster.read({ apiVersion: 'v1', kind: 'Secret', metadata })) return;
  throw new PluginError('not-found', 'there is no Secret openshift-config/pull-secret', {
    hint: 'The machine config controller reads no image without it. An empty one suffices: {"auths":{}}',
  });
}

async function readNetworks(cluster: Cluster): Promise<string[]> {
  const metadata = { name: 'cluster-config-v1', namespace: 'kube-system' };
  const map = await cluster.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata });
  const [, block = ''] =
    /\n\s*machineNetwork:\s*\n((?:\s*-?\s*cidr:.*\n?)+)/.exec(textOf(fieldsAt(map, 'data')['install-config']) ?? '') ??
    [];
  return [...block.matchAll(/cidr:\s*["']?([0-9a-fA-F.:]+\/\d+)/g)].flatMap(([, network]) => network ?? []);
}

function describeProxy(proxy: KubernetesObject | undefined): string[] {
  const { httpsProxy = '' } = fieldsAt(proxy, 'status');
  if (httpsProxy === '') return [];
  return [
    'the cluster has a proxy: a machine config controller before August 2026 asks it for the mirrors too, and ignores noProxy',
  ];
}
