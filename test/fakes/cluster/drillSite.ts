import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { stringify } from 'yaml';
import { drillTraces } from '../../../lib/node/runtime/drillRegistry.ts';
import { runningDrillAnnotation } from '../../../lib/readiness/preflight/drillRecord.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import type { Attempt } from '../kubernetes/apiAccess.ts';
import type { ApiObject, Change } from '../kubernetes/apiObjects.ts';
import { mergePatch, type Json } from '../kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../kubernetes/apiServer.ts';
import { furnish, pod } from './site.ts';
import { SystemdNode } from './systemdNode.ts';
import { furnishTopology, type Topology } from './topologies.ts';

/** The node of a usual site that is real. */
export const drilled = 'worker-0';

/** The topology of a site that is not the usual one, its real node, and the node to which pods move. */
export interface DrillPlace {
  readonly topology?: Topology;
  readonly name: string;
  readonly other: string;
}

/** A cluster with one real node: systemd, its units and its files. This process is its kubelet and all controllers. */
export class DrillSite {
  readonly server: TestApiServer;
  readonly node: SystemdNode;
  /** The requests that were denied. */
  readonly denied: readonly string[];
  readonly #place: DrillPlace;
  readonly #folder: string;
  readonly #connected: ConnectedCluster;
  #boots = 0;
  #stopped = false;
  #rebooting: Promise<void>;

  private constructor(parts: {
    server: TestApiServer;
    node: SystemdNode;
    folder: string;
    connected: ConnectedCluster;
    denied: string[];
    place: DrillPlace;
  }) {
    this.#place = parts.place;
    this.server = parts.server;
    this.node = parts.node;
    this.denied = parts.denied;
    this.#folder = parts.folder;
    this.#connected = parts.connected;
    this.#rebooting = this.#powerOn();
    this.server.objects.on('change', (change) => queueMicrotask(() => this.#replace(change)));
  }

  /** Starts a site. At each start, the container runtime of the node asks for the images `pulls`. */
  static async start(
    pulls: readonly string[] = [],
    at: DrillPlace = { name: drilled, other: 'worker-1' },
  ): Promise<DrillSite> {
    const { name: own, topology } = at;
    const folder = await makeFolder();
    const denied: string[] = [];
    const allow = (attempt: Attempt): boolean => {
      const { user, resource, verb, name } = attempt;
      const isOwnNode = resource === 'nodes' && name === own && (verb === 'get' || verb === 'patch');
      if (user !== `system:node:${own}` || isOwnNode) return true;
      denied.push(`${verb} ${resource}/${name}`);
      return false;
    };
    const tokens = new Map([
      ['admin', 'admin'],
      ['kubelet', `system:node:${own}`],
    ]);
    const server = await startApiServer({ openshift: '4.19.3', tokens, allow });
    furnish(server);
    if (topology) furnishTopology(topology, server);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const kubeconfig = stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'kubelet',
      clusters: [{ name: 'here', cluster: { server: server.url } }],
      users: [{ name: 'kubelet', user: { token: 'kubelet' } }],
      contexts: [{ name: 'kubelet', context: { cluster: 'here', user: 'kubelet' } }],
    });
    const place = join(folder, own);
    await mkdir(place);
    const node = await SystemdNode.make(own, place, {
      '/etc/containers/registries.conf':
        'unqualified-search-registries = ["registry.access.redhat.com"]\n[[registry]]\nprefix = ' +
        '"quay.io/site"\nlocation = "quay.io/site"\n' +
        '[[registry.mirror]]\nlocation = "mirror.site.test:5000/site"\n',
      '/etc/crio-pulls': `${pulls.join('\n')}\n`,
      '/var/lib/kubelet/kubeconfig': kubeconfig,
    });
    const connected = await connectTo(server, { user: { token: 'admin' } });
    await writeFile(join(folder, 'kubeconfig'), kubeconfig.replaceAll('kubelet', 'admin'));
    const site = new DrillSite({ server, node, folder, connected, denied, place: at });
    await site.#rebooting;
    return site;
  }

