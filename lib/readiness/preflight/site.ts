import type { Cluster } from '#cluster/client';
import { formatSubject } from '#cluster/finding';
import { type StoredObject, listServed } from '#cluster/objects';
import { clusterVersionReference, readClusterVersion } from '#cluster/version';
import type { SiteOperator, SiteReport, SiteApi } from '#config/siteReport';
import { hexOf, isDigest, digestIn, repositoryIn } from '#content/oci';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf, withoutAbsent } from '#fields';
import { readImagePolicy, rootFingerprint } from '#release/sigstore';
import { parseArchitecture } from '#release/version';
import { isPoolNode, mayHaveAgent, readNode } from '../nodes/node.ts';
import { pinnedOf } from '../nodes/pinnedImageSets.ts';
import { listOwnAcknowledgements, readGateConditions } from './acknowledgements.ts';
import { maxOpenShiftVersion } from './holds.ts';
import { readPodTemplate } from './podTemplate.ts';
import type { Preflight } from './preflight.ts';
import type { ClusterSurvey } from './survey.ts';

const operatorGroup = 'operators.coreos.com/v1alpha1';

/** The largest numbers of findings and images, so that a report stays below its limit. */
const listLimit = 2000;

/**
 * Returns the facts of a surveyed site after preflight. Reads only its operators, acknowledgements and requests by API.
 * `reportKey`: the public key of its installation, in PEM form. Throws the errors of the cluster.
 */
export async function readSite(
  cluster: Cluster,
  survey: ClusterSurvey,
  { findings }: Preflight,
  { tool, reportKey }: { readonly tool: string; readonly reportKey: string | undefined },
): Promise<SiteReport> {
  const clusterVersion = survey.versions[0] ?? clusterVersionReference;
  const { version, channel = '', multi, releases } = readClusterVersion(clusterVersion);
  const nodes = survey.nodes.filter((node) => isPoolNode(readNode(node)));
  const architectures = [...new Set(nodes.map((node) => readNode(node).architecture))];
  const [architecture = 'amd64'] = architectures;
  return {
    formatVersion: 1,
    created: new Date().toISOString(),
    tool,
    version,
    arch: multi || architectures.length > 1 ? 'multi' : parseArchitecture(architecture),
    channel,
    ...withoutAbsent({ cluster: textOf(fieldsAt(clusterVersion, 'spec')['clusterID']), reportKey }),
    history: listOf(fieldsAt(clusterVersion, 'status')['history']).map((entry) => {
      const image = textOf(entry['image']);
      const [release = '', state = ''] = [textOf(entry['version']), textOf(entry['state'])];
      const [started, completed] = [textOf(entry['startedTime']), textOf(entry['completionTime'])];
      return { version: release, state, image, ...withoutAbsent({ started, completed }) };
    }),
    nodes: nodes.map((node) => describeNode(node, survey)),
    pools: survey.pools.map(describePool),
    featureGates: readFeatureGates(survey),
    policies: [...survey.imagePolicies, ...survey.namespacedImagePolicies].map(describePolicy),
    heldImages: listHeldImages(survey),
    otherImages: listOtherImages(survey, releases.get(version) ?? ''),
    acknowledgements: await listOwnAcknowledgements(cluster, version),
    gateConditions: await readGateConditions(cluster, survey),
    removedApis: await listRemovedApis(cluster),
    operators: await listOperators(cluster),
    findings: findings
      .filter(({ severity }) => severity !== 'info')
      .slice(0, listLimit)
      .map(({ severity, subject, message }) => ({ severity, object: formatSubject(subject), message })),
  };
}

function describeNode(node: StoredObject, { disks }: Pick<ClusterSurvey, 'disks'>): SiteReport['nodes'][number] {
  const { name, architecture, capacity } = readNode(node);
  const os = textOf(fieldsAt(node['status'], 'nodeInfo')['osImage']);
  const { images } = disks.get(name) ?? {};
  return { name, architecture, capacity: images?.size ?? capacity, ...(images && { free: images.free }), os };
}

function describePool({ metadata, spec, status }: StoredObject): NonNullable<SiteReport['pools']>[number] {
  const { paused } = fieldsOf(spec);
  const stream = textOf(fieldsAt(spec, 'osImageStream')['name']);
  const machines = Number(fieldsOf(status)['machineCount'] ?? 0);
  return { name: metadata.name, machines, paused: paused === true, ...(stream !== undefined && { osStream: stream }) };
}

function readFeatureGates({
  featureGates,
}: Pick<ClusterSurvey, 'featureGates'>): NonNullable<SiteReport['featureGates']> {
  const gate = featureGates.find(({ metadata }) => metadata.name === 'cluster');
  const { featureSet } = fieldsOf(gate?.['spec']);
  const { enabled, disabled } = fieldsAt(gate?.['spec'], 'customNoUpgrade');
  return { featureSet: textOf(featureSet) ?? '', enabled: textsOf(enabled), disabled: textsOf(disabled) };
}

