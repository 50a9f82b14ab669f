import { listDenied, type AccessRequest } from '#cluster/apply';
import type { Cluster } from '#cluster/client';
import type { Finding } from '#cluster/finding';
import type { StoredObject } from '#cluster/objects';
import { repositoryIn } from '#content/oci';
import { MirrorSets } from '#content/registry';
import { ignoreFailure } from '#errors';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, textsOf, type Fields } from '#fields';
import { type ClusterNode, isPoolNode, readNode } from '../nodes/node.ts';
import { readDisks, type NodeDisks } from '../nodes/nodeDisks.ts';
import { workloadKinds } from './podTemplate.ts';

/** The kinds of a survey, by the names of their lists. */
export const surveyedKinds = {
  nodes: ['v1', 'Node'],
  namespaces: ['v1', 'Namespace'],
  operators: ['config.openshift.io/v1', 'ClusterOperator'],
  versions: ['config.openshift.io/v1', 'ClusterVersion'],
  featureGates: ['config.openshift.io/v1', 'FeatureGate'],
  digestMirrors: ['config.openshift.io/v1', 'ImageDigestMirrorSet'],
  contentPolicies: ['operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy'],
  pools: ['machineconfiguration.openshift.io/v1', 'MachineConfigPool'],
  kubeletConfigs: ['machineconfiguration.openshift.io/v1', 'KubeletConfig'],
  pinnedSets: ['machineconfiguration.openshift.io/v1', 'PinnedImageSet'],
  poolNodes: ['machineconfiguration.openshift.io/v1', 'MachineConfigNode'],
  imagePolicies: ['config.openshift.io/v1', 'ClusterImagePolicy'],
  namespacedImagePolicies: ['config.openshift.io/v1', 'ImagePolicy'],
  catalogs: ['operators.coreos.com/v1alpha1', 'CatalogSource'],
  budgets: ['policy/v1', 'PodDisruptionBudget'],
  signingRequests: ['certificates.k8s.io/v1', 'CertificateSigningRequest'],
  infrastructures: ['config.openshift.io/v1', 'Infrastructure'],
  osImageStreams: ['machineconfiguration.openshift.io/v1', 'OSImageStream'],
  proxies: ['config.openshift.io/v1', 'Proxy'],
  etcds: ['operator.openshift.io/v1', 'Etcd'],
  endpointSlices: ['discovery.k8s.io/v1', 'EndpointSlice'],
  machines: ['kubevirt.io/v1', 'VirtualMachineInstance'],
  validatingWebhooks: ['admissionregistration.k8s.io/v1', 'ValidatingWebhookConfiguration'],
  mutatingWebhooks: ['admissionregistration.k8s.io/v1', 'MutatingWebhookConfiguration'],
} as const;

type Listing = Readonly<Record<keyof typeof surveyedKinds, readonly StoredObject[]>>;

// Releases before 4.20 serve these kinds as v1alpha1 only (openshift/api), with the same fields.
const earlierVersions: ReadonlyMap<string, string> = new Map([
  ['ClusterImagePolicy', 'config.openshift.io/v1alpha1'],
  ['ImagePolicy', 'config.openshift.io/v1alpha1'],
]);

/** The objects of a cluster that decide whether it works without a registry. */
export interface ClusterSurvey extends Listing {
  readonly workloads: readonly StoredObject[];
  /** Whether the cluster serves PinnedImageSet v1. */
  readonly pinsImages: boolean;
  /** The file systems, by the name of the node, for nodes that the user may ask. */
  readonly disks: ReadonlyMap<string, NodeDisks>;
  /** The running configuration of kubelets, by the name of the node, for nodes that the user may ask. */
  readonly kubelets: ReadonlyMap<string, Fields>;
  /**
   * The seconds until the certificates of kubelets expire, by the name of the node, for nodes that the user may ask.
   */
  readonly kubeletCertificates: ReadonlyMap<string, number>;
  /** Findings about objects that could not be read. */
  readonly findings: readonly Finding[];
}

/** The number of nodes that are asked in parallel. */
const batch = 16;

/**
 * Reads the objects that decide whether a cluster works without a registry. Reports objects that the user may not read
 * as findings. Kinds that the cluster does not serve have no objects. Throws all other errors of reading.
 */
