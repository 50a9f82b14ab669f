import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '../fields.ts';
import { isPluginError } from '../errors.ts';
import type { Cluster } from '../kubernetes/client.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import type { Finding, Severity } from '../kubernetes/finding.ts';
import { listDenied, type AccessRequest } from '../kubernetes/accessReview.ts';
import { MirrorSets } from '../registry/mirrors.ts';
import { readNode } from './node.ts';
import { workloadKinds } from './podTemplate.ts';

const kinds = {
  nodes: ['v1', 'Node'],
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
} as const;

type Listing = Readonly<Record<keyof typeof kinds, readonly StoredObject[]>>;

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
  /** The free bytes for images, by the name of the node, for nodes that the user may ask. */
  readonly free: ReadonlyMap<string, number>;
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
    findings.push(lackOf(denied, 'warning', kind, 'nothing is known about them'));
    return [];
  };
  const lists = new Map<string, readonly StoredObject[]>();
  const [workloads] = await Promise.all([
    Promise.all(workloadKinds.map(([apiVersion, kind]) => list(apiVersion, kind))),
    ...Object.entries(kinds).map(async ([name, [apiVersion, kind]]) => lists.set(name, await list(apiVersion, kind))),
  ]);
  const listed = (name: keyof typeof kinds): readonly StoredObject[] => lists.get(name) ?? [];
  const nodes = listed('nodes');
  const [noSpace] = await listDenied(cluster, [spaceRequest]);
  if (noSpace !== undefined) findings.push(lackOf(noSpace, 'info', 'Node', 'the free space of nodes is unknown'));
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
    workloads: workloads.flat(),
    pinsImages: (await cluster.findKind(...kinds.pinnedSets)) !== undefined,
    // A request to a node that is down would take long.
    free: await askForSpace(cluster, noSpace === undefined ? nodes.filter((node) => readNode(node).ready) : []),
    findings,
  };
}

/** The right to ask kubelets for their free space. */
const spaceRequest: AccessRequest = {
  verb: 'get',
  object: { apiVersion: 'v1', kind: 'Node', metadata: { name: '' } },
  subresource: 'proxy',
};

/** Returns the finding for a right that the user lacks, as the arguments of `oc auth can-i`. */
function lackOf(denied: string, severity: Severity, kind: string, effect: string): Finding {
  const message = `you may not ${denied}: ${effect}`;
  const advice = 'Run this as a user with the right: cluster-reader is enough, except for the free space of nodes.';
  return { check: 'rights', severity, subject: { kind, name: '' }, message, advice };
}

async function askForSpace(cluster: Cluster, nodes: readonly StoredObject[]): Promise<Map<string, number>> {
  const free = new Map<string, number>();
  for (let at = 0; at < nodes.length; at += batch) {
    const asked = nodes.slice(at, at + batch).map(async ({ metadata: { name } }) => {
      const bytes = await readFree(cluster, name);
      if (bytes !== undefined) free.set(name, bytes);
    });
    await Promise.all(asked);
  }
  return free;
}

/**
 * Reads the free bytes for images from the kubelet’s Summary API; undefined if it does not report them, or if the user
 * may not ask.
 */
async function readFree(cluster: Cluster, node: string): Promise<number | undefined> {
  try {
    const answer = await cluster.get(`/api/v1/nodes/${encodeURIComponent(node)}/proxy/stats/summary`);
    const { runtime, fs } = fieldsAt(answer, 'node');
    const known = [fieldsAt(runtime, 'imageFs'), fieldsOf(fs)].map(({ availableBytes }) => availableBytes);
    return known.find((bytes) => typeof bytes === 'number');
  } catch (error) {
    // The free space is then reported as unknown.
    if (isPluginError(error) && error.code !== 'interrupted') return undefined;
    throw error;
  }
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

/** Returns whether a mirror is configured for the images of a release, other than that of InternalReleaseImage. */
export function hasMirrors({ images }: { readonly images: readonly string[] }, survey: DigestMirrors): boolean {
  const sources = listRules(survey).flatMap(({ source, mirrors }) => (mirrors.length > 0 ? [source] : []));
  return images.some((image) =>
    sources.some((source) => image.startsWith(`${source}@`) || image.startsWith(`${source}/`)),
  );
}

/** Returns the mirrors of images by digest that a cluster has, without the registry of InternalReleaseImage. */
export function mirrorSetsOf(survey: DigestMirrors): MirrorSets {
  return new MirrorSets(listRules(survey).map((rule) => ({ pulls: 'digest', contactSource: true, ...rule })));
}

type DigestMirrors = Pick<ClusterSurvey, 'digestMirrors' | 'contentPolicies'>;

function listRules({ digestMirrors, contentPolicies }: DigestMirrors): { source: string; mirrors: string[] }[] {
  const rules = [...digestMirrors, ...contentPolicies].flatMap(({ spec }) => [
    ...listOf(fieldsOf(spec)['imageDigestMirrors']),
    ...listOf(fieldsOf(spec)['repositoryDigestMirrors']),
  ]);
  return rules.flatMap(({ source, mirrors }) => {
    const name = textOf(source);
    const outside = textsOf(mirrors).filter((mirror) => !isInternalRegistry(mirror));
    return name === undefined ? [] : [{ source: name, mirrors: outside }];
  });
}
