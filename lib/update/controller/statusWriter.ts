import { isDeepStrictEqual } from 'node:util';
import type { Cluster } from '#cluster/client';
import type { MergePatch, Written } from '#config/manifest';
import { digestOf, hexOf } from '#content/oci';
import type { Context } from '#context';
import { ignoring, isPluginError, messageOf } from '#errors';
import { listOf, withoutAbsent } from '#fields';
import type { RecordedOutline } from '../record/bundleFacts.ts';
import { clearCondition, findReason, listNames, mergeConditions, type BundleCondition } from '../record/conditions.ts';
import { withPhase } from '../record/extraImages.ts';
import {
  summarizeNodes,
  upgradeBundleKind,
  type NodeProgress,
  type UpgradeBundle,
  type UpgradeBundleStatus,
  type HopProgress,
  type Phase,
} from '../record/upgradeBundle.ts';
import type { LoadState } from './loadState.ts';
import type { Observation } from './observation.ts';
import type { Site } from './readiness.ts';

/** What of an observation shows progress. */
interface ObservedProgress {
  readonly bundle: Pick<UpgradeBundle, 'metadata' | 'status'>;
  readonly load: Pick<LoadState, 'nodes'>;
  readonly site: Pick<Site, 'pools'>;
}

/** How long the controller waits without progress, in minutes, and what to do then. By the type of the condition. */
const limits: Partial<Record<BundleCondition['type'], readonly [minutes: number, advice: string]>> = {
  Verified: [60, 'insert a USB drive with the allowed bundle into a node, or abort and allow another bundle'],
  Ready: [60, 'fix what the condition Ready names, or abort the update'],
  Loaded: [60, 'check the agents of these nodes (oc get pods -n oc-upgrade-bundle), or remove nodes that are gone'],
  // The machine config operator takes 40 to 60 minutes for a set of 760 images (machine-config-operator, PR 6046).
  Pinned: [120, 'see the conditions of these nodes (oc describe machineconfignode), or abort the update'],
  BackedUp: [30, 'fix what the message says, or do without a backup (spec.backup: off)'],
  Updated: [120, 'see “oc adm upgrade” and “oc get machineconfigpool”'],
};

/** These wait for a decision of an administrator or for a maintenance window, and their condition says which one. */
const decisions = [
  'NotAllowed',
  'Held',
  'AcknowledgementRequired',
  'RiskNotAccepted',
  'OutsideWindow',
  'ClockNotTrusted',
];

const unpause = 'if its nodes can reach a registry, resume the paused pool: set spec.paused to false';

/** The time of the last progress of an update, and how to see new progress. */
export class ProgressClock {
  #mark: string | undefined;
  #uid: string | undefined;
  #since = 0;

