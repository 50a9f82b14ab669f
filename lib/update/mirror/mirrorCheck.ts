import { isIP } from 'node:net';
import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding, type Severity, type Subject } from '#cluster/finding';
import type { StoredObject } from '#cluster/objects';
import { clusterVersionReference, readClusterVersion, blocks } from '#cluster/version';
import { type TlsOptions, Connections } from '#content/http';
import { matchedBy } from '#content/registry';
import type { Context } from '#context';
import { ignoring, nameSome, asFailure, isPluginError, type PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '#fields';
import { isByDigest } from '#readiness/lint';
import { mayRunOn, readNode } from '#readiness/nodes';
import {
  pullSecret,
  keyOf,
  readPodTemplate,
  type PodTemplate,
  isImageOf,
  isOwnMirrorSet,
  keepsBundles,
  type ClusterSurvey,
} from '#readiness/preflight';
import { isOlder } from '#release/version';
import { formatBytes } from '#text';
import { listMirrorStates, type NodeMirror } from '../record/nodeReport.ts';
import { readSecret, servingSecret } from './mirrorCertificates.ts';
import { findSiteMirror, readMirrorSet, authorityMapName } from './mirrorObjects.ts';
import {
  isServing,
  listAddresses,
  listControlPlane,
  readMirrorSite,
  silentAdvice,
  type MirrorSite,
} from './mirrorSite.ts';

/** The services of the host that use a port of each control plane node, and that no pod names. */
const hostServices: ReadonlyMap<number, string> = new Map([
  [9537, 'CRI-O'],
  [10_250, 'the kubelet'],
  [22_625, 'InternalReleaseImage'],
  [22_626, 'InternalReleaseImage'],
]);

/** The first OpenShift version that can be updated to one that reads operating system streams from mirrors (4.23). */
const firstBeforeStreams = '4.22.0-0';

const advice = {
  address:
    'Mirror sets cannot name IPv6 addresses. Give the node an IPv4 address too, or a host name as its address ' +
    '(InternalDNS, Hostname) that every node resolves.',
  name:
    'Check on each node that it resolves: getent ahosts NAME. OpenShift resolves the names of nodes itself on ' +
    'platforms with virtual IP addresses.',
  secret: 'Create it, of the type kubernetes.io/dockerconfigjson. An empty one is enough: {"auths":{}}',
  conflict:
    'The machine config operator refuses all mirror sets until they agree. A set without mirrorSourcePolicy ' +
    'allows the source.',
  port: 'Install the mirrors on another port, which is open between all nodes.',
  tags:
    'Add the source to an ImageTagMirrorSet, with the mirrors of the broader source: runtimes obey only the most ' +
    'precise source.',
  policies: 'Update to 4.14.3 first: earlier releases do not support both kinds of mirror sets at a time.',
  reboots:
    'Plan it like an update: every node is drained and rebooted, one pool after the other, and again at removal.',
  unread: 'Let the mirrors keep whole bundles, which nodes pull from.',
  drop: 'Remove the file, or add the mirrors there: a file of a MachineConfig replaces what mirror sets configure.',
  built: 'Keep its registry: the image of its operating system is in no bundle, and a node that joins pulls it.',
  proxy:
    'The controller of the agents describes the operating system streams, so that nothing is read through the proxy.',
  scopes: 'Allow them in spec.registrySources of image.config.openshift.io/cluster. Mirrors do not count there.',
  added:
    'From OpenShift 4.17 on, the controller adds it once all pools are up to date. If it does not, install the ' +
    'mirrors again.',
  order: 'Bring the node up, or install the mirrors again: that puts its mirror last, and drains no node.',
  silent: silentAdvice,
  retain:
    'Give the cluster the bundle of the running release, which changes nothing else: oc adm-upgrade-bundle retain.',
  lacking:
    'Insert a USB drive with the bundle that has them, or add them to a bundle as extra images. Pods that need ' +
    'them do not start on a node that lost them.',
  quota: 'Install the mirrors again with a larger quota. Without its copy, an update does not begin.',
  lost:
    'Name it by digest, add it to the bundle as an extra image, and install the mirrors with its repository as a ' +
    'source.',
};

/**
 * Finds what keeps mirrors on the control plane from working. `planned`: the port of mirrors that are not installed
 * yet; installed ones are asked from this machine. Without it, finds nothing for a cluster without mirrors. Throws the
 * errors of the cluster.
 */
export async function checkMirrors(
  cluster: Cluster,
  survey: Pick<ClusterSurvey, 'digestMirrors' | 'workloads'>,
  planned: number | undefined,
  context: Pick<Context, 'signal'>,
): Promise<Finding[]> {
  const own = survey.digestMirrors.find(isOwnMirrorSet);
  const installed = readMirrorSet(own);
  const port = installed?.port ?? planned;
  if (port === undefined) return [];
  const [site, states] = [await readMirrorSite(cluster), await listMirrorStates(cluster)];
  const templates = survey.workloads.flatMap((object) => readPodTemplate(object) ?? []);
  return [
    ...checkMirrorSite(site, port, templates),
    ...(installed ? [...checkNodes(site, installed.addresses), ...checkOrder(site, installed.addresses)] : []),
    ...(installed ? checkRetained(site, states) : []),
    ...checkLacking(site, states),
    ...(installed && planned !== undefined ? await probeMirrors(cluster, site, port, context) : []),
    ...(planned !== undefined ? await probeSiteMirrors(site, context) : []),
    ...checkLost(site, templates),
  ];
}

/**
 * Finds that installed mirrors cannot keep a bundle of some bytes within their quota, beside that of the running
 * release. Without the right to read the quota, finds nothing. Throws other errors of the cluster.
 */
export async function checkQuota(
  cluster: Cluster,
  { digestMirrors }: Pick<ClusterSurvey, 'digestMirrors'>,
  bundle: { readonly version: string; readonly bytes: number },
): Promise<Finding[]> {
  const own = digestMirrors.find(keepsBundles);
  if (!own) return [];
  const { quota = '' } = (await readSecret(cluster, servingSecret).catch(ignoring('denied'))) ?? {};
  const states = await listMirrorStates(cluster);
  const object = await cluster.read(clusterVersionReference);
  const running = object ? readClusterVersion(object).version : '';
  const present = running === bundle.version ? [] : states.map(({ sizes }) => sizes?.[running] ?? 0);
  const kept = Math.max(0, ...present);
  if (quota === '' || bundle.bytes + kept <= Number(quota)) return [];
  const beside = kept > 0 ? ` beside the ${formatBytes(kept)} of ${running}` : '';
  const message =
    `has a quota of ${formatBytes(Number(quota))}: the bundle of ${bundle.version} ` +
    `(${formatBytes(bundle.bytes)}) does not fit${beside}`;
  return [find('warning', subjectOf(own), message, advice.quota)];
}

/**
 * Finds what keeps mirrors on a port from working. `templates`: those of the pods that can run on the control plane.
 */
export function checkMirrorSite(site: MirrorSite, port: number, templates: readonly PodTemplate[]): Finding[] {
  return [
    ...checkAddresses(site),
    ...checkPort(site, port, templates),
    ...checkSets(site),
    ...checkRegistries(site),
    ...checkMachines(site),
  ];
}

function find(severity: Severity, subject: Subject, message: string, advised: string): Finding {
  const weight = severity === 'blocker' ? blocks('mirror') : { severity };
  return { check: 'mirrors', ...weight, subject, message, advice: advised };
}

function checkAddresses({ nodes }: MirrorSite): Finding[] {
  const lacking = listControlPlane(nodes).filter((node) => listAddresses([node]).length === 0);
  const severity = listAddresses(nodes).length === 0 ? 'blocker' : 'warning';
  const named = listControlPlane(nodes).flatMap((node) => {
    const names = listAddresses([node]).filter((address) => isIP(address) === 0);
    const message = `has no IPv4 address: nodes pull from its mirror by the name ${nameSome(names)}`;
    return names.length === 0 ? [] : [find('info', subjectOf(node), message, advice.name)];
  });
  const words = 'has neither an IPv4 address nor a host name for a mirror';
  return [...lacking.map((node) => find(severity, subjectOf(node), words, advice.address)), ...named];
}

function checkPort({ nodes }: MirrorSite, port: number, templates: readonly PodTemplate[]): Finding[] {
  const controlPlane = listControlPlane(nodes).map(readNode);
  const service = hostServices.get(port);
  const subject = { kind: 'Mirror', name: String(port) };
  const users = templates.filter((template) => {
    const ports = template.containers.flatMap(({ fields }) => listOf(fields['ports']));
    const isUsed = ports.some(({ hostPort }) => hostPort === port);
    return isUsed && controlPlane.some((node) => mayRunOn(template, node));
  });
  const named = new Set(users.map((template) => keyOf(template.subject)));
  return [
    ...(service === undefined ? [] : [find('blocker', subject, `is the port of ${service}`, advice.port)]),
    ...users
      .filter(({ owner = '' }) => !named.has(owner))
      .map(({ subject: user }) => find('blocker', user, `uses port ${port} of control plane nodes`, advice.port)),
  ];
}

function checkSets({ siteMirrors, sources, contentPolicies, version }: MirrorSite): Finding[] {
  const [policy] = contentPolicies;
  const isEarly = isOlder(version, '4.14.3');
  return [
    ...siteMirrors.flatMap(({ source, conflict }) =>
      conflict
        ? [find('blocker', setOf(source), `${nameSome(conflict)} differ in mirrorSourcePolicy for it`, advice.conflict)]
        : [],
    ),
    ...sources.flatMap((source) => {
      const site = findSiteMirror(siteMirrors, source);
      if (!site?.hasTagMirrors || site.source === source) return [];
      const message = `its mirrors for tags no longer count for ${source}`;
      return [find('warning', setOf(site.source), message, advice.tags)];
    }),
    ...(policy && isEarly
      ? [find('warning', subjectOf(policy), `${version} may ignore mirror sets beside it`, advice.policies)]
      : []),
  ];
}

function setOf(source: string): Subject {
  return { kind: 'MirrorSet', name: source };
}

/** Mirrors do not help a source that is blocked or not allowed: policies are for the name of the image. */
function checkRegistries({ imageConfig, sources, hasPullSecret, proxies }: MirrorSite): Finding[] {
  const { allowedRegistries, blockedRegistries } = fieldsAt(imageConfig, 'spec', 'registrySources');
  const [allowed, blocked] = [textsOf(allowedRegistries), textsOf(blockedRegistries)];
  const isIn = (source: string, scopes: readonly string[]): boolean =>
    scopes.some((scope) => matchedBy(scope, source) !== undefined);
  const refused = sources.filter((source) => isIn(source, blocked) || (allowed.length > 0 && !isIn(source, allowed)));
  const message = 'does not exist, and the machine config controller reads no mirror without it';
  return [
    ...(hasPullSecret ? [] : [find('blocker', pullSecret, message, advice.secret)]),
    ...(imageConfig && refused.length > 0
      ? [find('warning', subjectOf(imageConfig), `does not allow images of ${nameSome(refused)}`, advice.scopes)]
      : []),
    ...proxies.flatMap((proxy) => {
      if ((textOf(fieldsOf(proxy['status'])['httpsProxy']) ?? '') === '') return [];
      const words = 'a machine config controller before August 2026 asks it for the mirrors, and ignores noProxy';
      return [find('warning', subjectOf(proxy), words, advice.proxy)];
    }),
  ];
}

function checkMachines({ hasPolicies, version, content, machineConfigs, builtSystems }: MirrorSite): Finding[] {
  const cluster = { kind: 'ClusterVersion', name: 'version' };
  const reboots = `${version} reboots every node when the CA of the mirrors changes`;
  const unread = `the machine config controller of ${version} reads no metadata of mirrors`;
  const isUnread = content === 'metadata' && isOlder(version, firstBeforeStreams);
  return [
    ...(hasPolicies ? [] : [find('warning', cluster, reboots, advice.reboots)]),
    ...(isUnread ? [find('warning', cluster, unread, advice.unread)] : []),
    ...machineConfigs.flatMap((config) => {
      const files = listOf(fieldsAt(config, 'spec', 'config', 'storage')['files']).map(({ path }) => String(path));
      const own = files.filter((path) => /^\/etc\/containers\/registries\.conf(?:$|\.d\/)/.test(path));
      return own.length === 0 ? [] : [find('warning', subjectOf(config), `writes ${nameSome(own)}`, advice.drop)];
    }),
    ...builtSystems.map((each) => find('warning', subjectOf(each), 'builds an operating system', advice.built)),
  ];
}

/** Finds control plane nodes that were added since the installation. */
function checkNodes({ nodes }: MirrorSite, addresses: readonly string[]): Finding[] {
  return nodes.flatMap((node) => {
    const added = listAddresses([node]).filter((address) => !addresses.includes(address));
    const message = `nodes do not pull from its mirror at ${nameSome(added)}`;
    return added.length === 0 ? [] : [find('warning', subjectOf(node), message, advice.added)];
  });
}

/**
 * Finds mirrors of nodes that are not ready and that nodes ask before a ready one. A node that joins with 4.22 or later
 * asks them for 30 seconds at most (machine-config-operator release-4.22, pkg/daemon/update.go, isMultiArchImage).
 */
function checkOrder({ nodes }: MirrorSite, addresses: readonly string[]): Finding[] {
  const placeOf = (node: StoredObject): number =>
    Math.min(...listAddresses([node]).map((address) => addresses.indexOf(address)), addresses.length);
  const [ready, others] = [listControlPlane(nodes).filter(isUp), listControlPlane(nodes).filter((node) => !isUp(node))];
  const lastReady = Math.max(-1, ...ready.map(placeOf));
  return others.flatMap((node) => {
    const isBefore = placeOf(node) >= 0 && placeOf(node) < lastReady;
    const message = 'is not ready, and nodes ask its mirror before others: a node that joins waits for it';
    return isBefore ? [find('warning', subjectOf(node), message, advice.order)] : [];
  });
}

function isUp(node: StoredObject): boolean {
  return readNode(node).ready;
}

/**
 * Finds nodes without a running mirror, and mirrors that lack the running release: the nodes of a cluster that was
 * installed from elsewhere need it.
 */
function checkRetained({ version, nodes, content }: MirrorSite, states: readonly NodeMirror[]): Finding[] {
  return listControlPlane(nodes).flatMap((host) => {
    const state = states.find(({ node }) => node === host.metadata.name);
    if (!state) return [find('warning', subjectOf(host), 'its agent reports no mirror', advice.silent)];
    const message = `its mirror does not have ${version}`;
    return isServing(state, version, content) ? [] : [find('warning', subjectOf(host), message, advice.retain)];
  });
}

/** Finds mirrors that lack images, also while the cluster has lost the configuration that names the mirrors. */
function checkLacking({ nodes }: MirrorSite, states: readonly NodeMirror[]): Finding[] {
  return nodes.flatMap((host) => {
    const { lacking = [] } = states.find(({ node }) => node === host.metadata.name) ?? {};
    const message = `its mirror was asked for images that it lacks: ${nameSome(lacking)}`;
    return lacking.length === 0 ? [] : [find('warning', subjectOf(host), message, advice.lacking)];
  });
}

/** Finds workloads with images that neither our mirrors nor those of the site give back to a node that lost them. */
function checkLost({ sources, siteMirrors, content }: MirrorSite, templates: readonly PodTemplate[]): Finding[] {
  const subjectKeys = new Set(templates.map(({ subject }) => keyOf(subject)));
  const isKept = (image: string): boolean =>
    // The registry of the cluster has its images in the storage of the cluster.
    /^[^/]+\.svc(?::\d+)?\//.test(image) ||
    (content === 'all' && isByDigest(image) && sources.some((source) => isImageOf(source, image))) ||
    siteMirrors.some(({ source, mirrors }) => isByDigest(image) && mirrors.length > 0 && isImageOf(source, image));
  return templates.flatMap(({ subject, owner, idle, images }) => {
    if (idle || (owner !== undefined && subjectKeys.has(owner))) return [];
    const lost = [...new Set(images.filter((image) => !isKept(image)))];
    const message = `a node that loses its images does not get back ${nameSome(lost)}`;
    return lost.length === 0 ? [] : [find('info', subject, message, advice.lost)];
  });
}

/** Short limits, in milliseconds: the network of the nodes may be another one than that of this machine. */
const limits = { connectTimeout: 5000, idleTimeout: 10_000 };

const answerAdvice = {
  denied: 'Run preflight with an account that may read it, such as one with the role cluster-reader.',
  authority: 'Install the mirrors again: the machine config controller trusts them by this key.',
  unreachable:
    'Nodes and pods need this port, this machine does not. The controller asks each mirror before an update begins.',
  slow:
    'Start it, or remove it from the mirror set: a pull that comes to it waits up to 30 s, also in the machine ' +
    'config controller.',
  other:
    'Another service or machine answers there, or the certificate was not renewed: see journalctl -u ' +
    'oc-upgrade-bundle-mirror on the node.',
};

/**
 * Asks the mirror of each control plane node from this machine. Trusts the CA that the machine config controller
 * trusts, and no other. Returns a finding for each mirror that did not answer as one. Throws `interrupted`, and the
 * errors of the cluster, except that the CA may not be read.
 */
async function probeMirrors(
  cluster: Cluster,
  { nodes, trustedAuthorities }: Pick<MirrorSite, 'nodes' | 'trustedAuthorities'>,
  port: number,
  { signal }: Pick<Context, 'signal'>,
): Promise<Finding[]> {
  const metadata = { name: trustedAuthorities ?? authorityMapName, namespace: 'openshift-config' };
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata };
  const read = await cluster.read(map).catch((error: unknown) => {
    if (!isPluginError(error, 'denied')) throw error;
    return 'denied' as const;
  });
  if (read === 'denied')
    return [find('info', subjectOf(map), 'may not be read: the mirrors were not asked', answerAdvice.denied)];
  const key = `localhost..${port}`;
  const authority = textOf(fieldsAt(read, 'data')[key]);
  if (authority === undefined) return [find('warning', subjectOf(map), `does not have ${key}`, answerAdvice.authority)];
  const mirrors = listControlPlane(nodes).flatMap((node) =>
    listAddresses([node]).map((address) => ({ host: `${address}:${port}`, subject: subjectOf(node) })),
  );
  // Nothing else has a certificate of this CA.
  return ask(mirrors, { ca: [authority] }, signal, ({ subject }, error) =>
    error.code === 'unreachable'
      ? find('info', subject, `its mirror was not asked: ${error.message}`, answerAdvice.unreachable)
      : find('warning', subject, `its mirror is not trusted: ${error.message}`, answerAdvice.other),
  );
}