export async function surveyCluster(cluster: Cluster): Promise<ClusterSurvey> {
  const findings: Finding[] = [];
  const list = async (apiVersion: string, kind: string): Promise<StoredObject[]> => {
    if (!(await cluster.findKind(apiVersion, kind))) {
      const earlier = earlierVersions.get(kind);
      return earlier === undefined || earlier === apiVersion ? [] : await list(earlier, kind);
    }
    const request = { verb: 'list', object: { apiVersion, kind, metadata: { name: '', namespace: '' } } } as const;
    const [denied] = await listDenied(cluster, [request]);
    if (denied === undefined) return await cluster.list(apiVersion, kind);
    findings.push(unknownFinding(denied, 'warning', kind, 'nothing is known about them'));
    return [];
  };
  const lists = new Map<string, readonly StoredObject[]>();
  const [workloads] = await Promise.all([
    Promise.all(workloadKinds.map(([apiVersion, kind]) => list(apiVersion, kind))),
    ...Object.entries(surveyedKinds).map(async ([name, [apiVersion, kind]]) =>
      lists.set(name, await list(apiVersion, kind)),
    ),
  ]);
  const listed = (name: keyof typeof surveyedKinds): readonly StoredObject[] => lists.get(name) ?? [];
  const nodes = listed('nodes');
  const [noSpace] = await listDenied(cluster, [spaceRequest]);
  // A request to a node that is down, or has no machine, would take long.
  const asked = noSpace === undefined ? nodes.filter((node) => isAnswering(readNode(node))) : [];
  if (noSpace !== undefined)
    findings.push(unknownFinding(noSpace, 'info', 'Node', 'the free space of nodes is unknown'));
  return {
    nodes,
    operators: listed('operators'),
    versions: listed('versions'),
    featureGates: listed('featureGates'),
    digestMirrors: listed('digestMirrors'),
    contentPolicies: listed('contentPolicies'),
    pools: listed('pools'),
    kubeletConfigs: listed('kubeletConfigs'),
    pinnedSets: listed('pinnedSets'),
    poolNodes: listed('poolNodes'),
    imagePolicies: listed('imagePolicies'),
    namespacedImagePolicies: listed('namespacedImagePolicies'),
    catalogs: listed('catalogs'),
    budgets: listed('budgets'),
    signingRequests: listed('signingRequests'),
    infrastructures: listed('infrastructures'),
    osImageStreams: listed('osImageStreams'),
    proxies: listed('proxies'),
    etcds: listed('etcds'),
    namespaces: listed('namespaces'),
    endpointSlices: listed('endpointSlices'),
    machines: listed('machines'),
    validatingWebhooks: listed('validatingWebhooks'),
    mutatingWebhooks: listed('mutatingWebhooks'),
    workloads: workloads.flat(),
    pinsImages: (await cluster.findKind(...surveyedKinds.pinnedSets)) !== undefined,
    disks: await askKubelets(asked, async (node) => readDisks(await cluster.get(pathOf(node, 'stats/summary')))),
    kubelets: await askKubelets(asked, async (node) => {
      const { kubeletconfig } = fieldsOf(await cluster.get(pathOf(node, 'configz')));
      return isFields(kubeletconfig) ? kubeletconfig : undefined;
    }),
    kubeletCertificates: await askKubelets(asked, (node) => readValidity(cluster, node)),
    findings,
  };
}

function isAnswering(node: ClusterNode): boolean {
  return node.ready && isPoolNode(node);
}

/** The right to ask kubelets for their free space. */
const spaceRequest: AccessRequest = {
  verb: 'get',
  object: { apiVersion: 'v1', kind: 'Node', metadata: { name: '' } },
  subresource: 'proxy',
};

/** Returns the finding for a right that the user lacks, as the arguments of `oc auth can-i`. */
function unknownFinding(denied: string, severity: 'warning' | 'info', kind: string, effect: string): Finding {
  const message = `you may not ${denied}: ${effect}`;
  const advice = 'Run this as a user with the right: cluster-reader is enough, except for the free space of nodes.';
  return { check: 'rights', severity, subject: { kind, name: '' }, message, advice };
}

/** Asks the kubelets of nodes; has no answer of a kubelet that does not report it, or may not be asked. */
async function askKubelets<Answer>(
  nodes: readonly StoredObject[],
  read: (node: string) => Promise<Answer | undefined>,
): Promise<Map<string, Answer>> {
  const answers = new Map<string, Answer>();
  for (let at = 0; at < nodes.length; at += batch) {
    const asked = nodes.slice(at, at + batch).map(async ({ metadata: { name } }) => {
      const answer = await read(encodeURIComponent(name)).catch(ignoreFailure);
      if (answer !== undefined) answers.set(name, answer);
    });
    await Promise.all(asked);
  }
  return answers;
}

/** Returns a path of the API server that leads to a kubelet. */
function pathOf(node: string, path: string): string {
  return `/api/v1/nodes/${node}/proxy/${path}`;
}

/** Reads the seconds until the client certificate of a kubelet expires from its metrics. */
async function readValidity(cluster: Cluster, node: string): Promise<number | undefined> {
  const metrics = await cluster.getText(pathOf(node, 'metrics'));
  const [, value] = /^kubelet_certificate_manager_client_ttl_seconds (\S+)$/m.exec(metrics) ?? [];
  return value !== undefined && Number.isFinite(Number(value)) ? Number(value) : undefined;
}