function describePolicy(object: StoredObject): NonNullable<SiteReport['policies']>[number] {
  const { name, namespace, scopes, trust } = readImagePolicy(object, 'the cluster');
  const judged = trust.kind === 'invalid' ? { unsupported: trust.reason } : { key: rootFingerprint(trust) ?? '' };
  return { name, namespace, scopes, ...judged };
}

/** Lists the images that each node has: images that its kubelet lists, and pinned images. */
function listHeldImages(survey: ClusterSurvey): Record<string, string[]> {
  const pinned = pinnedOf(survey);
  const nodes = survey.nodes.map(readNode).filter(mayHaveAgent);
  const sets = nodes.map(({ name, images }) => new Set([...images, ...(pinned.get(name) ?? [])]));
  const [first = new Set<string>(), ...others] = sets;
  const common = [...first].filter((image) => others.every((images) => images.has(image))).sort();
  const held: Record<string, string[]> = {};
  for (const image of common) {
    const digest = digestIn(image);
    if (isDigest(digest)) (held[repositoryIn(image)] ??= []).push(hexOf(digest));
  }
  return held;
}

/** Lists the images of workloads outside of the registry namespace of the release, each once. */
function listOtherImages({ workloads }: Pick<ClusterSurvey, 'workloads'>, release: string): string[] {
  const own = repositoryIn(release).replace(/[^/]*$/, '');
  const images = workloads.flatMap((object) => readPodTemplate(object)?.images ?? []);
  const others = [...new Set(images)].filter((image) => own === '' || !image.startsWith(own));
  return others.sort().slice(0, listLimit);
}

/** Lists the operators that OLM installed, by their Subscriptions and ClusterServiceVersions. */
async function listOperators(cluster: Cluster): Promise<SiteOperator[]> {
  const [subscriptions, installed] = await Promise.all([
    listServed(cluster, operatorGroup, 'Subscription'),
    listServed(cluster, operatorGroup, 'ClusterServiceVersion'),
  ]);
  const operators = subscriptions.flatMap(({ metadata, spec, status }): SiteOperator[] => {
    const { name, channel, source } = fieldsOf(spec);
    const { installedCSV } = fieldsOf(status);
    const own = installed.find((each) => isNamed(each, metadata.namespace, installedCSV));
    const version = textOf(fieldsOf(own?.['spec'])['version']);
    if (!own || version === undefined || typeof name !== 'string') return [];
    const max = maxOpenShiftVersion(own);
    return [
      {
        name,
        version,
        channel: textOf(channel) ?? '',
        catalog: textOf(source) ?? '',
        ...(max !== undefined && { maxOpenShiftVersion: max }),
      },
    ];
  });
  return operators.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function isNamed({ metadata }: StoredObject, namespace: string | undefined, name: unknown): boolean {
  return metadata.namespace === namespace && metadata.name === name;
}

/** The kind that counts the requests for each API within a day. */
const requestCountKind = ['apiserver.openshift.io/v1', 'APIRequestCount'] as const;

// They ask for every API that is served (documentation of OpenShift, “Preparing to upgrade”).
const controllers = new Set([
  'system:kube-controller-manager',
  'system:cluster-policy-controller',
  'system:serviceaccount:kube-system:generic-garbage-collector',
  'system:serviceaccount:kube-system:namespace-controller',
]);

const mostUsers = 10;

/**
 * Lists the APIs that clients use and that a later version of Kubernetes removes. Controllers that ask for every API do
 * not count. Throws the errors of reading the cluster.
 */
async function listRemovedApis(cluster: Cluster): Promise<SiteApi[]> {
  const counts = await listServed(cluster, ...requestCountKind);
  const apis = counts.flatMap(({ metadata, status }): SiteApi[] => {
    const { removedInRelease, requestCount, currentHour, last24h } = fieldsOf(status);
    const removedIn = textOf(removedInRelease);
    if (removedIn === undefined || removedIn === '' || Number(requestCount ?? 0) === 0) return [];
    const nodes = [fieldsOf(currentHour), ...listOf(last24h)].flatMap(({ byNode }) => listOf(byNode));
    const names = nodes.flatMap(({ byUser }) => listOf(byUser).flatMap(({ username }) => textOf(username) ?? []));
    const users = [...new Set(names)].filter((name) => !controllers.has(name)).sort();
    return users.length === 0 ? [] : [{ name: metadata.name, removedIn, users: users.slice(0, mostUsers) }];
  });
  return apis.sort((a, b) => (a.name < b.name ? -1 : 1));
}