/** Finds mirrors of the site for our sources that do not answer this machine. Throws `interrupted`. */
async function probeSiteMirrors(
  { siteMirrors, sources }: Pick<MirrorSite, 'siteMirrors' | 'sources'>,
  { signal }: Pick<Context, 'signal'>,
): Promise<Finding[]> {
  const mirrors = sources.flatMap((source) => findSiteMirror(siteMirrors, source)?.mirrors ?? []);
  const hosts = [...new Set(mirrors.map((mirror) => mirror.split('/')[0] ?? ''))].map((host) => ({ host }));
  return ask(hosts, {}, signal, ({ host }, { code, message }) => {
    // A certificate that this machine does not trust is an answer too.
    if (code !== 'unreachable') return undefined;
    return find('warning', { kind: 'Mirror', name: host }, `does not answer: ${message}`, answerAdvice.slow);
  });
}

/** Asks registries by TLS whether they are there, all at once. Describes each failure. */
async function ask<Asked extends { readonly host: string }>(
  registries: readonly Asked[],
  trust: TlsOptions,
  signal: AbortSignal,
  describe: (registry: Asked, error: PluginError) => Finding | undefined,
): Promise<Finding[]> {
  const connections = new Connections({ certificates: { for: () => Promise.resolve(trust) }, ...limits });
  const probe = async (registry: Asked): Promise<Finding | undefined> => {
    try {
      const url = new URL(`https://${registry.host}/v2/`);
      (await connections.exchange({ method: 'GET', url, headers: {}, signal })).body.destroy();
      return undefined;
    } catch (error) {
      return describe(registry, asFailure(error));
    }
  };
  try {
    return (await Promise.all(registries.map(probe))).filter((each) => each !== undefined);
  } finally {
    connections.close();
  }
}
