import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { VerifyTrust } from '#bundle/open';
import { ClusterView, type Cluster } from '#cluster/client';
import { leadWithLease } from '#cluster/lease';
import type { StoredObject } from '#cluster/objects';
import type { MergePatch, Written } from '#config/manifest';
import { isDigest, type Digest, digestIn } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { messageOf } from '#errors';
import { fieldsOf } from '#fields';
import { isClockSynchronized, type Host } from '#node/machine';
import { controllerPods, machineConfigDaemon, readDaemonImage } from '#readiness/preflight';
import { fingerprintOfKey } from '#release/sigstore';
import { BundleCache } from '../agent/bundleCache.ts';
import { MirrorControl } from '../mirror/mirrorControl.ts';
import { keepMirror, type MirrorKeeperOptions } from '../mirror/mirrorKeeper.ts';
import { type BundleFacts, describeMismatch } from '../record/bundleFacts.ts';
import { chooseFacts } from '../record/extraImages.ts';
import { readReport, reportKind, followProposals } from '../record/nodeReport.ts';
import { osImageStreamKind } from '../record/osImageStreamWrite.ts';
import {
  agentNamespace,
  activeBundle,
  isActive,
  lastCompleted,
  needsFacts,
  phaseOf,
  upgradeBundleKind,
  type UpgradeBundle,
} from '../record/upgradeBundle.ts';
import { ReportPublisher } from '../report/reportPublisher.ts';
import { garbageCollect } from './garbageCollection.ts';
import { readLoadState } from './loadState.ts';
import { NodeReports } from './nodeReports.ts';
import {
  defaultInterval,
  type RolloutOptions,
  findMissingImages,
  type MissingImage,
  type ClockReading,
  type Observation,
} from './observation.ts';
import { findGoneStreams } from './osImageStream.ts';
import { pauseNodeChanges, restoreNodeChanges, restorePools } from './pauses.ts';
import type { Site } from './readiness.ts';
import { takeStep } from './rolloutStep.ts';
import { RecordWriter } from './statusWriter.ts';

/** Settings of a controller. */
interface ControllerSettings {
  /** The name of the controller’s node. */
  readonly node: string;
  /** The folder in which the agent of the node keeps the facts about bundles. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** What keeps the mirror of the node; undefined does not touch it. */
  readonly mirror?: Omit<MirrorKeeperOptions, 'interval'>;
  /** What signs reports of the cluster; undefined makes none. */
  readonly reports?: RolloutOptions['reports'];
  /** The host whose clock decides about maintenance windows. */
  readonly host: Host;
  /** The average pause between two checks of the cluster, in milliseconds. */
  readonly interval: number;
}

/**
 * Leads updates from one control plane node while it holds the Lease, until the signal is aborted. Reads the facts of a
 * bundle that the agent of its own node has verified, and verifies them again. May be killed at any point.
 */
export async function runController(
  cluster: Cluster,
  { node: identity, folder, trust, mirror, reports, host, interval }: ControllerSettings,
  context: Context,
): Promise<void> {
  const cache = new BundleCache(folder, trust);
  const readBundle: RolloutOptions['readBundle'] = (digest) => cache.recall(digest, context);
  const clock = async () => {
    const isSynchronized = await isClockSynchronized(host, context);
    return { now: cluster.now(), own: Date.now(), isSynchronized };
  };
  const { signal } = context;
  const keeping = mirror && keepMirror({ ...mirror, interval }, context);
  const mirrors = mirror && { mirrorFolder: mirror.secrets };
  const isOver = (): boolean => signal.aborted;
  while (!isOver()) {
    try {
      const options = { identity, namespace: agentNamespace, readBundle, interval, clock, ...mirrors, reports };
      await controlRollout(cluster, options, context);
    } catch (error) {
      context.log('warn', `this node cannot lead the rollout: ${messageOf(error)}`);
    }
    await sleep(interval, undefined, { signal }).catch(() => undefined);
  }
  await keeping;
}

/**
 * Leads UpgradeBundles through their phases while it holds the Lease `controller`, until the signal is aborted. All
 * state is in the cluster, so it may end at any moment and another controller continues.
 */
export async function controlRollout(cluster: Cluster, options: RolloutOptions, context: Context): Promise<void> {
  const { identity, namespace, lease, interval: acquirePeriod = defaultInterval } = options;
  try {
    await leadWithLease(
      cluster,
      { acquirePeriod, ...lease, name: 'controller', namespace, identity },
      context,
      (signal) => leadRollout(cluster.within(signal), options, { ...context, signal }),
    );
  } catch (error) {
    if (!context.signal.aborted) throw error;
  }
}

