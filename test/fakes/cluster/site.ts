import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { formatNodeReport, type MirrorState } from '../../../lib/update/record/nodeReport.ts';
import type { Json } from '../kubernetes/apiPatch.ts';
import type { TestApiServer } from '../kubernetes/apiServer.ts';

const gibibyte = 1024 ** 3;
const digest = (digit: string): string => `sha256:${digit.repeat(64)}`;

/** An image of the platform, by digest; `digit` is any hex digit. */
export const platformImage = (digit: string): string =>
  `quay.io/openshift-release-dev/ocp-v4.0-art-dev@${digest(digit)}`;

/** A pod spec with one container; an image by digest, `IfNotPresent`. */
export const podSpec = (container: Json = {}, more: Json = {}): Json => ({
  containers: [{ name: 'main', image: platformImage('a'), imagePullPolicy: 'IfNotPresent', ...container }],
  ...more,
});

/** A workload of a kind that has a pod template. */
export function workload(kind: string, name: string, namespace: string, spec: Json = {}, metadata: Json = {}): Json {
  return {
    apiVersion: kind === 'Job' ? 'batch/v1' : 'apps/v1',
    kind,
    metadata: { name, namespace, ...metadata },
    spec: { ...(kind === 'Deployment' && { replicas: 1 }), template: { spec: podSpec() }, ...spec },
  };
}

/** A pod of a controller, with the name `Kind/name`; '' for none. */
export function pod(name: string, namespace: string, spec: Json = {}, owner = ''): StoredObject {
  const [kind, ownerName] = owner.split('/');
  const ownerReferences = owner === '' ? [] : [{ apiVersion: 'v1', kind, name: ownerName, uid: 'x', controller: true }];
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace, ownerReferences },
    spec: { ...podSpec(), nodeName: 'worker-0', ...spec },
    status: { phase: 'Running' },
  };
}

/** A healthy node that has the images of a site. */
export function node(name: string, role: 'master' | 'worker', status: Json = {}, spec: Json = {}): StoredObject {
  const taints = role === 'master' ? [{ key: 'node-role.kubernetes.io/master', effect: 'NoSchedule' }] : [];
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { [`node-role.kubernetes.io/${role}`]: '', 'kubernetes.io/os': 'linux' } },
    spec: { taints, ...spec },
    status: {
      nodeInfo: { architecture: 'amd64' },
      capacity: { 'ephemeral-storage': '125293548Ki' },
      allocatable: { 'ephemeral-storage': '115470533646' },
      conditions: [
        { type: 'Ready', status: 'True' },
        { type: 'DiskPressure', status: 'False' },
      ],
      images: [
        { names: [platformImage('a')], sizeBytes: 1 },
        { names: [`quay.io/openshift-release-dev/ocp-release@${digest('1')}`], sizeBytes: 1 },
      ],
      ...status,
    },
  };
}

/**
 * Nodes on which no agent runs: of Windows, and of virtual kubelets with the usual label, or with their taint alone.
 */
export const nodesWithoutAgent: readonly StoredObject[] = [
  labelled(node('win-0', 'worker', {}, { taints: [{ key: 'os', value: 'Windows', effect: 'NoSchedule' }] }), {
    'kubernetes.io/os': 'windows',
  }),
  labelled(node('aci-0', 'worker'), { type: 'virtual-kubelet' }),
  labelled(node('admiralty-0', 'worker'), { 'virtual-kubelet.io/provider': 'admiralty' }),
  node('kwok-0', 'worker', { nodeInfo: { architecture: 'amd64', kubeletVersion: 'kwok-v0.7.0' } }),
  node('tainted-0', 'worker', {}, { taints: [{ key: 'virtual-kubelet.io/provider', effect: 'NoSchedule' }] }),
];

function labelled(object: StoredObject, more: Readonly<Record<string, string>>): StoredObject {
  return { ...object, metadata: { ...object.metadata, labels: { ...object.metadata.labels, ...more } } };
}

/** The Infrastructure of a cluster with a topology of its control plane: `SingleReplica`, `External`. */
export function infrastructure(controlPlaneTopology: string): StoredObject {
  const status = { controlPlaneTopology, infrastructureTopology: 'HighlyAvailable' };
  return { apiVersion: 'config.openshift.io/v1', kind: 'Infrastructure', metadata: { name: 'cluster' }, status };
}

/** An object with conditions in its status, such as `Degraded: 'True'`. */
export function withConditions(
  apiVersion: string,
  kind: string,
  name: string,
  conditions: Record<string, string>,
): StoredObject {
  const list = Object.entries(conditions).map(([type, value]) => {
    const [status = '', message = ''] = value.split(' because ');
    return { type, status, reason: 'Test', message };
  });
  return { apiVersion, kind, metadata: { name }, spec: {}, status: { conditions: list } };
}

/** Fills a server with a small healthy site: three nodes, two pools, operators, and workloads that need no registry. */
export function furnish(server: TestApiServer): void {
  const namespaces = ['openshift-ingress', 'openshift-etcd', 'openshift-dns', 'openshift-marketplace', 'shop'];
  for (const name of namespaces) server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  for (const object of [node('master-0', 'master'), node('worker-0', 'worker'), node('worker-1', 'worker')]) {
    server.put(object);
  }
  for (const name of ['master-0', 'worker-0', 'worker-1']) setFree(server, name, 90);
  const healthy = { Available: 'True', Degraded: 'False', Upgradeable: 'True' };
  for (const name of ['etcd', 'ingress']) {
    server.put(withConditions('config.openshift.io/v1', 'ClusterOperator', name, healthy));
  }
  for (const name of ['master', 'worker']) {
    const pool = { Updated: 'True', Updating: 'False', Degraded: 'False' };
    server.put(withConditions('machineconfiguration.openshift.io/v1', 'MachineConfigPool', name, pool));
  }
  server.put(workload('Deployment', 'router', 'openshift-ingress'));
  server.put(workload('DaemonSet', 'dns', 'openshift-dns'));
  server.put(pod('etcd-master-0', 'openshift-etcd', { nodeName: 'master-0' }, 'Node/master-0'));
}

/** Sets the free space of a node, in GiB. One file system has everything. */
export function setFree(server: TestApiServer, name: string, free: number): void {
  const fs = { availableBytes: free * gibibyte, capacityBytes: 125_293_548 * 1024, inodes: 62_651_840 };
  server.nodeStats.set(name, { node: { nodeName: name, fs, runtime: { imageFs: fs } } });
}

/** Stores the report of an agent without a bundle, about the mirror of its node. */
export function reportMirror(
  server: TestApiServer,
  name: string,
  { versions = [], port = 9690, lacking = [], ...more }: Partial<Omit<MirrorState, 'requests'>> = {},
): void {
  const progress = { name, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
  const mirror = { versions, port, ...more, requests: 0, lacking };
  server.put(formatNodeReport({ bundle: '', progress, mirror }));
}
