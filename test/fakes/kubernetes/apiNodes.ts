import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { copyFile, mkdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { executablePath } from '../../../lib/node/machine/host.ts';
import type { ApiObject, Change } from './apiObjects.ts';
import type { Json } from './apiPatch.ts';
import type { TestApiServer } from './apiServer.ts';

interface ReadinessProbe {
  readonly exec: { readonly command: readonly string[] };
}

/** A requirement of a node selector on a label. */
interface Requirement {
  readonly key: string;
  readonly operator: 'Exists' | 'DoesNotExist' | 'In' | 'NotIn';
  readonly values?: readonly unknown[];
}

/** What of a pod spec decides about the labels of its nodes. */
interface Placement {
  readonly nodeSelector?: Json;
  readonly affinity?: {
    readonly nodeAffinity: {
      readonly requiredDuringSchedulingIgnoredDuringExecution: {
        readonly nodeSelectorTerms: readonly { readonly matchExpressions: readonly Requirement[] }[];
      };
    };
  };
}

interface Template {
  readonly metadata: Json;
  readonly spec: Json &
    Placement & {
      containers: {
        name: string;
        command?: string[];
        env?: { name: string; value?: string }[];
        readinessProbe?: ReadinessProbe;
      }[];
    };
}

/**
 * The kubelets of an API server’s nodes, and the controller of DaemonSets. Each node gets a pod of each DaemonSet. The
 * pod is ready if its node has the executable that the template names. A node without a folder in `server.nodeRoots`
 * has no kubelet.
 */
export class TestKubelets {
  /** Whether nodes fetch the executable from each other, as agents do. */
  sharing = true;
  /** The reasons why the containers of a node do not run, by the names of the nodes: `ImagePullBackOff`. */
  readonly troubles = new Map<string, string>();
  readonly #server: TestApiServer;
  readonly #containers = new Map<string, ChildProcess>();
  readonly #digests = new Map<string, { readonly state: string; readonly digest: string }>();
  readonly #working: Promise<void>;
  #stopped = false;

  constructor(server: TestApiServer) {
    this.#server = server;
    server.objects.on('change', this.#notice);
    this.#working = this.#work();
  }

  /** Stops all of them. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const container of this.#containers.values()) container.kill('SIGKILL');
    this.#server.objects.off('change', this.#notice);
    await this.#working;
  }

  readonly #notice = ({ type, kind, object }: Change): void => {
    if (kind.kind !== 'DaemonSet') return;
    const { generation } = object.metadata;
    const { observedGeneration } = (object['status'] ?? {}) as Json;
    if (type === 'DELETED') this.#removePods(object.metadata.name);
    else if (observedGeneration !== generation) queueMicrotask(() => this.#roll(object.metadata.name));
  };

  get #sets(): Json[] {
    return this.#all('apps', 'daemonsets').filter(
      ({ metadata }) => (metadata as Json)['namespace'] === 'oc-upgrade-bundle',
    );
  }

  #all(group: string, resource: string): Json[] {
    const kind = this.#server.kinds.find((each) => each.group === group && each.resource === resource);
    return kind ? this.#server.objects.list(kind, '') : [];
  }

  /** Returns the nodes with a pod of a DaemonSet, sorted. */
  podsOf(set: string): string[] {
    const pods = this.#all('', 'pods').filter((pod) => nameOf(pod).startsWith(`${set}-`));
    return pods.map((pod) => String((pod['spec'] as Json)['nodeName'])).sort();
  }

  #removePods(set: string): void {
    const kind = this.#server.kinds.find((each) => each.group === '' && each.resource === 'pods');
    if (!kind) return;
    for (const { metadata } of this.#server.objects.list(kind, 'oc-upgrade-bundle')) {
      const { name, uid } = metadata;
      const place = { kind, namespace: 'oc-upgrade-bundle', name };
      if (!name.startsWith(`${set}-`)) continue;
      this.#server.objects.delete(place, {}, false);
      this.#containers.get(uid)?.kill('SIGKILL');
      this.#containers.delete(uid);
    }
  }

  /** Replaces the pod of a DaemonSet on each node. */
  #roll(name: string): void {
    const set = this.#server.find('apps/v1', 'DaemonSet', name, 'oc-upgrade-bundle');
    if (!set) return;
    const { generation } = set.metadata;
    this.#removePods(name);
    const { template } = set['spec'] as { template: Template };
    const nodes = this.#all('', 'nodes')
      .map(({ metadata }) => metadata as { name: string; labels?: Json })
      .filter(({ labels = {} }) => isPlaced(template.spec, labels))
      .map(({ name }) => name);
    for (const node of nodes) {
      this.#server.put({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: {
          ...template.metadata,
          name: `${name}-${node}-${String(generation)}`,
          namespace: 'oc-upgrade-bundle',
        },
        spec: { ...template.spec, nodeName: node },
        status: this.#statusOf(node, false),
      });
    }
    const desired = nodes.length;
    const status = { observedGeneration: generation, desiredNumberScheduled: desired, updatedNumberScheduled: desired };
    this.#setStatus(set, { ...status, numberReady: 0 });
  }

  #statusOf(node: string, ready: boolean): Json {
    const trouble = this.troubles.get(node);
    const alive = this.#server.nodeRoots.has(node) && trouble === undefined;
    const state = alive ? { running: {} } : { waiting: { reason: trouble ?? 'ContainerCreating' } };
    return {
      phase: alive ? 'Running' : 'Pending',
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
      containerStatuses: [{ name: 'agent', ready, restartCount: 0, state }],
    };
  }

  async #work(): Promise<void> {
    while (!this.#stopped) {
      await sleep(50);
      await this.#look();
    }
  }

  async #look(): Promise<void> {
    for (const set of this.#sets) {
      const { name } = set['metadata'] as { name: string };
      const pods = this.#all('', 'pods').filter((pod) => nameOf(pod).startsWith(`${name}-`));
      let count = 0;
      for (const pod of pods) count += (await this.#lookAt(pod)) ? 1 : 0;
      const now = this.#server.find('apps/v1', 'DaemonSet', name, 'oc-upgrade-bundle');
      const status = (now?.['status'] ?? {}) as Json;
      if (now && status['observedGeneration'] === now.metadata['generation'] && status['numberReady'] !== count) {
        this.#setStatus(now, { ...status, numberReady: count });
      }
    }
  }

  #setStatus(object: ApiObject, status: Json): void {
    const kind = this.#server.kinds.find((each) => each.kind === object.kind);
    const { name, namespace = '' } = object.metadata;
    const writing = { manager: 'kubelet', dryRun: false, status: true };
    if (kind) this.#server.objects.replace({ kind, namespace, name }, { ...object, status }, writing);
  }

  /** Returns whether a pod is ready, and writes a change to its status. */
  async #lookAt(pod: Json): Promise<boolean> {
    const { nodeName: node, containers } = pod['spec'] as { nodeName: string } & Template['spec'];
    const root = this.#server.nodeRoots.get(node);
    const digests = (containers[0]?.env ?? [])
      .filter(({ name }) => name.startsWith('EXECUTABLE_'))
      .map(({ value }) => value);
    // Pods of a recreated DaemonSet have the names of the earlier pods.
    const { uid: own } = pod['metadata'] as { uid: string };
    const runs = root !== undefined && !this.troubles.has(node);
    if (runs && digests.length === 0) this.#start(own, containers[0]?.command ?? [], root);
    const ready =
      runs &&
      (digests.length === 0 ? await probe(containers[0]?.readinessProbe, root) : await this.#isReady(root, digests));
    const { name } = pod['metadata'] as { name: string };
    const now = this.#server.find('v1', 'Pod', name, 'oc-upgrade-bundle');
    const status = this.#statusOf(node, ready);
    if (now && !isDeepStrictEqual(now['status'], status)) this.#setStatus(now, status);
    return ready;
  }

  /** Runs the real container of a pod that is not an agent, because it cleans up. */
  #start(pod: string, command: readonly string[], root: string): void {
    if (this.#containers.has(pod)) return;
    const [program = '', ...args] = command.map((word) => word.replaceAll('/host', root));
    this.#containers.set(pod, spawn(program, args, { stdio: 'ignore' }));
  }

  async #isReady(root: string, digests: readonly (string | undefined)[]): Promise<boolean> {
    const file = join(root, executablePath);
    if (digests.includes(await this.#digestOf(file))) return true;
    if (!this.sharing) return false;
    for (const other of this.#server.nodeRoots.values()) {
      if (!digests.includes(await this.#digestOf(join(other, executablePath)))) continue;
      await mkdir(dirname(file), { recursive: true });
      await copyFile(join(other, executablePath), file);
      return true;
    }
    return false;
  }

  /** Returns the digest of a file. Computes it once while the file is unchanged. */
  async #digestOf(file: string): Promise<string | undefined> {
    const found = await stat(file).catch(() => undefined);
    if (!found) return undefined;
    const state = [found.ino, found.size, found.mtimeMs].join();
    const known = this.#digests.get(file);
    if (known?.state === state) return known.digest;
    const content = await readFile(file).catch(() => undefined);
    if (!content) return undefined;
    const digest = createHash('sha256').update(content).digest('hex');
    this.#digests.set(file, { state, digest });
    return digest;
  }
}

function nameOf({ metadata }: Json): string {
  return (metadata as { name: string }).name;
}

/** Returns whether the controller of DaemonSets places a pod on a node with these labels. All tolerate every taint. */
function isPlaced({ nodeSelector = {}, affinity }: Placement, labels: Json): boolean {
  const meets = ({ key, operator, values = [] }: Requirement): boolean =>
    operator === 'Exists' || operator === 'DoesNotExist'
      ? (operator === 'Exists') === key in labels
      : (operator === 'In') === values.includes(labels[key]);
  const terms = affinity?.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms;
  const isSelected = Object.entries(nodeSelector).every(([key, value]) => labels[key] === value);
  return isSelected && (terms?.some(({ matchExpressions }) => matchExpressions.every(meets)) ?? true);
}

/** Runs the readiness probe of a container on a node, as its kubelet does. */
async function probe(readiness: ReadinessProbe | undefined, root: string): Promise<boolean> {
  const [program = '', ...args] = (readiness?.exec.command ?? []).map((word) => word.replaceAll('/host', root));
  const [code] = (await once(spawn(program, args, { stdio: 'ignore' }), 'exit')) as [number | null];
  return code === 0;
}