async function leadRollout(cluster: Cluster, options: RolloutOptions, context: Context): Promise<void> {
  const { signal } = context;
  const { interval = defaultInterval } = options;
  let changed = new AbortController();
  const onChange = (): void => {
    changed.abort();
  };
  const view = new ClusterView(cluster, { kinds: watchedKinds, retryPause: 4 * interval }, onChange, context);
  const watching = view.run();
  const rollout = new Rollout(cluster, view, options, context);
  const reconcile = async (): Promise<boolean> => {
    try {
      return await rollout.reconcile();
    } catch (error) {
      checkInterrupted(signal);
      const reason = `the rollout cannot continue: ${messageOf(error)}`;
      context.log('warn', reason);
      await rollout.reportStall(reason);
      return false;
    }
  };
  try {
    for (;;) {
      changed = new AbortController();
      const isNewPhase = view.complete && (await reconcile());
      // Reports of nodes arrive as many small changes: handle them together.
      await sleep(interval / 15, undefined, { signal }).catch(() => undefined);
      if (!isNewPhase)
        await sleep(interval, undefined, { signal: AbortSignal.any([signal, changed.signal]) }).catch(() => undefined);
      checkInterrupted(signal);
    }
  } finally {
    await watching;
  }
}

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';

/** The kinds that the controller watches. */
const watchedKinds = [
  upgradeBundleKind,
  { apiVersion: config, kind: 'ClusterVersion' },
  { apiVersion: config, kind: 'ClusterOperator' },
  { apiVersion: machines, kind: 'MachineConfigPool' },
  { apiVersion: machines, kind: 'MachineConfigNode' },
  { apiVersion: machines, kind: 'PinnedImageSet' },
  osImageStreamKind,
  controllerPods,
  { apiVersion: 'v1', kind: 'Node' },
  reportKind,
] as const;

/** The rounds of the leading controller: each observes the cluster, takes the next step and writes the status. */
class Rollout {
  readonly #cluster: Cluster;
  readonly #view: ClusterView;
  readonly #options: RolloutOptions;
  readonly #context: Context;
  readonly #facts = new Map<Digest, BundleFacts>();
  /** Why the facts cannot be read. */
  #stall: string | undefined;
  /** The active UpgradeBundle, as it was last read. */
  #bundle: UpgradeBundle | undefined;
  readonly #reports = new NodeReports();
  readonly #agentImage: AgentImage;
  readonly #record: RecordWriter;
  readonly #mirrors: MirrorControl | undefined;
  readonly #reporting: ReportPublisher | undefined;
  /** What the last garbage collection was for. */
  #collected: unknown;
  #paused = '';
  #missing: { at: number; found: readonly MissingImage[] } = { at: -Infinity, found: [] };

  constructor(cluster: Cluster, view: ClusterView, options: RolloutOptions, context: Context) {
    this.#cluster = cluster;
    this.#view = view;
    this.#options = options;
    this.#context = context;
    this.#agentImage = new AgentImage(cluster, options.interval ?? defaultInterval, context);
    const { mirrorFolder } = options;
    this.#mirrors = mirrorFolder === undefined ? undefined : new MirrorControl(mirrorFolder, context);
    this.#reporting = options.reports && new ReportPublisher(cluster, options.reports, context);
    const reportKey = options.reports && fingerprintOfKey(options.reports.key);
    this.#record = new RecordWriter(cluster, options.identity, context, reportKey);
  }

