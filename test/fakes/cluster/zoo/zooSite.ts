import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { apiVersionOf } from '../../kubernetes/apiKinds.ts';
import type { Json } from '../../kubernetes/apiPatch.ts';
import type { TestApiServer } from '../../kubernetes/apiServer.ts';
import { infrastructure, node, platformImage, pod, withConditions, workload } from '../site.ts';

/** A site of the zoo: what is different from a usual cluster, and what must be found. README.md explains the fields. */
export interface ZooSite {
  /** The name of the file, without `.yaml`. */
  readonly name: string;
  readonly about: string;
  /** The public description of such a site. */
  readonly source: string;
  readonly topology?: string;
  readonly nodes?: readonly ZooNodes[];
  /** The names of pools that are paused. */
  readonly paused?: readonly string[];
  /** The images that no node has. Nodes have all other images that the objects name by digest. */
  readonly absent?: readonly string[];
  /** How the administrator reaches the cluster: `expired` with a client certificate that has expired. */
  readonly access?: 'expired';
  /** Objects as `oc get -o yaml` prints them. `repeat` makes several, with `{i}` replaced by their numbers. */
  readonly objects?: readonly (Json & { readonly repeat?: number })[];
  readonly expected: ZooExpectation;
}

/** Some equal nodes of a site. */
interface ZooNodes {
  readonly name: string;
  readonly count?: number;
  readonly roles: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly taints?: readonly Json[];
  readonly architecture?: string;
  readonly ready?: boolean;
  /** The seconds until the client certificate of the kubelet expires. */
  readonly certificate?: number;
  /** The file systems of the kubelet and of images, in GiB; one of 200 with 120 free by default. */
  readonly disk?: { readonly root: ZooDisk; readonly images?: ZooDisk };
}

interface ZooDisk {
  readonly size: number;
  readonly free: number;
}

/**
 * What must be found. A finding is `severity check object`, and then `: words` of its message if they matter. Other
 * findings than these may only inform.
 */
export interface ZooExpectation {
  /** The findings of `preflight`, or the code of its error. */
  readonly boot: readonly string[] | string;
  /** What `preflight BUNDLE` finds too, or the code of its error. */
  readonly update: readonly string[] | string;
  /** The blockers of the controller; by default the blockers of `preflight BUNDLE`. */
  readonly gate?: readonly string[];
  /** The code of the error of `install --dry-run`; none by default. */
  readonly install?: string;
  /** Words that `install --dry-run` says. */
  readonly says?: readonly string[];
}

const folder = fileURLToPath(new URL('sites', import.meta.url));
const gibibyte = 1024 ** 3;
const machines = 'machineconfiguration.openshift.io/v1';

/** Reads the sites of the zoo, sorted by their names. */
export async function readZoo(): Promise<ZooSite[]> {
  const files = (await readdir(folder)).sort();
  return await Promise.all(
    files.map(async (file) => ({
      ...(parse(await readFile(`${folder}/${file}`, 'utf8')) as Omit<ZooSite, 'name'>),
      name: file.replace(/\.yaml$/, ''),
    })),
  );
}

const usualDisk: NonNullable<ZooNodes['disk']> = { root: { size: 200, free: 120 } };
const usualNodes: readonly ZooNodes[] = [
  { name: 'master', count: 3, roles: ['control-plane', 'master'] },
  { name: 'worker', count: 2, roles: ['worker'] },
];

/** Fills a server with a site: what each OpenShift cluster of its topology has, and its own objects. */
export function furnishZooSite(server: TestApiServer, site: ZooSite): void {
  const { topology = 'HighlyAvailable', nodes = usualNodes, objects = [] } = site;
  const own = objects.flatMap(({ repeat = 0, ...object }) =>
    repeat === 0 ? [object] : Array.from({ length: repeat }, (_, index) => numbered(object, index)),
  );
  const all = nodes.flatMap((group) =>
    Array.from({ length: group.count ?? 1 }, (_, index) => ({ ...group, name: `${group.name}-${index}` })),
  );
  const images = [platformImage('a'), ...own.flatMap(listImages)].filter((image) => !site.absent?.includes(image));
  const usual = [infrastructure(topology), ...all.map((each) => makeNode(each, images)), ...makeSystem(all, topology)];
  const pools = topology === 'External' ? [] : makePools(all, site.paused ?? []);
  const put = [...usual, ...pools, ...own];
  const namespaces = new Set(put.flatMap((object) => (object['metadata'] as Json)['namespace'] ?? []));
  const named = put.filter(({ kind }) => kind === 'Namespace').map(({ metadata }) => (metadata as Json)['name']);
  for (const name of [...namespaces].filter((each) => !named.includes(each)))
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  // Namespaces come first.
  for (const object of put.toSorted((a, b) => Number(b['kind'] === 'Namespace') - Number(a['kind'] === 'Namespace'))) {
    serveKind(server, object);
    server.put(object);
  }
  for (const each of all) report(server, each);
}

