import { isPluginError } from '../errors.ts';
import type { Cluster } from '../kubernetes/client.ts';
import type { StoredObject } from '../kubernetes/fields.ts';
import { fieldsAt, fieldsOf } from '../kubernetes/fields.ts';
import type { Finding } from '../kubernetes/finding.ts';
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
  catalogs: ['operators.coreos.com/v1alpha1', 'CatalogSource'],
} as const;

type Listing = Readonly<Record<keyof typeof kinds, readonly StoredObject[]>>;

/** The objects of a cluster that tell whether it can do without a registry. */
export interface ClusterSurvey extends Listing {
  readonly workloads: readonly StoredObject[];
  /** The cluster serves PinnedImageSet v1. */
  readonly pinsImages: boolean;
  /** Bytes that are free for images, by the name of the node, where it may be asked. */
  readonly free: ReadonlyMap<string, number>;
  /** What could not be read. */
  readonly findings: readonly Finding[];
}

/** How many nodes are asked at once. */
const batch = 16;

/**
 * Reads the objects that tell whether a cluster can do without a registry. What the user must not read is among the findings, what
 * the cluster does not serve is empty. Throws whatever else keeps it from reading.
 */
export async function surveyCluster(cluster: Cluster): Promise<ClusterSurvey> {
  const findings: Finding[] = [];
  const list = async (apiVersion: string, kind: string): Promise<StoredObject[]> => {
    if (!(await cluster.findKind(apiVersion, kind))) return [];
    try {
      return await cluster.list(apiVersion, kind);
    } catch (error) {
      if (!isPluginError(error, 'denied')) throw error;
      const message = `may not be listed by you, so nothing is known about them: ${error.message}`;
      const advice = 'Run this as a user who may (cluster-reader is enough, except for free space).';
      findings.push({ check: 'rights', severity: 'warning', subject: { kind, name: '' }, message, advice });
      return [];
    }
  };
  const lists = new Map<string, readonly StoredObject[]>();
  const [workloads] = await Promise.all([
    Promise.all(workloadKinds.map(([apiVersion, kind]) => list(apiVersion, kind))),
    ...Object.entries(kinds).map(async ([name, [apiVersion, kind]]) => lists.set(name, await list(apiVersion, kind))),
  ]);
  const listed = (name: keyof typeof kinds): readonly StoredObject[] => lists.get(name) ?? [];
  const nodes = listed('nodes');
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
    catalogs: listed('catalogs'),
    workloads: workloads.flat(),
    pinsImages: (await cluster.findKind(...kinds.pinnedSets)) !== undefined,
    // A node that is down keeps those waiting who ask it.
    free: await askForSpace(
      cluster,
      nodes.filter((node) => readNode(node).ready),
    ),
    findings,
  };
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

/** What the kubelet says is free where it keeps images (its Summary API); undefined where it does not, or we must not ask. */
async function readFree(cluster: Cluster, node: string): Promise<number | undefined> {
  try {
    const answer = await cluster.get(`/api/v1/nodes/${encodeURIComponent(node)}/proxy/stats/summary`);
    const { runtime, fs } = fieldsAt(answer, 'node');
    const known = [fieldsAt(runtime, 'imageFs'), fieldsOf(fs)].map(({ availableBytes }) => availableBytes);
    return known.find((bytes) => typeof bytes === 'number');
  } catch (error) {
    // Then its space is told of as unknown.
    if (isPluginError(error) && error.code !== 'interrupted') return undefined;
    throw error;
  }
}

/** The numbers of images that kubelets list at most: 50 unless a KubeletConfig says otherwise. */
export function imageLimitsOf({ kubeletConfigs }: Pick<ClusterSurvey, 'kubeletConfigs'>): number[] {
  const given = kubeletConfigs
    .map(({ spec }) => fieldsAt(spec, 'kubeletConfig')['nodeStatusMaxImages'])
    .filter((limit) => typeof limit === 'number');
  return [50, ...given];
}
