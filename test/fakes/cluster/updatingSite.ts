import { isDeepStrictEqual } from 'node:util';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { ClusterBackup } from '../../../lib/node/clusterBackup.ts';
import type { VerifiedSignature } from '../../../lib/release/signature/signature.ts';
import { isSameMinor } from '../../../lib/release/version.ts';
import type { BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import {
  formatNodeReport,
  readReport,
  reportKind,
  type BackupReport,
  type NodeReport,
} from '../../../lib/update/record/nodeReport.ts';
import {
  activeBundle,
  mayLoad,
  type NodeProgress,
  type UpgradeBundle,
} from '../../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { openshiftKinds } from '../kubernetes/apiKinds.ts';
import type { Change, ApiObject } from '../kubernetes/apiObjects.ts';
import { isJson, type Json } from '../kubernetes/apiPatch.ts';
import type { TestApiServer } from '../kubernetes/apiServer.ts';
import { MachineConfigController, type ControllerBuild } from './machineConfigController.ts';
import { furnish, platformImage, withConditions, workload } from './site.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const config = 'config.openshift.io/v1';
const bundleApi = 'upgrade-bundle.openshift.io/v1alpha1';

/** The release that the site updates to, and its bundle. */
export const release = `quay.io/openshift-release-dev/ocp-release@sha256:${'2'.repeat(64)}`;
export const digest = `sha256:${'d'.repeat(64)}` as const;

/** The facts of a verified bundle of 4.19.4. */
export function makeFacts(metadata: Partial<BundleFacts['metadata']> = {}): BundleFacts {
  const signed = `sha256:${'2'.repeat(64)}` as const;
  const { images = [release, platformImage('a'), platformImage('b')], extraImages = [] } = metadata;
  const own = images.filter((image) => image !== release && !extraImages.includes(image));
  const components = Object.fromEntries(own.map((image, index) => [`component-${index}`, image]));
  return {
    digest,
    metadata: {
      formatVersion: 1,
      version: '4.19.4',
      arch: 'x86_64',
      release,
      previous: ['4.19.3'],
      tool: 'test',
      images,
      components,
      extraImages,
      osImages: [],
      size: 2 ** 30,
      blobs: [{ digest: signed, size: 2 ** 30 }],
      signatures: {},
      ...metadata,
    },
    signatures: new Map([[signed, [goodSignature(signed)]]]),
    pinsIn: ['Default'],
  };
}

/** The release before `release`, and the facts of a verified bundle with both. */
export const firstRelease = `quay.io/openshift-release-dev/ocp-release@sha256:${'3'.repeat(64)}`;

/** `gates`: those of 4.19.4, for the update after it. `previous`: the version that it can be reached from. */
export function makeHops(gates: BundleFacts['gates'] = [], previous = '4.19.3'): BundleFacts {
  const images = [firstRelease, platformImage('c')];
  const first = makeFacts({ version: '4.19.4', release: firstRelease, previous: [previous], images });
  const last = makeFacts({ version: '4.20.3', release, previous: ['4.19.4'] });
  const signed = `sha256:${'3'.repeat(64)}` as const;
  const hops = [
    { ...first, gates, signatures: new Map([[signed, [goodSignature(signed)]]]), bytes: 2 ** 31 },
    { ...last, bytes: 2 ** 30 },
  ];
  return { ...last, hops };
}

function goodSignature(signed: Digest): VerifiedSignature {
  const key = { fingerprint: 'ABC', keyId: 'C', userId: 'test', created: new Date(0) };
  return { good: true, bytes: Buffer.from('signature'), digest: signed, ...key };
}

/** A backup, as an agent reports it. */
export function makeBackup(version = '4.19.3'): ClusterBackup {
  const time = new Date().toISOString().replace(/\.\d+/, '');
  const path = `/home/core/assets/backup/oc-upgrade-bundle/${version}-${time.replace(/[-:]/g, '')}`;
  return { path, version, time, size: 2 ** 26, digest: `sha256:${'b'.repeat(64)}` };
}

/** An UpgradeBundle, as a user applies it. */
export const upgradeBundle = (name = 'upgrade-4.19.4-amd64', spec: Json = {}, metadata: Json = {}): Json => ({
  apiVersion: bundleApi,
  kind: 'UpgradeBundle',
  metadata: { name, ...metadata },
  spec: { bundle: { digest }, hold: false, ...spec },
});

/**
 * A cluster that reacts to requests: agents load if they may, a machine config daemon pins, a version operator updates
 * to signed releases, and pools follow. Each does one step at a time, a moment after the request.
 */
export class UpdatingSite {
  /** Nodes whose agents do not report. */
  readonly silent = new Set<string>();
  /** Nodes whose agents fail, with their messages. */
  readonly failing = new Map<string, string>();
  /** Why the agents cannot back up etcd, and the version that they report of a backup. */
  backupFailure: string | undefined;
  backupVersion: string | undefined;
  /** Whether agents begin backups. */
  backingUp = true;
  /** Whether daemons pin, and whether the version operator makes progress. */
  pinning = true;
  updating = true;
  /** Whether the version operator refuses releases. */
  refusing = false;
  /** Whether the version operator notices requests. */
  noticing = true;
  /** The gates that each release brings, by its version. */
  readonly gates = new Map<string, Json>();
  /** The gates that appear when a release is requested, by its version. */
  readonly lateGates = new Map<string, Json>();
  /** machine-config-controller, which pools wait for; it does nothing if no builds are given. */
  readonly controller: MachineConfigController;
  /** The builds of machine-config-controller, by the versions of their releases. */
  readonly builds = new Map<string, ControllerBuild>();
  /** The largest number of control plane nodes that loaded at the same time. */
  loadingAtOnce = 0;
  /** All values of `spec.desiredUpdate` in the ClusterVersion so far. */
  readonly requests: unknown[] = [];
  readonly #server: TestApiServer;
  #stopped = false;
  #due = false;

  constructor(server: TestApiServer) {
    this.#server = server;
    this.controller = new MachineConfigController(server);
    const definition = upgradeBundleDefinition();
    server.put(definition);
    furnish(server);
    for (const name of ['oc-upgrade-bundle', 'oc-upgrade-bundle-reports', 'openshift-machine-api']) {
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    }
    server.put({
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name: 'controller', namespace: 'oc-upgrade-bundle' },
      spec: {},
    });
    server.put({
      apiVersion: 'machine.openshift.io/v1beta1',
      kind: 'MachineHealthCheck',
      metadata: { name: 'workers', namespace: 'openshift-machine-api', annotations: { mine: 'yes' } },
      spec: { maxUnhealthy: '40%' },
    });
    server.put({
      apiVersion: 'autoscaling.openshift.io/v1',
      kind: 'ClusterAutoscaler',
      metadata: { name: 'default' },
      spec: { resourceLimits: { maxNodesTotal: 24, cores: { min: 8, max: 128 } }, scaleDown: { enabled: true } },
    });
    server.put(configMap('admin-acks', 'openshift-config'));
    server.put(daemonSet('machine-config-daemon', daemonNamespace, platformImage('d')));
    for (const name of ['agent', 'controller']) server.put(daemonSet(name, 'oc-upgrade-bundle', platformImage('d')));
    server.objects.on('change', this.#notice);
  }

  /** Stops all reactions. */
  stop(): void {
    this.#stopped = true;
    this.#server.objects.off('change', this.#notice);
  }

  /** Triggers the reactions, after a test has changed this object. */
  wake(): void {
    if (this.#due) return;
    this.#due = true;
    setImmediate(() => {
      this.#due = false;
      if (!this.#stopped) this.#act();
    });
  }

  readonly #notice = ({ kind, object }: Change): void => {
    // The report of a real agent, of which there are many.
    if (kind.kind === reportKind.kind && this.silent.has(object.metadata.name.replace(/^agent-/, ''))) return;
    if (kind.kind === 'ClusterVersion') {
      const { desiredUpdate } = object['spec'] as Json;
      if (desiredUpdate !== undefined && !isDeepStrictEqual(this.requests.at(-1), desiredUpdate))
        this.requests.push(desiredUpdate);
    }
    this.wake();
  };

  #list(kind: string): ApiObject[] {
    const found = this.#server.kinds.find((known) => known.kind === kind);
    return found ? this.#server.objects.list(found, '') : [];
  }

  #act(): void {
    const active = activeBundle(this.#list('UpgradeBundle') as UpgradeBundle[]);
    if (active) this.#load(active);
    this.#pin();
    this.#update();
  }

  #load(bundle: UpgradeBundle): void {
    const nodes = this.#list('Node').map((node) => ({
      name: node.metadata.name,
      controlPlane: 'node-role.kubernetes.io/master' in (node.metadata['labels'] as Json),
    }));
    for (const node of nodes) {
      if (this.silent.has(node.name)) continue;
      const known = this.#reportOf(bundle, node.name);
      const next = this.#next(bundle, node, known);
      const backup = bundle.status?.backupNode === node.name ? this.#backUp(bundle, node.name) : undefined;
      if (!isDeepStrictEqual(next, known) || backup) this.#report(bundle, next, backup);
    }
    const loading = this.#control(bundle, nodes);
    this.loadingAtOnce = Math.max(this.loadingAtOnce, loading);
  }

  #control(bundle: UpgradeBundle, nodes: readonly { name: string; controlPlane: boolean }[]): number {
    const control = nodes.filter(({ controlPlane }) => controlPlane);
    return control.filter((node) => this.#reportOf(bundle, node.name)?.phase === 'Loading').length;
  }

  #next(bundle: UpgradeBundle, node: { name: string; controlPlane: boolean }, known?: NodeProgress): NodeProgress {
    const { phase = 'Detected' } = bundle.status ?? {};
    const entry = { name: node.name, imagesLoaded: 0, imagesTotal: 3, bytes: 0, free: 90 * 2 ** 30 };
    const loaded = { ...entry, imagesLoaded: 3, bytes: 2 ** 30 };
    if (!known) return { ...entry, phase: 'Waiting' };
    const message = this.failing.get(node.name);
    if (message !== undefined && mayLoad(bundle, node)) return { ...entry, phase: 'Failed', message };
    if (known.phase === 'Loading') return { ...loaded, phase: 'Loaded' };
    if ((known.phase === 'Waiting' || known.phase === 'Failed') && mayLoad(bundle, node))
      return { ...entry, phase: 'Loading', imagesLoaded: 1 };
    const pins = this.#server.kinds.some(({ kind }) => kind === 'PinnedImageSet');
    const from = pins ? ['Pinned', 'Held', 'Upgrading'] : ['Loaded'];
    if (known.phase === 'Loaded' && from.includes(phase)) return { ...loaded, phase: 'Pinned' };
    return known;
  }

  /** Returns the new report of a backup; undefined if nothing has changed. */
  #backUp(bundle: UpgradeBundle, node: string): BackupReport | undefined {
    const { history } = this.#server.find(config, 'ClusterVersion', 'version')?.['status'] as { history: Json[] };
    const version = this.backupVersion ?? String(history.find(({ state }) => state === 'Completed')?.['version']);
    const wanted = this.backupFailure === undefined ? { made: makeBackup(version) } : { failure: this.backupFailure };
    const { backup } = this.#findReport(bundle, node) ?? {};
    const isSame = backup?.made?.version === wanted.made?.version && backup?.failure === wanted.failure;
    return isSame || !this.backingUp ? undefined : wanted;
  }

  /** Returns the progress in the last report of a node’s agent. */
  #reportOf(bundle: UpgradeBundle, node: string): NodeProgress | undefined {
    return this.#findReport(bundle, node)?.progress;
  }

  #findReport({ metadata, status }: UpgradeBundle, node: string): NodeReport | undefined {
    const { apiVersion, kind, namespace } = reportKind;
    const lease = this.#server.find(apiVersion, kind, `agent-${node}`, namespace);
    const report = lease && readReport(lease)?.report;
    return report?.bundle === metadata.uid && report?.version === status?.version ? report : undefined;
  }

  #report({ metadata: { uid = '' }, status }: UpgradeBundle, progress: NodeProgress, backup?: BackupReport): void {
    const kind = this.#server.kinds.find((known) => known.kind === reportKind.kind);
    if (!kind) return;
    const lease = { ...formatNodeReport({ bundle: uid, version: status?.version, progress, backup }) };
    const place = { kind, namespace: reportKind.namespace, name: lease.metadata.name };
    this.#server.objects.apply(place, lease, { manager: 'agent', dryRun: false }, true);
  }

  #pin(): void {
    if (!this.pinning) return;
    const sets = this.#list('PinnedImageSet');
    const pools = new Map(this.#list('Node').map(({ metadata }) => [metadata.name, metadata.name.split('-')[0] ?? '']));
    if (!this.#server.kinds.some(({ kind }) => kind === 'MachineConfigNode')) return;
    for (const [name, pool] of pools) {
      const own = sets.filter(
        ({ metadata }) => (metadata['labels'] as Json)['machineconfiguration.openshift.io/role'] === pool,
      );
      const pinnedImageSets = own.map(({ metadata }) => ({
        name: metadata.name,
        currentGeneration: metadata['generation'],
        desiredGeneration: metadata['generation'],
      }));
      const settled = { PinnedImageSetsProgressing: 'False', PinnedImageSetsDegraded: 'False' };
      const made = withConditions(machines, 'MachineConfigNode', name, settled);
      const status = { ...(made['status'] as Json), pinnedImageSets };
      const before = this.#server.find(machines, 'MachineConfigNode', name);
      if (isDeepStrictEqual(before?.['status'], status)) continue;
      this.#server.put({ ...made, spec: { pool: { name: pool }, node: { name } }, status });
    }
  }

  #update(): void {
    const version = this.#server.find(config, 'ClusterVersion', 'version');
    const { desiredUpdate } = (version?.['spec'] ?? {}) as {
      desiredUpdate?: { image: string; version: string } | null;
    };
    if (!version || !this.noticing || this.#checkGates(version)) return;
    if (!desiredUpdate) return;
    const status = version['status'] as Json;
    const history = status['history'] as Json[];
    const [latest] = history;
    const { image } = desiredUpdate;
    if (latest?.['image'] !== image) {
      const name = `sha256-${image.split('sha256:')[1] ?? ''}`;
      const signed = this.#server.find('v1', 'ConfigMap', name, 'openshift-config-managed');
      const late = this.lateGates.get(desiredUpdate.version);
      this.lateGates.delete(desiredUpdate.version);
      if (late) return void this.#server.put(configMap('admin-gates', 'openshift-config-managed', late));
      const isGated = JSON.stringify(status['conditions'] ?? []).includes('Upgradeable');
      if (!signed || this.refusing || (isGated && !isSameMinor(String(latest?.['version']), desiredUpdate.version)))
        return this.#say(version, { conditions: [condition('ReleaseAccepted', 'False', 'not signed')] });
      const startedTime = new Date().toISOString();
      const begun = { state: 'Partial', version: desiredUpdate.version, image, startedTime };
      this.#setPools('False');
      const build = this.builds.get(desiredUpdate.version);
      if (build) this.controller.define(build);
      return this.#say(version, {
        desired: desiredUpdate,
        history: [begun, ...history],
        conditions: [
          condition('Progressing', 'True', `Working towards ${desiredUpdate.version}: 106 of 863 done (12% complete)`),
        ],
      });
    }
    if (!this.updating) return;
    if (latest['state'] === 'Partial') {
      const added = openshiftKinds(desiredUpdate.version).filter(
        ({ kind }) => !this.#server.kinds.some((known) => known.kind === kind),
      );
      this.#server.kinds.push(...added);
      this.#server.put(daemonSet('machine-config-daemon', daemonNamespace, platformImage('e')));
      const build = this.builds.get(desiredUpdate.version);
      if (build) this.controller.deploy(build);
      const gates = this.gates.get(desiredUpdate.version);
      if (gates) this.#server.put(configMap('admin-gates', 'openshift-config-managed', gates));
      return this.#say(version, {
        history: [{ ...latest, state: 'Completed', completionTime: new Date().toISOString() }, ...history.slice(1)],
        conditions: [condition('Progressing', 'False', '')],
      });
    }
    if (this.controller.running) this.#setPools('True');
  }

  /** Sets the condition about gates that are not acknowledged. Returns whether it has changed. */
  #checkGates(version: ApiObject): boolean {
    const status = version['status'] as { conditions?: Json[]; history: Json[] };
    const minor = String(status.history[0]?.['version']).split('.').slice(0, 2).join('.');
    const dataOf = (name: string, namespace: string): Json =>
      (this.#server.find('v1', 'ConfigMap', name, namespace)?.['data'] ?? {}) as Json;
    const given = dataOf('admin-acks', 'openshift-config');
    const open = Object.entries(dataOf('admin-gates', 'openshift-config-managed'))
      .filter(([name]) => name.startsWith(`ack-${minor}-`) && given[name] !== 'true')
      .map(([, text]) => text);
    const { conditions = [] } = status;
    const others = conditions.filter(({ type }) => type !== 'Upgradeable');
    const wanted =
      open.length === 0 ? others : [...others, condition('Upgradeable', 'False', open.map(String).join(' '))];
    if (isDeepStrictEqual(wanted, conditions)) return false;
    this.#say(version, { conditions: wanted });
    return true;
  }

  #say(version: ApiObject, changes: Json): void {
    const status = { ...(version['status'] as Json), ...changes };
    if (!isDeepStrictEqual(status, version['status'])) this.#replace(version, status);
  }

  #setPools(updated: 'True' | 'False'): void {
    for (const pool of this.#list('MachineConfigPool')) {
      const { configuration } = (pool['status'] ?? {}) as Json;
      const status: Json = {
        ...(configuration !== undefined && { configuration }),
        conditions: [condition('Updated', updated, ''), condition('Degraded', 'False', '')],
        machineCount: 2,
        updatedMachineCount: updated === 'True' ? 2 : 1,
      };
      if ((pool['spec'] as Json)['paused'] === true && updated === 'True') continue;
      if (!isDeepStrictEqual(pool['status'], status)) this.#replace(pool, status);
    }
  }

  #replace(object: ApiObject, status: Json): void {
    const kind = this.#server.kinds.find((known) => known.kind === object.kind);
    if (!kind || !isJson(object)) return;
    const place = { kind, namespace: '', name: object.metadata.name };
    this.#server.objects.replace(place, { ...object, status }, { manager: 'operator', dryRun: false, status: true });
  }
}

const daemonNamespace = 'openshift-machine-config-operator';

function daemonSet(name: string, namespace: string, image: string): Json {
  return workload('DaemonSet', name, namespace, {
    template: { metadata: {}, spec: { containers: [{ name, image }] } },
  });
}

function configMap(name: string, namespace: string, data?: Json): Json {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, ...(data && { data }) };
}

function condition(type: string, status: string, message: string): Json {
  return { type, status, reason: 'Test', message };
}