function numbered(object: Json, index: number): Json {
  return JSON.parse(JSON.stringify(object).replaceAll('{i}', String(index))) as Json;
}

/** Returns the images in an object, which its nodes have then. */
function listImages(object: Json): string[] {
  return [...JSON.stringify(object).matchAll(/"image":"([^"]+@sha256:[^"]+)"/g)].flatMap(([, image]) => image ?? []);
}

/** Serves the kind of an object, as its CustomResourceDefinition does. */
function serveKind({ kinds }: TestApiServer, { apiVersion, kind, metadata }: Json): void {
  if (kinds.some((each) => apiVersionOf(each) === apiVersion && each.kind === kind)) return;
  const [group = '', version = ''] = String(apiVersion).split('/');
  const namespaced = (metadata as Json)['namespace'] !== undefined;
  const resource = `${String(kind).toLowerCase()}s`;
  kinds.push({ group, version, kind: String(kind), resource, namespaced, status: true, custom: true });
}

function makeNode(group: ZooNodes, images: readonly string[]): Json {
  const { name, roles, labels, taints, architecture = 'amd64', ready = true, disk = usualDisk } = group;
  const isTainted = roles.includes('master') && !roles.includes('worker');
  const master = { key: 'node-role.kubernetes.io/master', effect: 'NoSchedule' };
  const made = node(
    name,
    'worker',
    {
      nodeInfo: { architecture, operatingSystem: labels?.['kubernetes.io/os'] ?? 'linux', kubeletVersion: 'v1.33.5' },
      // The kubelet measures its own file system.
      capacity: { cpu: '16', memory: '64Gi', 'ephemeral-storage': `${disk.root.size}Gi` },
      allocatable: { cpu: '15500m', memory: '62Gi', 'ephemeral-storage': `${Math.floor(disk.root.size * 0.9)}Gi` },
      conditions: [
        { type: 'Ready', status: ready ? 'True' : 'Unknown', message: 'Kubelet stopped posting node status.' },
        { type: 'DiskPressure', status: 'False' },
      ],
      images: [...images, `quay.io/openshift-release-dev/ocp-release@sha256:${'1'.repeat(64)}`].map((image) => ({
        names: [image],
        sizeBytes: 1,
      })),
    },
    { taints: [...(isTainted ? [master] : []), ...(taints ?? [])] },
  );
  const roleLabels = Object.fromEntries(roles.map((role) => [`node-role.kubernetes.io/${role}`, '']));
  const usual = { 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': architecture, 'kubernetes.io/hostname': name };
  return { ...made, metadata: { name, labels: { ...usual, ...roleLabels, ...labels } } };
}

/** Lets the kubelet of a node report its file systems and its certificate. */
function report(server: TestApiServer, { name, disk = usualDisk, certificate = 30 * 86_400 }: ZooNodes): void {
  const { root, images = root } = disk;
  const measure = ({ size, free }: ZooDisk): Json => ({
    capacityBytes: size * gibibyte,
    availableBytes: free * gibibyte,
    usedBytes: (size - free) * gibibyte,
  });
  const runtime = { imageFs: measure(images), containerFs: measure(images) };
  server.nodeStats.set(name, { node: { nodeName: name, fs: measure(root), runtime } });
  server.nodeMetrics.set(name, `kubelet_certificate_manager_client_ttl_seconds ${certificate}\n`);
}

/** What OpenShift itself runs, and the checks read. */
function makeSystem(nodes: readonly ZooNodes[], topology: string): Json[] {
  const healthy = { Available: 'True', Degraded: 'False', Progressing: 'False', Upgradeable: 'True' };
  const operators = ['dns', 'ingress', 'monitoring', 'network', ...(topology === 'External' ? [] : hostOperators)];
  const members = nodes.filter(({ roles }) => roles.includes('master') || roles.includes('arbiter'));
  const linux = {
    spec: { nodeSelector: { 'kubernetes.io/os': 'linux' }, containers: [{ name: 'main', image: platformImage('a') }] },
  };
  const everywhere = { spec: { ...linux.spec, tolerations: [{ operator: 'Exists' }] } };
  const daemon = { name: 'machine-config-daemon', image: platformImage('a') };
  const own =
    topology === 'External'
      ? []
      : [
          withConditions('operator.openshift.io/v1', 'Etcd', 'cluster', {
            EtcdMembersAvailable: `True because ${members.length} members are available`,
          }),
          workload('DaemonSet', 'machine-config-daemon', 'openshift-machine-config-operator', {
            template: { spec: { ...everywhere.spec, containers: [daemon] } },
          }),
          ...members.map(({ name }) => pod(`etcd-${name}`, 'openshift-etcd', { nodeName: name }, `Node/${name}`)),
        ];
  return [
    ...operators.map((name) => withConditions('config.openshift.io/v1', 'ClusterOperator', name, healthy)),
    workload('DaemonSet', 'dns-default', 'openshift-dns', { template: linux }),
    workload('DaemonSet', 'node-exporter', 'openshift-monitoring', { template: everywhere }),
    ...makeRouter(nodes, linux),
    ...own,
  ];
}

const hostOperators = ['etcd', 'kube-apiserver', 'machine-config'];

/** The ingress of a cluster: a budget that allows to evict one pod, if there are two. */
function makeRouter(nodes: readonly ZooNodes[], template: Json): Json[] {
  const namespace = 'openshift-ingress';
  const places = nodes.filter(
    ({ roles, labels }) => roles.includes('worker') && labels?.['kubernetes.io/os'] === undefined,
  );
  const labels = { 'ingresscontroller.operator.openshift.io/deployment-ingresscontroller': 'default' };
  const pods = places.slice(0, 2).map(({ name }, index) => {
    const made = pod(`router-default-${index}`, namespace, { nodeName: name }, 'ReplicaSet/router-default-6d7b9');
    return { ...made, metadata: { ...made.metadata, labels } };
  });
  const status = { disruptionsAllowed: 1, currentHealthy: 2, desiredHealthy: 1, expectedPods: 2 };
  const metadata = { name: 'router-default', namespace };
  const budget = { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata, status };
  const spec = { minAvailable: 1, selector: { matchLabels: labels } };
  return [
    workload('Deployment', 'router-default', namespace, { replicas: pods.length, template }),
    ...pods,
    ...(pods.length > 1 ? [{ ...budget, spec }] : []),
  ];
}

/** The pools of the roles of nodes: a node with several roles is in the pool of its own role, not in `worker`. */
function makePools(nodes: readonly ZooNodes[], paused: readonly string[]): Json[] {
  const managed = nodes.filter(
    ({ labels }) => labels?.['kubernetes.io/os'] === undefined && labels?.['type'] === undefined,
  );
  const poolOf = ({ roles }: ZooNodes): string =>
    roles.includes('master')
      ? 'master'
      : (roles.find((role) => !['worker', 'control-plane'].includes(role)) ?? 'worker');
  const names = [...new Set(['master', 'worker', ...managed.map(poolOf)])];
  const pools = names.map((name) => {
    const count = managed.filter((each) => poolOf(each) === name).length;
    const made = withConditions(machines, 'MachineConfigPool', name, {
      Updated: 'True',
      Updating: 'False',
      Degraded: 'False',
      NodeDegraded: 'False',
    });
    const roles = ['master', 'worker', 'arbiter'].includes(name) ? [name] : ['worker', name];
    const key = 'machineconfiguration.openshift.io/role';
    const machineConfigSelector = { matchExpressions: [{ key, operator: 'In', values: roles }] };
    const nodeSelector = { matchLabels: { [`node-role.kubernetes.io/${name}`]: '' } };
    const counts = { machineCount: count, readyMachineCount: count, updatedMachineCount: count };
    return {
      ...made,
      spec: { machineConfigSelector, nodeSelector, ...(paused.includes(name) && { paused: true }) },
      status: { ...(made['status'] as Json), ...counts },
    };
  });
  const states = managed.map((each) => ({
    ...withConditions(machines, 'MachineConfigNode', each.name, { Updated: 'True' }),
    spec: { node: { name: each.name }, pool: { name: poolOf(each) } },
  }));
  return [...pools, ...states];
}