  /**
   * Returns when the update last made progress, in milliseconds since 1970. A new controller continues with the time in
   * the status. Words of conditions are no progress: some change at each retry.
   */
  observe({ bundle, load, site }: ObservedProgress, step: Step, now = Date.now()): number {
    const { status = {}, metadata } = bundle;
    const pools = site.pools.map(({ status: own, spec }) => {
      const { updatedMachineCount } = (own ?? {}) as { updatedMachineCount?: unknown };
      return [updatedMachineCount, (spec as { paused?: unknown } | undefined)?.paused];
    });
    const nodes = load.nodes.map(({ name, phase, imagesLoaded }) => [name, phase, imagesLoaded]);
    const types = step.conditions.filter(({ type }) => type in limits).map(({ type, status: state }) => [type, state]);
    const mark = JSON.stringify([step.phase, step.version ?? status.version, step.progress, nodes, pools, types]);
    const isNew = this.#uid !== metadata.uid;
    const stored = Date.parse(status.lastProgressTime ?? '');
    if (isNew) this.#since = step.phase === status.phase && stored <= now ? stored : now;
    else if (mark !== this.#mark) this.#since = now;
    [this.#mark, this.#uid] = [mark, metadata.uid];
    return this.#since;
  }
}

/** Describes a wait that exceeds its limit: for what, since when, and what to do. Undefined within the limit. */
export function describeLongWait({ phase, conditions }: Step, since: number, now = Date.now()): string | undefined {
  if (phase === 'Completed' || phase === 'Failed') return undefined;
  const wait = conditions.findLast(({ type, status }) => status === 'False' && type in limits);
  const [minutes, advice] = (wait && limits[wait.type]) ?? [Infinity, ''];
  if (!wait || decisions.includes(wait.reason) || now - since < minutes * 60_000) return undefined;
  const isForPins = conditions.some(({ type, status, reason }) => {
    return type === 'PoolsPaused' && status === 'True' && reason === 'Pinning';
  });
  const remedy = isForPins ? `${advice}; ${unpause}` : advice;
  const time = new Date(since).toISOString().replace(/\.\d+/, '');
  return (
    `no progress since ${time} (limit: ${minutes} minutes); waiting: ${wait.message}; ${remedy}; all remedies: ` +
    'docs/how-to/update-stands-still.md'
  );
}

/** The phase of the rollout after a step, and the reasons. */
export interface Step {
  readonly phase: Phase;
  readonly conditions: readonly BundleCondition[];
  readonly version?: string;
  readonly release?: string;
  /** The updates to several releases; by default those of the status. */
  readonly hops?: readonly HopProgress[];
  /** The version of the base release of a delta bundle. */
  readonly base?: string;
  /** The outline of the bundle; by default that of the status. */
  readonly outline?: RecordedOutline;
  /** The node that is to back up etcd now. */
  readonly backupNode?: string;
  /** The backups for the record; by default those of the status. */
  readonly backups?: UpgradeBundleStatus['backups'];
  /** The share of the update that the version operator has done; by default the share of loaded images counts. */
  readonly progress?: string;
  /** Why the update cannot continue without an administrator. */
  readonly stall?: string;
  /** The last entries of the nodes; by default their reports. */
  readonly nodes?: readonly NodeProgress[];
}

/**
 * Returns the shortest pause between two writes of the status for reports only, in milliseconds. The status lists all
 * nodes: a cluster that is ten times as large writes it a tenth as often.
 */
function statusPause(nodes: number): number {
  return nodes * 40;
}

/** The characters for messages of all nodes in the status. The API server refuses objects of over 1.5 MB. */
const roomForWords = 200_000;

/** Writes the status and the events of UpgradeBundles. */
export class RecordWriter {
  readonly #cluster: Cluster;
  readonly #identity: string;
  readonly #context: Context;
  readonly #reportKey: string | undefined;
  readonly #clock = new ProgressClock();
  #writtenAt = -Infinity;

  /** `identity` is the name of the controller’s node, `reportKey` the fingerprint of the key that signs reports. */
  constructor(cluster: Cluster, identity: string, context: Context, reportKey?: string) {
    this.#cluster = cluster;
    this.#identity = identity;
    this.#context = context;
    this.#reportKey = reportKey;
  }

  /**
   * Writes changes to the status. `stall`: why the controller cannot continue. The event goes first, because a written
   * phase is not written again. Returns whether the phase is new. Throws the errors of the cluster.
   */
  async write(observation: Observation, step: Step, stall: string | undefined): Promise<boolean> {
    const { bundle, load } = observation;
    const { metadata, status = {} } = bundle;
    const generation = metadata.generation ?? 0;
    const { version = status.version, release = status.release, base = status.base, hops = status.hops, phase } = step;
    const { backups = status.backups } = step;
    const { size, head } = step.outline ?? status;
    // The next controller continues with the time in the status, and its clock may differ.
    const now = this.#cluster.now();
    const since = this.#clock.observe(observation, step, now);
    const stalled = stall === undefined ? describeLongWait(step, since, now) : undefined;
    const conditions = mergeConditions(
      status.conditions,
      [...step.conditions, ...describeStall(status, stall ?? stalled, stalled ? 'NoProgress' : 'Failing')],
      generation,
    );
    const reason = findReason(conditions);
    const { nodesReady, progress } = summarizeNodes(load.nodes);
    const nextStatus = withoutAbsent<UpgradeBundleStatus>({
      phase,
      version,
      release,
      base,
      size,
      head,
      hops: hops && withPhase(hops, version, phase),
      nodesReady,
      progress: step.progress ?? progress,
      turn: load.turn,
      backupNode: step.backupNode,
      backups,
      reportKey: this.#reportKey,
      conditions,
      reason,
      lastProgressTime: new Date(since).toISOString().replace(/\.\d+/, ''),
      observedGeneration: generation,
      nodes: shorten(step.nodes ?? load.known),
    });
    const before = { ...status, conditions: mergeConditions(status.conditions, [], generation) };
    if (isDeepStrictEqual(nextStatus, { ...before, nodes: status.nodes ?? [] })) return false;
    const isUrgent = !isDeepStrictEqual(urgentPart(nextStatus), urgentPart(before));
    if (!isUrgent && performance.now() - this.#writtenAt < statusPause(load.nodes.length)) return false;
    const isNew = phase !== status.phase || version !== status.version;
    if (isNew) await this.#recordEvent(bundle, step);
    // Remove all other fields, also entries of nodes that are gone.
    const clearedFields = Object.fromEntries(Object.keys(status).map((field) => [field, null]));
    try {
      await this.#patch(bundle, { ...clearedFields, ...nextStatus });
    } catch (error) {
      if (!isPluginError(error, 'conflict')) throw error;
      // The object has changed since it was read. The next round reads it again.
      this.#context.log('debug', messageOf(error));
      return false;
    }
    this.#writtenAt = performance.now();
    if (isNew) this.#context.log('info', `${metadata.name}: ${phase}`);
    return isNew;
  }

  /**
   * Writes to the status of a completed update what its nodes have now, whether some lost images, and more conditions.
   * Throws the errors of the cluster.
   */
  async writeNodes(
    { metadata, status = {}, ...bundle }: UpgradeBundle,
    known: readonly NodeProgress[],
    more: readonly BundleCondition[],
  ): Promise<void> {
    const lacking = known.filter(({ imagesLoaded, imagesTotal }) => imagesLoaded < imagesTotal);
    const words = lacking.map(({ name, imagesLoaded, imagesTotal, message }) => {
      return `${name} has ${imagesLoaded} of ${imagesTotal} images${message === undefined ? '' : `: ${message}`}`;
    });
    const loaded: BundleCondition =
      lacking.length > 0
        ? { type: 'Loaded', status: 'False', reason: 'ImagesLost', message: listNames(words, '; ') }
        : { type: 'Loaded', status: 'True', reason: 'Loaded', message: 'all nodes have all images' };
    const wasLost = listOf(status.conditions).some(({ type, status: is }) => type === 'Loaded' && is === 'False');
    const changed = [...(lacking.length > 0 || wasLost ? [loaded] : []), ...more];
    const conditions = mergeConditions(status.conditions, changed, status.observedGeneration ?? 0);
    const nextStatus: MergePatch<UpgradeBundleStatus> = {
      conditions,
      reason: findReason(conditions) ?? null,
      nodes: shorten(mergeNodes(status.nodes ?? [], known)),
    };
    const before = { conditions: status.conditions, reason: status.reason ?? null, nodes: status.nodes ?? [] };
    if (isDeepStrictEqual(nextStatus, before)) return;
    const isUrgent = lacking.length > 0 !== wasLost || more.length > 0;
    if (!isUrgent && performance.now() - this.#writtenAt < Math.max(60_000, statusPause(known.length))) return;
    await this.#patch({ ...bundle, metadata }, nextStatus).catch(ignoring('conflict'));
    this.#writtenAt = performance.now();
  }

  /** Writes to the status why the controller cannot continue, if the cluster accepts it. */
  async writeStall(bundle: UpgradeBundle, reason: string): Promise<void> {
    const { metadata, status = {} } = bundle;
    const conditions = mergeConditions(status.conditions, describeStall(status, reason), metadata.generation ?? 0);
    if (isDeepStrictEqual(conditions, status.conditions)) return;
    try {
      await this.#patch(bundle, { conditions, reason: findReason(conditions) ?? null });
    } catch (error) {
      if (!isPluginError(error)) throw error;
      this.#context.log('debug', messageOf(error));
    }
  }

  /** Patches the status of this version of the object. */
  async #patch(
    { metadata: { name, resourceVersion } }: UpgradeBundle,
    status: MergePatch<UpgradeBundleStatus>,
  ): Promise<void> {
    const reference = { ...upgradeBundleKind, metadata: { name } };
    const patch: MergePatch<UpgradeBundle> = { metadata: { resourceVersion }, status };
    await this.#cluster.patch(reference, patch, { subresource: 'status', manager: 'controller' });
  }

  /** Creates an event: in `default`, because the object has no namespace. Its name prevents a second event. */
  async #recordEvent({ apiVersion, kind, metadata }: UpgradeBundle, { phase, conditions }: Step): Promise<void> {
    const { name, uid, resourceVersion } = metadata;
    const now = new Date().toISOString().replace(/\.\d+/, '');
    const mark = hexOf(digestOf(`${uid ?? ''} ${resourceVersion ?? ''} ${phase}`)).slice(0, 16);
    const event: Written<'Event'> = {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { name: `${name.slice(0, 200)}.${mark}`, namespace: 'default' },
      involvedObject: { apiVersion, kind, name, uid, resourceVersion },
      reason: phase,
      message: conditions.at(-1)?.message.slice(0, 1000) ?? phase,
      type: phase === 'Failed' ? 'Warning' : 'Normal',
      firstTimestamp: now,
      lastTimestamp: now,
      count: 1,
      source: { component: 'oc-upgrade-bundle' },
      reportingComponent: 'oc-upgrade-bundle',
      reportingInstance: this.#identity,
    };
    await this.#cluster.create(event).catch(ignoring('conflict'));
  }
}

/** Returns the condition that says why the controller is stalled, or that it continues. */
function describeStall(status: UpgradeBundleStatus, stall: string | undefined, reason = 'Failing'): BundleCondition[] {
  if (stall !== undefined) return [{ type: 'Stalled', status: 'True', reason, message: stall }];
  return clearCondition(status, 'Stalled', 'Progressing', 'the rollout continues');
}

/** Returns the parts of a status whose changes are written immediately. */
function urgentPart({
  phase,
  version,
  release,
  base,
  turn,
  backupNode,
  observedGeneration,
  conditions,
}: UpgradeBundleStatus): object {
  const states = listOf(conditions).map(({ type, status, reason }) => [type, status, reason]);
  return { phase, version, release, base, turn, backupNode, observedGeneration, states };
}

/** Replaces the entries of nodes that have reported since. */
function mergeNodes(nodes: readonly NodeProgress[], known: readonly NodeProgress[]): NodeProgress[] {
  const latest = new Map(known.map((node) => [node.name, node]));
  return nodes.map((node) => latest.get(node.name) ?? node);
}

function shorten(nodes: readonly NodeProgress[]): NodeProgress[] {
  const room = Math.max(100, Math.floor(roomForWords / nodes.length));
  return nodes.map(({ message, ...node }) => ({
    ...node,
    ...(message !== undefined && { message: message.slice(0, room) }),
  }));
}
