import { isIP } from 'node:net';
import type { Cluster } from '#cluster/client';
import { type StoredObject, listServed, readMatching } from '#cluster/objects';
import type { KubernetesObject } from '#config/manifest';
import { nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '#fields';
import { readNode, isControlPlane, poolRoles } from '#readiness/nodes';
import { lacksPullSecret, isOwnMirrorSet } from '#readiness/preflight';
import type { MirrorContent } from '../record/mirrorContent.ts';
import type { NodeMirror, MirrorState } from '../record/nodeReport.ts';
import { obeysPolicies } from '../record/poolRollout.ts';
import {
  authorityMapName,
  imageConfig,
  isAuthorityConfig,
  mirrorSet,
  neverContact,
  readMirrorSet,
  type MirrorPlan,
  type SiteMirror,
} from './mirrorObjects.ts';

/** The state of a cluster that matters for mirrors. */
export interface MirrorSite extends Omit<MirrorPlan, 'port'> {
  /** The version that the cluster runs; empty if it does not say. */
  readonly version: string;
  /** Whether files change without a reboot or a drain (node disruption policies, OpenShift 4.17). */
  readonly hasPolicies: boolean;
  /** The networks of the machines, such as `192.0.2.0/24`. */
  readonly networks: readonly string[];
  /** Whether the pull secret of the machine config controller exists, or may not be read. */
  readonly hasPullSecret: boolean;
  readonly nodes: readonly StoredObject[];
  /** The mirrors that were installed before. */
  readonly former: ReturnType<typeof readMirrorSet>;
  readonly contentPolicies: readonly StoredObject[];
  readonly proxies: readonly StoredObject[];
  /** MachineConfigs that the machine config operator has not generated. */
  readonly machineConfigs: readonly StoredObject[];
  /** Pools whose operating system is built in the cluster. */
  readonly builtSystems: readonly StoredObject[];
  readonly imageConfig: StoredObject | undefined;
}

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';
const payload = ['quay.io/openshift-release-dev/ocp-release', 'quay.io/openshift-release-dev/ocp-v4.0-art-dev'];
/** The annotation of MachineConfigs that the machine config operator generates from templates and other objects. */
const generated = 'machineconfiguration.openshift.io/generated-by-controller-version';

/**
 * Reads the state of a cluster. `more`: repositories to mirror in addition to those of the release; by default as
 * before. Throws the errors of the cluster.
 */
export async function readMirrorSite(cluster: Cluster, more: readonly string[] = []): Promise<MirrorSite> {
  const { version = '' } = (await cluster.clusterVersion()) ?? {};
  const [nodes, pools, proxies, builtSystems] = await Promise.all([
    listServed(cluster, 'v1', 'Node'),
    listServed(cluster, machines, 'MachineConfigPool'),
    listServed(cluster, config, 'Proxy'),
    listServed(cluster, machines, 'MachineOSConfig'),
  ]);
  const hasPolicies = await obeysPolicies(cluster, version);
  return {
    ...(await readMirrorPlan(cluster, { nodes, pools }, more)),
    version,
    hasPolicies,
    nodes,
    proxies,
    builtSystems,
    hasPullSecret: !(await lacksPullSecret(cluster)),
    machineConfigs: await readMatching(cluster, machines, 'MachineConfig', isOfSite),
    networks: await readNetworks(cluster),
  };
}

/** What is known of a cluster before its configuration of registries is read. */
export interface KnownSite {
  readonly nodes: readonly StoredObject[];
  readonly pools: readonly StoredObject[];
}

/** Reads what the objects of mirrors depend on, and nothing else: a controller may read no more. */
export async function readMirrorPlan(
  cluster: Cluster,
  { nodes, pools }: KnownSite,
  more: readonly string[] = [],
): Promise<Pick<MirrorSite, keyof Omit<MirrorPlan, 'port'> | 'former' | 'contentPolicies' | 'imageConfig'>> {
  const [sets, tagSets, contentPolicies, [infrastructure]] = await Promise.all([
    listServed(cluster, config, 'ImageDigestMirrorSet'),
    listServed(cluster, config, 'ImageTagMirrorSet'),
    listServed(cluster, 'operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy'),
    listServed(cluster, config, 'Infrastructure'),
  ]);
  const former = readMirrorSet(sets.find(isOwnMirrorSet));
  const images = await cluster.read(imageConfig);
  const name = textOf(fieldsAt(images, 'spec', 'additionalTrustedCA')['name']);
  return {
    former,
    content: former?.content ?? 'all',
    contentPolicies,
    imageConfig: images,
    addresses: [...listVips(infrastructure), ...listAddresses(nodes)],
    roles: poolRoles(pools),
    sources: [...new Set([...payload, ...(more.length > 0 ? more : (former?.sources ?? []))])].sort(),
    siteMirrors: listSiteMirrors(
      sets.filter((set) => !isOwnMirrorSet(set)),
      tagSets,
      contentPolicies,
    ),
    trustedAuthorities: name === undefined || name === '' || name === authorityMapName ? undefined : name,
  };
}

/** Returns the control plane nodes among some nodes. */
export function listControlPlane<Node extends KubernetesObject>(nodes: readonly Node[]): Node[] {
  return nodes.filter((node) => isControlPlane(readNode(node)));
}

/**
 * Lists the IPv4 addresses of the control plane nodes: first those of ready nodes, of them the newest first, because an
 * old one may be gone. A runtime asks mirrors in their order, and a joining node waits for each that is off. A node
 * without an address has its name in DNS instead, because mirror sets name no IPv6 addresses (openshift/api,
 * ImageMirror). On platforms with virtual IP addresses every node resolves the names of all nodes
 * (machine-config-operator release-4.22, templates/common/on-prem/files/coredns-corefile.yaml); elsewhere OpenShift
 * requires them in DNS.
 */
export function listAddresses(nodes: readonly KubernetesObject[]): string[] {
  return listControlPlane(nodes)
    .toSorted((a, b) => Number(isReady(b)) - Number(isReady(a)) || createdAt(b).localeCompare(createdAt(a)))
    .flatMap(({ status }) => {
      const all = listOf(fieldsOf(status)['addresses']);
      const listed = (wanted: string): string[] =>
        all.flatMap(({ type, address }) => (type === wanted ? [String(address)] : []));
      const addresses = listed('InternalIP').filter((address) => isIP(address) === 4);
      const names = [...listed('InternalDNS'), ...listed('Hostname')].filter(isHostName);
      return addresses.length > 0 ? addresses : names.slice(0, 1);
    });
}

/** Returns whether a text is a host name that a mirror set can name. */
function isHostName(text: string): boolean {
  return isIP(text) === 0 && /^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$/.test(text);
}

function isReady(node: KubernetesObject): boolean {
  return readNode(node).ready;
}

function createdAt({ metadata }: KubernetesObject): string {
  return textOf(fieldsOf(metadata)['creationTimestamp']) ?? '';
}

/**
 * Lists the API addresses that move to a living control plane node, if OpenShift itself balances the load. If all are
 * of IPv6, it is the name of the API (api-int), which every node resolves.
 */
function listVips(infrastructure: KubernetesObject | undefined): string[] {
  const platforms = Object.values(fieldsAt(infrastructure, 'status', 'platformStatus')).map(fieldsOf);
  const all = platforms
    .filter((platform) => fieldsOf(platform['loadBalancer'])['type'] !== 'UserManaged')
    .flatMap((platform) => textsOf(platform['apiServerInternalIPs']));
  const addresses = all.filter((address) => isIP(address) === 4);
  if (addresses.length > 0 || all.length === 0) return addresses;
  const name = URL.parse(textOf(fieldsAt(infrastructure, 'status')['apiServerInternalURI']) ?? '')?.hostname ?? '';
  return isHostName(name) ? [name] : [];
}

/** Returns whether a mirror has a version in the form that the mirrors of the cluster keep. */
export function isServing({ versions, content = 'all' }: MirrorState, version: string, kept: MirrorContent): boolean {
  return versions.includes(version) && content === kept;
}

/** Reads what is installed; undefined if the cluster has no mirrors. */
export async function readInstalledMirrors(cluster: Cluster): Promise<ReturnType<typeof readMirrorSet>> {
  const sets = await listServed(cluster, mirrorSet.apiVersion, mirrorSet.kind);
  return readMirrorSet(sets.find(isOwnMirrorSet));
}

/** What to do about a mirror that does not run. */
export const silentAdvice =
  'See oc -n oc-upgrade-bundle logs daemonset/controller, and journalctl -u oc-upgrade-bundle-mirror on the node.';

/**
 * Names the control plane nodes without a mirror as it is installed, by the states that agents report. Undefined if
 * there are none, or if the cluster has no mirrors.
 */
export async function describeSilentMirrors(
  cluster: Cluster,
  states: readonly NodeMirror[],
): Promise<string | undefined> {
  const installed = await readInstalledMirrors(cluster);
  if (!installed) return undefined;
  const isInstalled = ({ port, content = 'all' }: MirrorState): boolean =>
    port === installed.port && content === installed.content;
  const silent = await listWithoutMirror(cluster, states, isInstalled);
  return silent.length === 0 ? undefined : `no mirror runs on ${nameSome(silent)}`;
}

/** Lists the control plane nodes without a mirror that serves as `serves` says, by the states that agents report. */
export async function listWithoutMirror(
  cluster: Cluster,
  states: readonly NodeMirror[],
  serves: (mirror: MirrorState) => boolean,
): Promise<readonly string[]> {
  const nodes = await cluster.list('v1', 'Node');
  const serving = states.filter(serves).map(({ node }) => node);
  const names = listControlPlane(nodes).map(({ metadata }) => metadata.name);
  return names.filter((name) => !serving.includes(name));
}

/** Runtimes have one entry for a source, from sets of all kinds. Without a policy, it may be asked. */
function listSiteMirrors(...kinds: readonly (readonly StoredObject[])[]): SiteMirror[] {
  const entries = kinds.flat().flatMap(({ metadata, spec }) => {
    const { imageDigestMirrors, imageTagMirrors, repositoryDigestMirrors } = fieldsOf(spec);
    return [
      ...[...listOf(imageDigestMirrors), ...listOf(repositoryDigestMirrors)].map((entry) => ({ entry, isTag: false })),
      ...listOf(imageTagMirrors).map((entry) => ({ entry, isTag: true })),
    ].map((each) => ({ ...each, set: metadata.name }));
  });
  return [...Map.groupBy(entries, ({ entry }) => String(entry['source']))].map(([source, group]) => {
    const never = group.filter(({ entry }) => entry['mirrorSourcePolicy'] === neverContact);
    return {
      source,
      mirrors: group.flatMap(({ entry, isTag }) => (isTag ? [] : textsOf(entry['mirrors']))),
      ...(never.length > 0 && { policy: neverContact }),
      hasTagMirrors: group.some(({ isTag }) => isTag),
      ...(never.length > 0 && never.length < group.length && { conflict: group.map(({ set }) => set) }),
    };
  });
}

function isOfSite({ metadata: { name, annotations } }: StoredObject): boolean {
  return fieldsOf(annotations)[generated] === undefined && !isAuthorityConfig(name);
}

async function readNetworks(cluster: Cluster): Promise<string[]> {
  const metadata = { name: 'cluster-config-v1', namespace: 'kube-system' };
  const map = await cluster.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata });
  const [, block = ''] =
    /\n\s*machineNetwork:\s*\n((?:\s*-?\s*cidr:.*\n?)+)/.exec(textOf(fieldsAt(map, 'data')['install-config']) ?? '') ??
    [];
  return [...block.matchAll(/cidr:\s*["']?([0-9a-fA-F.:]+\/\d+)/g)].flatMap(([, network]) => network ?? []);
}