  /** Takes the next step, if there is one. Returns whether a phase has changed. Throws the errors of the cluster. */
  async reconcile(): Promise<boolean> {
    this.#stall = undefined;
    const seen = this.#view.list('UpgradeBundle') as readonly UpgradeBundle[];
    await this.#agentImage.follow(activeBundle(seen) !== undefined);
    this.#reporting?.follow(seen);
    const [nodes, pools] = [this.#view.list('Node'), this.#view.list('MachineConfigPool')];
    await this.#mirrors?.renew(this.#cluster, { nodes, pools });
    const leases = await this.#listReports();
    await followProposals(this.#cluster, leases, seen, this.#view.list('ClusterVersion')[0], this.#context);
    const active = activeBundle(seen);
    // The watched object may be older than the last write, or deleted.
    const fresh = active && ((await this.#cluster.read(active)) as UpgradeBundle | undefined);
    const others = seen.filter((each) => each !== active);
    await this.#collectGarbage(fresh ? [fresh, ...others] : others);
    const bundle = fresh && isActive(fresh) ? fresh : undefined;
    this.#bundle = bundle;
    if (!bundle) await this.#followCompleted(seen, leases);
    const clusterVersion = bundle && (await this.#readVersion(bundle));
    if (!clusterVersion) return false;
    const site = this.#readSite(clusterVersion);
    const { digest } = bundle.spec.bundle;
    const { hops, version } = bundle.status ?? {};
    const reports = this.#reports.read(leases, bundle.metadata.uid ?? '', undefined, hops && version);
    const isAllowed = digest !== undefined && isDigest(digest);
    // The controller learns about the bundle from its own node only, so this node fetches it first.
    const lacksFacts = isAllowed && needsFacts(bundle) && !(await this.#read(digest));
    const load = readLoadState(bundle, site.nodes, reports);
    const read = () => (isAllowed ? this.#read(digest) : Promise.resolve(undefined));
    const observation: Observation = {
      cluster: this.#cluster,
      bundle,
      site,
      reports,
      load: lacksFacts ? { ...load, turn: this.#options.identity } : load,
      otherBundles: others
        .filter((each) => isActive(each) && each.spec.bundle.digest !== undefined)
        .map(({ metadata }) => metadata.name),
      facts: async () => {
        const whole = await read();
        return whole && chooseFacts(whole, bundle);
      },
      mismatch: async () => {
        const whole = await read();
        return whole && describeMismatch(bundle, whole);
      },
      pause: () => this.#pause(bundle, site.nodes.length),
      restore: ({ pools } = { pools: true }) => this.#pause(bundle, undefined, pools),
      mirrorLack: async (facts) => await this.#mirrors?.findLack(this.#cluster, site, facts),
      clock: this.#options.clock ?? (() => Promise.resolve(this.#readClock())),
      missing: (images) => this.#findMissing(bundle, images),
    };
    const step = await takeStep(observation);
    return await this.#record.write(observation, step, step.stall ?? this.#stall);
  }

  /** Writes what nodes report about the images of the update that was completed last. */
  async #followCompleted(seen: readonly UpgradeBundle[], leases: readonly StoredObject[]): Promise<void> {
    const last = lastCompleted(seen);
    if (!last) return;
    const reports = this.#reports.read(
      leases,
      last.metadata.uid ?? '',
      undefined,
      last.status?.hops && last.status.version,
    );
    // The watched copies may be older.
    const gone = this.#view.list(osImageStreamKind.kind).length > 0 ? [] : await findGoneStreams(this.#cluster, last);
    await this.#record.writeNodes(
      last,
      [...reports.values()].map(({ progress }) => progress),
      gone,
    );
  }

  /**
   * Returns the reports of agents. Deletes those of nodes that the cluster no longer has, and those with a false name.
   */
  async #listReports(): Promise<readonly StoredObject[]> {
    const nodes = new Set(this.#view.list('Node').map(({ metadata }) => metadata.name));
    const leases = this.#view.list(reportKind.kind);
    const isOfNode = (lease: StoredObject): boolean => nodes.has(readReport(lease)?.node ?? '');
    for (const { apiVersion, kind, metadata } of leases.filter((lease) => !isOfNode(lease))) {
      const { name, namespace } = metadata;
      await this.#cluster.delete({ apiVersion, kind, metadata: { name, namespace } });
    }
    return leases.filter(isOfNode);
  }

  #readClock(): ClockReading {
    return { now: this.#cluster.now(), own: Date.now(), isSynchronized: undefined };
  }

  /** Reads ClusterVersion; at the beginning of an update from the cluster, because the watched copy may be old. */
  async #readVersion(bundle: UpgradeBundle): Promise<StoredObject | undefined> {
    const [watchedVersion] = this.#view.list('ClusterVersion');
    return watchedVersion && ['Pinned', 'Held', 'Upgrading'].includes(phaseOf(bundle))
      ? await this.#cluster.read(watchedVersion)
      : watchedVersion;
  }

  #readSite(clusterVersion: StoredObject): Site {
    const list = (kind: string): readonly StoredObject[] => this.#view.list(kind);
    return {
      clusterVersion,
      operators: list('ClusterOperator'),
      pools: list('MachineConfigPool'),
      poolNodes: list('MachineConfigNode'),
      pinnedSets: list('PinnedImageSet'),
      nodes: list('Node'),
      osImageStreams: list(osImageStreamKind.kind),
      controllerPods: list(controllerPods.kind),
    };
  }

  async #read(digest: Digest): Promise<BundleFacts | undefined> {
    const cachedFacts = this.#facts.get(digest);
    if (cachedFacts) return cachedFacts;
    try {
      const facts = await this.#options.readBundle(digest);
      if (facts) this.#facts.set(digest, facts);
      return facts;
    } catch (error) {
      checkInterrupted(this.#context.signal);
      this.#stall = `the bundle cannot be verified: ${messageOf(error)}`;
      this.#context.log('warn', this.#stall);
      return undefined;
    }
  }

  /** Pauses or restores once in each phase. Objects that appear meanwhile are paused in the next phase. */
  async #pause(
    { metadata: { name, uid }, status }: UpgradeBundle,
    nodes: number | undefined,
    pools = false,
  ): Promise<void> {
    const pauseKey = `${uid ?? ''} ${status?.phase ?? ''} ${nodes === undefined ? 'restored' : 'paused'} ${pools}`;
    if (this.#paused === pauseKey) return;
    if (pools) await restorePools(this.#cluster);
    if (nodes === undefined) await restoreNodeChanges(this.#cluster);
    else await pauseNodeChanges(this.#cluster, name, nodes);
    this.#paused = pauseKey;
  }

  async #findMissing({ metadata }: UpgradeBundle, images: readonly string[]): Promise<readonly MissingImage[]> {
    const { interval = defaultInterval } = this.#options;
    if (performance.now() < this.#missing.at + interval * 2) return this.#missing.found;
    const since = new Date(metadata.creationTimestamp ?? 0);
    this.#missing = { at: performance.now(), found: await findMissingImages(this.#cluster, images, since) };
    return this.#missing.found;
  }

  async #collectGarbage(bundles: readonly UpgradeBundle[]): Promise<void> {
    const [version] = this.#view.list('ClusterVersion');
    const { history } = fieldsOf(version?.['status']);
    const collectionKey = [
      bundles.map(({ metadata, status }) => [metadata.uid, metadata.deletionTimestamp, status?.phase, status?.release]),
      history,
      fieldsOf(version?.['spec'])['desiredUpdate'],
    ];
    if (isDeepStrictEqual(collectionKey, this.#collected)) return;
    await garbageCollect(this.#cluster, bundles);
    this.#collected = collectionKey;
  }

  /** Writes to the status why the last round failed. */
  async reportStall(reason: string): Promise<void> {
    if (this.#bundle) await this.#record.writeStall(this.#bundle, reason);
  }
}

/** How many times longer the pause between two comparisons of images is while nothing is updated. */
const restShare = 20;

/**
 * Keeps agents and controllers on the image of the machine config daemon. An update replaces that image: the old one is
 * in no later bundle, and nothing pins it. The controllers are changed last, because that ends this process.
 */
class AgentImage {
  readonly #cluster: Cluster;
  readonly #interval: number;
  readonly #context: Context;
  #checked = -Infinity;

  /** `interval`: milliseconds between two checks. */
  constructor(cluster: Cluster, interval: number, context: Context) {
    this.#cluster = cluster;
    this.#interval = interval;
    this.#context = context;
  }

  /**
   * Compares the images if the interval is over, and changes images that differ. Looks rarely while nothing is updated.
   * Throws the errors of the cluster.
   */
  async follow(isUpdating: boolean): Promise<void> {
    if (performance.now() < this.#checked + this.#interval * (isUpdating ? 1 : restShare)) return;
    const daemon = await this.#cluster.read(machineConfigDaemon);
    const image = daemon && readDaemonImage(daemon);
    if (image !== undefined && isDigest(digestIn(image)))
      for (const name of ['agent', 'controller']) await this.#change(name, image);
    this.#checked = performance.now();
  }

  async #change(name: string, image: string): Promise<void> {
    const reference = { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name, namespace: agentNamespace } };
    const set = await this.#cluster.read(reference);
    const present = set && readDaemonImage(set);
    if (present === undefined || present === image) return;
    this.#context.log('info', `${name}: now in the image of the machine config daemon, ${image}`);
    // Server-side apply takes some of the fields that an object must have.
    const spec: MergePatch<Written<'DaemonSet'>>['spec'] = { template: { spec: { containers: [{ name, image }] } } };
    await this.#cluster.apply({ ...reference, spec }, { manager: 'controller', force: true });
  }
}