  /** The path of the kubeconfig of an administrator. */
  get kubeconfig(): string {
    return join(this.#folder, 'kubeconfig');
  }

  /** The connection of an administrator. */
  get connected(): ConnectedCluster {
    return this.#connected;
  }

  /** Boots the node, and again after each shutdown, as a machine does that was rebooted. */
  async #powerOn(): Promise<void> {
    await this.node.boot();
    this.#boots += 1;
    const { root, podCommand } = this.node;
    this.server.nodeRoots.set(this.#place.name, root);
    this.server.podCommands.set(this.#place.name, podCommand);
    const { name: own } = this.#place;
    if (this.#boots === 1) {
      this.#putPod('dns-default-x', 'openshift-dns', 'DaemonSet/dns-default', own);
      this.#putPod(`agent-${own}`, 'oc-upgrade-bundle', 'DaemonSet/agent', own);
      this.#putPod('router-1', 'openshift-ingress', 'ReplicaSet/router', own);
    }
    for (const { metadata } of this.#pods()) this.#run(metadata.name, metadata.namespace ?? '');
    this.#change('Node', this.#place.name, '', { status: this.#nodeStatus('True') });
    void this.#watchPower();
  }

  async #watchPower(): Promise<void> {
    while (this.node.isUp) await sleep(20);
    this.server.nodeRoots.delete(this.#place.name);
    if (this.#stopped) return;
    this.#change('Node', this.#place.name, '', { status: this.#nodeStatus('Unknown') });
    this.#rebooting = this.#powerOn();
  }

  /** Cuts the power of the node, and waits until it runs again. */
  async cutPower(): Promise<void> {
    const before = this.#boots;
    await this.node.cutPower();
    await this.until(() => this.#boots > before);
  }

  /** Marks a pod of the node as one that cannot start, as its kubelet does. */
  breakPod(name: string, namespace: string, message: string): void {
    const state = { waiting: { reason: 'ImagePullBackOff', message } };
    const conditions = [{ type: 'Ready', status: 'False' }];
    this.#change('Pod', name, namespace, { status: { conditions, containerStatuses: [{ name: 'main', state }] } });
  }

  /** The Node object of the node. */
  get object(): ApiObject {
    return demand(this.server.find('v1', 'Node', this.#place.name));
  }

  /** Whether the Node object says that a drill is running. */
  get isClaimed(): boolean {
    const { annotations = {} } = this.object.metadata as { annotations?: Json };
    return annotations[runningDrillAnnotation] !== undefined;
  }

  /** Returns what a drill has left on the node and in its Node object, or else in systemd; empty if it is as before. */
  async traces(): Promise<string[]> {
    const found = await Promise.all(drillTraces.map(async (path) => ((await this.node.has(path)) ? [path] : [])));
    const { unschedulable } = this.object['spec'] as { unschedulable?: boolean };
    const traces = [
      ...found.flat(),
      ...(this.isClaimed ? [runningDrillAnnotation] : []),
      ...(unschedulable === true ? ['cordoned'] : []),
    ];
    // Asking systemd takes three processes, and tests ask again until nothing is left.
    if (traces.length > 0) return traces;
    const units = (await this.node.tryRun('systemctl', 'list-units', '--all', '--plain', '--no-legend')).split('\n');
    // Without a notification of cgroups, systemd keeps units in its memory that have ended.
    return units.filter(
      (line) => line.includes('oc-upgrade-bundle') && !/ (inactive|failed) +(dead|failed) /.test(line),
    );
  }

  /** The last line of the container runtime: whether it redirects its registries. */
  async runtimeState(): Promise<string> {
    return ((await this.node.read('/var/log/crio')) ?? '').trim().split('\n').at(-1) ?? '';
  }

  /** Waits until a condition is true; after two minutes, throws an error. */
  async until(holds: () => unknown): Promise<void> {
    const end = Date.now() + 120_000;
    while (!(await holds())) {
      if (Date.now() > end)
        throw new Error(`it never came to that: ${(await this.traces()).join()}\n${await this.node.console}`);
      await sleep(50);
    }
  }

  async close(): Promise<void> {
    this.#stopped = true;
    await this.#rebooting.catch(() => undefined);
    await this.node.close();
    await this.#connected.close();
    await this.server.stop();
    await removeFolder(this.#folder);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #pods(): ApiObject[] {
    const kind = this.server.kinds.find((known) => known.kind === 'Pod');
    return (kind ? this.server.objects.list(kind, '') : []).filter(
      ({ spec }) => (spec as { nodeName?: string }).nodeName === this.#place.name,
    );
  }

  #putPod(name: string, namespace: string, owner: string, nodeName: string): void {
    const [app = ''] = name.split('-');
    const made = pod(
      name,
      namespace,
      { nodeName, containers: [{ name: app, image: `quay.io/site/${app}@sha256:${'a'.repeat(64)}` }] },
      owner,
    );
    this.server.put({ ...made, metadata: { ...made.metadata, labels: { app } } });
    this.#run(name, namespace);
  }

  /** Starts new containers of a pod, as a kubelet does after a boot. */
  #run(name: string, namespace: string): void {
    const { spec } = demand(this.server.find('v1', 'Pod', name, namespace));
    const { containers } = spec as { containers: { name: string }[] };
    const containerStatuses = containers.map((each) => ({
      name: each.name,
      containerID: `cri-o://${name}-${this.#boots}`,
      state: { running: {} },
    }));
    const conditions = [{ type: 'Ready', status: 'True' }];
    this.#change('Pod', name, namespace, { status: { phase: 'Running', conditions, containerStatuses } });
  }

  /** Creates a pod for an evicted one, on another node, as its ReplicaSet and the scheduler do. */
  #replace({ type, object }: Change): void {
    const {
      ownerReferences = [],
      name,
      namespace = '',
    } = object.metadata as {
      ownerReferences?: { kind: string; name: string }[];
      name: string;
      namespace?: string;
    };
    const [owner] = ownerReferences;
    if (type !== 'DELETED' || object.kind !== 'Pod' || owner?.kind !== 'ReplicaSet' || this.#stopped) return;
    this.#putPod(`${name}-again`, namespace, `ReplicaSet/${owner.name}`, this.#place.other);
  }

  #nodeStatus(ready: string): Json {
    const { conditions, nodeInfo } = this.object['status'] as { conditions: Json[]; nodeInfo: Json };
    return {
      conditions: conditions.map((each) => (each['type'] === 'Ready' ? { ...each, status: ready } : each)),
      nodeInfo: { ...nodeInfo, bootID: `boot-${this.#boots}` },
    };
  }

  #change(kind: string, name: string, namespace: string, fields: Json): void {
    const object = this.server.find('v1', kind, name, namespace);
    const found = this.server.kinds.find((known) => known.kind === kind);
    if (!object || !found) return;
    const writing = { manager: 'kubelet', dryRun: false, status: true };
    this.server.objects.replace({ kind: found, namespace, name }, mergePatch(object, fields) as Json, writing);
  }
}

function demand(object: ApiObject | undefined): ApiObject {
  if (object) return object;
  throw new Error('there is no such object');
}