/** Returns the largest numbers of images that kubelets list: 50, and the values in KubeletConfigs. */
export function imageLimitsOf({ kubeletConfigs }: Pick<ClusterSurvey, 'kubeletConfigs'>): number[] {
  const given = kubeletConfigs
    .map(({ spec }) => fieldsAt(spec, 'kubeletConfig')['nodeStatusMaxImages'])
    .filter((limit) => typeof limit === 'number');
  return [50, ...given];
}

/** Returns the feature set of a cluster; undefined for the default one. */
export function featureSetOf(featureGates: readonly StoredObject[]): string | undefined {
  const gate = featureGates.find(({ metadata }) => metadata.name === 'cluster');
  const featureSet = textOf(fieldsOf(gate?.['spec'])['featureSet']);
  return featureSet === '' ? undefined : featureSet;
}

/**
 * Returns whether a mirror is the registry of InternalReleaseImage, which the machine config operator runs on control
 * plane nodes (openshift/machine-config-operator, templates/master/units/iri-registry.service.yaml). It has releases
 * that came with the installer, so it is no mirror for another one.
 */
export function isInternalRegistry(mirror: string): boolean {
  return /^(?:api-int\.[^/:]+|localhost):22625(?:\/|$)/.test(mirror);
}

/** The name of the ImageDigestMirrorSet of our mirrors on control plane nodes. */
export const ownMirrorSet = 'oc-upgrade-bundle';

/** The annotation of our ImageDigestMirrorSet that says what the mirrors keep; whole bundles without it. */
export const keptAnnotation = 'upgrade-bundle.openshift.io/mirror-content';

/** Returns whether an ImageDigestMirrorSet is that of our mirrors on control plane nodes. */
export function isOwnMirrorSet({ metadata }: StoredObject): boolean {
  return metadata.name === ownMirrorSet;
}

/** Returns whether control plane nodes keep whole bundles, because their mirrors have this ImageDigestMirrorSet. */
export function keepsBundles(set: StoredObject): boolean {
  return isOwnMirrorSet(set) && fieldsOf(set.metadata.annotations)[keptAnnotation] === undefined;
}

/**
 * Returns whether a mirror is configured for the images of a release. The registry of InternalReleaseImage and our
 * mirrors on the control plane do not count: they have no release that a registry could add.
 */
export function hasMirrors({ images }: { readonly images: readonly string[] }, survey: DigestMirrors): boolean {
  const sources = listRules(survey, 'site').flatMap(({ source, mirrors }) => (mirrors.length > 0 ? [source] : []));
  return images.some((image) => sources.some((source) => isImageOf(source, image)));
}

/**
 * Returns whether nodes have a configuration for exactly the repository of an image, also one without mirrors: a node
 * can then not give such images to its own runtime.
 */
export function hasRules(images: readonly string[], survey: DigestMirrors): boolean {
  const sources = new Set(listRules(survey, 'all').map(({ source }) => source));
  return images.some((image) => sources.has(repositoryIn(image)));
}

/** Returns whether the site has mirrors of any images by digest. */
export function hasSiteMirrors(survey: DigestMirrors): boolean {
  return listRules(survey, 'site').some(({ mirrors }) => mirrors.length > 0);
}

/** Returns whether an image by digest is in a repository, or below a part of a registry. */
export function isImageOf(source: string, image: string): boolean {
  return image.startsWith(`${source}@`) || image.startsWith(`${source}/`);
}

/**
 * Returns the mirrors of images by digest that a cluster has, without the registry of InternalReleaseImage. `which`:
 * those of the site, which other machines may reach, or ours on the control plane too.
 */
export function mirrorSetsOf(survey: DigestMirrors, which: 'site' | 'all' = 'site'): MirrorSets {
  return new MirrorSets(listRules(survey, which).map((rule) => ({ pulls: 'digest', contactSource: true, ...rule })));
}

/** The objects of a cluster that name mirrors of images by digest. */
export type DigestMirrors = Pick<ClusterSurvey, 'digestMirrors' | 'contentPolicies'>;

function listRules(
  { digestMirrors, contentPolicies }: DigestMirrors,
  which: 'site' | 'all',
): { source: string; mirrors: string[] }[] {
  const sets = digestMirrors.filter((set) => which === 'all' || !isOwnMirrorSet(set));
  const rules = [...sets, ...contentPolicies].flatMap(({ spec }) => [
    ...listOf(fieldsOf(spec)['imageDigestMirrors']),
    ...listOf(fieldsOf(spec)['repositoryDigestMirrors']),
  ]);
  return rules.flatMap(({ source, mirrors }) => {
    const name = textOf(source);
    const outside = textsOf(mirrors).filter((mirror) => !isInternalRegistry(mirror));
    return name === undefined ? [] : [{ source: name, mirrors: outside }];
  });
}
