import type { StoredObject } from '#cluster/objects';
import { readClusterVersion } from '#cluster/version';
import { signatureManifests } from '#config/signatures';
import { parseDigest, digestIn } from '#content/oci';
import { fieldsOf, listOf } from '#fields';
import { keptBackups } from '#node/clusterBackup';
import {
  servesPins,
  isSameSet,
  listUnpinnable,
  makePinnedImageSets,
  readPinState,
  type PinState,
  readNode,
  isControlPlane,
} from '#readiness/nodes';
import { takesLocalSystem } from '#readiness/preflight';
import { type BundleFacts, formatOutline } from '../record/bundleFacts.ts';
import { hasRunSince, isInstalled, isRefused, isRequested, readPercent } from '../record/bundleRecord.ts';
import { clearCondition, falseCondition, listNames, type BundleCondition } from '../record/conditions.ts';
import { describeExtras, nextHop, planHops } from '../record/extraImages.ts';
import { isRecentBackup } from '../record/nodeReport.ts';
import { readRendered } from '../record/poolRollout.ts';
import {
  abortAnnotation,
  hasEnded,
  phaseOf,
  summarizeNodes,
  type NodeProgress,
  type Phase,
  type UpgradeBundleStatus,
} from '../record/upgradeBundle.ts';
import {
  describePausedPools,
  isWorkerPool,
  keepsPoolsPaused,
  listWaitingPools,
  beginNextHop,
  findCompleted,
  isHeld,
} from './controlPlaneOnly.ts';
import { listPinnedReleases, removePins } from './garbageCollection.ts';
import type { LoadState } from './loadState.ts';
import { describeNodes } from './nodeReports.ts';
import type { Observation } from './observation.ts';
import { acknowledge, findObstacle } from './obstacle.ts';
import { listNeedingStreams, supplyStreams } from './osImageStream.ts';
import { isPaused, pausePools, restorePools } from './pauses.ts';
import { readFeatureSet, type Site } from './readiness.ts';
import type { Step } from './statusWriter.ts';
import { readProgress, requestUpdate } from './updateRequest.ts';
import { findClosedWindow } from './windowGate.ts';

/**
 * Takes the next step of an UpgradeBundle if the cluster allows it, and returns its new phase. A repeated step changes
 * nothing: all state is in the cluster.
 */
export async function takeStep(observation: Observation): Promise<Step> {
  const { bundle, site } = observation;
  const phase = phaseOf(bundle);
  const { release } = bundle.status ?? {};
  const isSent = phase === 'Upgrading' && !isWithdrawn(site, release);
  const begun = isSent || (['Pinned', 'Held'].includes(phase) && release !== undefined && isUnderWay(site, release));
  const aborted = bundle.metadata.annotations?.[abortAnnotation] === 'true';
  if (aborted && !begun) return withPausedPools(await abort(observation), observation);
  // An earlier controller ended between its last two writes.
  if (begun && phase !== 'Upgrading')
    return { phase: 'Upgrading', progress: '0%', conditions: [updated('Updating', 'the update has begun')] };
  const mismatch = begun || hasEnded(bundle) ? undefined : await observation.mismatch();
  if (mismatch !== undefined) return stay(observation, falseCondition('Verified', 'OtherBundle', mismatch));
  const taken = withPausedPools(await steps[phase](observation), observation);
  const facts = await observation.facts();
  const step = facts ? { ...taken, conditions: [...taken.conditions, ...describeExtras(bundle, facts)] } : taken;
  if (!aborted) return step;
  const abortNote = isRefused(site.clusterVersion, release ?? '')
    ? 'to abort, clear the update that the version operator refuses: oc adm upgrade --clear'
    : 'it is too late to abort: the cluster is being updated';
  return {
    ...step,
    conditions: step.conditions.map((each) =>
      each.type === 'Updated' ? { ...each, message: `${abortNote}; ${each.message}` } : each,
    ),
  };
}

function withPausedPools(step: Step, observation: Observation): Step {
  const { bundle, site } = observation;
  const paused = describePausedPools(bundle, site.pools, ['Completed', 'Failed'].includes(step.phase));
  return {
    ...step,
    conditions: [...paused, ...describeNodes(observation, observation.cluster.now()), ...step.conditions],
  };
}

const steps: Readonly<Record<Phase, (observation: Observation) => Promise<Step>>> = {
  Detected: detect,
  Verified: begin,
  Loading: load,
  Loaded: pin,
  Pinned: update,
  Held: update,
  Upgrading: follow,
  Completed: (observation) => Promise.resolve(stay(observation)),
  Failed: (observation) => Promise.resolve(stay(observation)),
};

async function detect(observation: Observation): Promise<Step> {
  const { digest } = observation.bundle.spec.bundle;
  const failures = observation.load.known.flatMap(({ name, message }) => (message ? [`${name}: ${message}`] : []));
  const wait = (reason: string, message: string): Step =>
    stay(observation, falseCondition('Verified', reason, [message, ...failures.slice(0, 10)].join('; ')));
  if (digest === undefined) return wait('NotAllowed', 'spec.bundle.digest does not allow any bundle yet');
  const facts = await observation.facts();
  if (!facts)
    return wait('NotFound', `the node of the controller has not verified a bundle with the digest ${digest} yet`);
  const hops = planHops(facts, readClusterVersion(observation.site.clusterVersion).version);
  const { version, release } = hops?.find(({ phase }) => phase === 'Pending') ?? facts.metadata;
  const { base } = facts.metadata;
  const needing = await listNeedingStreams(observation.cluster, facts.hops ?? [facts]);
  const needs =
    needing.length > 0 ? [`${listNames(needing)} needs its operating system streams described in the cluster`] : [];
  const message = [`it is ${hops ? hops.map((hop) => hop.version).join(', ') : version}`, ...needs].join('; ');
  const condition = { type: 'Verified', status: 'True', reason: 'Verified', message } as const;
  const outline = facts.outline && formatOutline(facts.outline);
  return { phase: 'Verified', version, release, hops, base: base?.version, outline, conditions: [condition] };
}

async function begin(observation: Observation): Promise<Step> {
  const { cluster, bundle, site } = observation;
  // What blocks the next update may be that the pools are behind.
  if (!keepsPoolsPaused(bundle) && site.pools.some(isPaused)) await restorePools(cluster);
  const { obstacle, acknowledged } = await findObstacle(observation, { loads: true });
  if (obstacle) return stay(observation, ...acknowledged, obstacle);
  await observation.pause();
  return { phase: 'Loading', conditions: [...acknowledged, ready, observation.load.condition] };
}

async function load(observation: Observation): Promise<Step> {
  // Pause again: the controller may be new, or nodes may have joined during a pause.
  await observation.pause();
  return { phase: observation.load.done ? 'Loaded' : 'Loading', conditions: [observation.load.condition] };
}

async function pin(observation: Observation): Promise<Step> {
  if (!observation.load.done) return backToLoading(observation);
  const condition = await pinImages(observation);
  return {
    phase: condition.status === 'True' ? 'Pinned' : 'Loaded',
    conditions: [observation.load.condition, condition],
  };
}

async function update(observation: Observation): Promise<Step> {
  const { cluster, bundle, site, load: state } = observation;
  if (!state.done) return backToLoading(observation);
  const pinned = await pinImages(observation);
  if (pinned.status !== 'True') return { phase: 'Loaded', conditions: [pinned] };
  if (isHeld(bundle)) {
    await observation.restore({ pools: !keepsPoolsPaused(bundle) });
    return {
      phase: 'Held',
      conditions: [
        updated('Held', `everything is ready; spec.${bundle.spec.hold ? 'hold' : 'holdBetween'} delays the update`),
      ],
    };
  }
  const facts = await observation.facts();
  if (!facts) return stay(observation, updated('NotFound', 'the node of the controller has no verified bundle yet'));
  const lack = await observation.mirrorLack(facts);
  if (lack !== undefined) return stay(observation, updated('MirrorNotReady', lack));
  const { version, release } = facts.metadata;
  // A bundle of the running release is only loaded and pinned.
  if (isInstalled(site.clusterVersion, release)) return follow(observation);
  const { obstacle, acknowledged } = await findObstacle(observation, { loads: false });
  if (obstacle) return stay(observation, ...acknowledged, obstacle);
  const closed = await findClosedWindow(observation, facts);
  if (closed) {
    await observation.restore({ pools: !keepsPoolsPaused(bundle) });
    return { phase: 'Held', conditions: [...acknowledged, ready, closed] };
  }
  const { condition, ...backup } = awaitBackup(observation);
  // The record names the backup before the update is requested, so that no conflict and no kill can lose it.
  const recorded = new Set(bundle.status?.backups?.map(({ path }) => path));
  const isRecorded = backup.backups?.every(({ path }) => recorded.has(path));
  if (condition.reason !== 'Off' && !isRecorded)
    return { ...stay(observation, ...acknowledged, ready, condition), ...backup };
  await observation.pause();
  // Nodes take the operating system from their own storage only if its images are pinned. The
  // target release can pin them, but this cluster cannot yet.
  const lacksPins =
    !(await servesPins(cluster)) && takesLocalSystem({ version, pinsIn: facts.pinsIn }, await readFeatureSet(cluster));
  const isControlPlaneOnly = bundle.spec.controlPlaneOnly === true && nextHop(bundle.status ?? {}) !== undefined;
  if (lacksPins || isControlPlaneOnly)
    await pausePools(cluster, bundle.metadata.name, (pool) => lacksPins || isWorkerPool(pool));
  for (const { object } of signatureManifests({ release: facts.metadata, signatures: facts.signatures }))
    await cluster.apply(object, { manager: 'controller', force: true });
  const risks = await requestUpdate(cluster, site.clusterVersion, facts.metadata, bundle.spec.acceptRisks ?? []);
  const requested = updated('Updating', `the cluster was asked to update to ${version}`);
  const conditions = [...risks, ...acknowledged, condition, ready, requested];
  return { phase: 'Upgrading', progress: '0%', conditions };
}

async function follow(observation: Observation): Promise<Step> {
  const { cluster, bundle, site } = observation;
  const { release = '', version = '' } = bundle.status ?? {};
  if (!isInstalled(site.clusterVersion, release) && !isRequested(site.clusterVersion, release)) {
    await observation.restore();
    return {
      phase: 'Failed',
      conditions: [updated('Superseded', 'another update was requested meanwhile')],
    };
  }
  await observation.pause();
  const facts = await observation.facts();
  const pins = facts && (await servesPins(cluster)) ? await applySets(observation, facts) : undefined;
  const waiting = listWaitingPools(bundle, site.pools);
  const pools = site.pools.filter((pool) => !waiting.includes(pool));
  // No node needs pins to update to a release that does not serve them.
  const target = { version, pinsIn: facts?.pinsIn };
  const isPinned = pins ? pins.waiting.length === 0 : !takesLocalSystem(target, await readFeatureSet(cluster));
  if (isPinned && pools.some(isPaused))
    await restorePools(cluster, (pool) => waiting.every(({ metadata }) => metadata.name !== pool.metadata.name));
  // Of a release that ran before, nothing is updated, and no trouble of the cluster is one of the update.
  const { done, reason, message } = hasRunSince(site.clusterVersion, release, bundle.metadata.creationTimestamp)
    ? { done: true, reason: 'Updated', message: `the cluster runs ${version} already: nothing was updated` }
    : readProgress(site.clusterVersion, release, pools, site.nodes);
  const missing = facts ? await describeMissing(observation, facts) : [];
  const percent = readPercent(site.clusterVersion);
  const progress = percent === undefined ? bundle.status?.progress : `${percent}%`;
  const { conditions: described, stall } = facts ? await supplyStreams(observation, facts) : { conditions: [] };
  if (!done) {
    // A gate that appeared after the request: the version operator accepts the release once it is acknowledged.
    const isHeldUp = facts !== undefined && isRefused(site.clusterVersion, release);
    const { lacks, conditions } = isHeldUp ? await acknowledge(observation, facts) : { lacks: false, conditions: [] };
    const [required] = lacks ? conditions : [];
    const state = required ? updated(required.reason, required.message) : updated(reason, message);
    return { phase: 'Upgrading', progress, conditions: [...described, ...conditions, state, ...missing], stall };
  }
  const next = beginNextHop(bundle);
  if (next) return next;
  if (waiting.length > 0) {
    if (isPinned) await restorePools(cluster);
    const names = listNames(waiting.map(({ metadata }) => metadata.name));
    const pinning = pins && !isPinned ? `, once the images are pinned on ${listNames(pins.waiting)}` : '';
    const words = `the control plane is updated; next are the pools ${names}${pinning}`;
    return { phase: 'Upgrading', progress, conditions: [updated('ResumingPools', words), ...missing] };
  }
  await observation.restore();
  return {
    phase: 'Completed',
    progress: '100%',
    nodes: listFinal(observation.load, pins?.waiting),
    conditions: [...described, { type: 'Updated', status: 'True', reason, message }, ...missing],
  };
}

/** Lists all nodes for the record of a completed update. `unpinned`: the nodes that lack pins, if the cluster pins. */
function listFinal(
  { nodes, known: reportedNodes }: LoadState,
  unpinned: readonly string[] | undefined,
): NodeProgress[] {
  return nodes.map((entry) => {
    if (!reportedNodes.includes(entry)) return { ...entry, message: 'its agent did not report during the update' };
    const isPinned = entry.phase === 'Loaded' && unpinned?.includes(entry.name) === false;
    return isPinned ? { ...entry, phase: 'Pinned' } : entry;
  });
}

async function abort(observation: Observation): Promise<Step> {
  const { cluster, bundle, site } = observation;
  const isNeeded = listPinnedReleases(site.clusterVersion, false);
  const { release } = bundle.status ?? {};
  const isUnpinned = release !== undefined && isNeeded?.(release) === false && (await servesPins(cluster));
  await removePins(cluster, (set) => isNeeded?.(set.release) === false);
  await observation.restore();
  const done = findCompleted(bundle.status?.hops);
  const state = done ? `the cluster runs ${done.version}` : 'the cluster is as it was';
  const aborted = updated('Aborted', `aborted before the update began: ${state}`);
  return { phase: 'Failed', conditions: [...describeAborted(observation, isUnpinned), aborted] };
}

/** Returns the conditions that an aborted update has set before, as they are now. */
function describeAborted({ bundle, load: state }: Observation, isUnpinned: boolean): BundleCondition[] {
  const { nodesReady } = summarizeNodes(state.nodes);
  const now: [BundleCondition['type'], string | undefined][] = [
    ['Ready', 'the update is aborted'],
    ['Loaded', state.done ? undefined : `${nodesReady.replace('/', ' of ')} nodes had all images when it was aborted`],
    ['Pinned', isUnpinned ? 'the images are no longer pinned' : undefined],
  ];
  const presentTypes = listOf(bundle.status?.conditions).map(({ type }) => type);
  return now.flatMap(([type, message]) =>
    presentTypes.includes(type) && message !== undefined ? [falseCondition(type, 'Aborted', message)] : [],
  );
}

const ready: BundleCondition = { type: 'Ready', status: 'True', reason: 'Ready', message: 'nothing blocks the update' };

async function describeMissing(observation: Observation, { metadata }: BundleFacts): Promise<BundleCondition[]> {
  const missing = await observation.missing(metadata.images);
  if (missing.length === 0)
    return clearCondition(observation.bundle.status, 'ImagesMissing', 'NoneMissing', 'no pod failed to pull an image');
  const words = missing.map(
    ({ image, pod, bundled }) =>
      `${image}, needed by ${pod}${bundled ? ', is in the bundle and was still pulled' : ''}`,
  );
  const reason = missing.every(({ bundled }) => bundled) ? 'PulledDespiteBundle' : 'NotInBundle';
  return [{ type: 'ImagesMissing', status: 'True', reason, message: listNames(words, '; ') }];
}

/**
 * Returns whether the request for the release is gone, as after `oc adm upgrade --clear`. The cluster is then
 * unchanged.
 */
function isWithdrawn({ clusterVersion }: Site, release = ''): boolean {
  const { desiredUpdate } = fieldsOf(clusterVersion['spec']);
  return (desiredUpdate ?? null) === null && !isInstalled(clusterVersion, release);
}

function isUnderWay({ clusterVersion }: Site, release: string): boolean {
  return isRequested(clusterVersion, release) && !isInstalled(clusterVersion, release);
}

function backToLoading({ load: { condition } }: Observation): Step {
  return { phase: 'Loading', conditions: [condition] };
}

function stay({ bundle }: Observation, ...conditions: BundleCondition[]): Step {
  return { phase: phaseOf(bundle), conditions };
}

function updated(reason: string, message: string): BundleCondition {
  return falseCondition('Updated', reason, message);
}

/** The observations that pinning needs. */
type Pinnable = Pick<Observation, 'cluster' | 'bundle' | 'site' | 'load' | 'facts'>;

/**
 * Pins the images by PinnedImageSets. If the cluster does not serve that kind, checks whether the agents have pinned
 * them.
 */
async function pinImages(observation: Pinnable): Promise<BundleCondition> {
  const waiting = (reason: string, message: string) => falseCondition('Pinned', reason, message);
  if (!(await servesPins(observation.cluster))) {
    const unpinnedNodes = observation.load.nodes.filter(({ phase }) => phase !== 'Pinned').map(({ name }) => name);
    if (unpinnedNodes.length > 0) return waiting('Pinning', `images are not pinned yet on ${listNames(unpinnedNodes)}`);
    return { type: 'Pinned', status: 'True', reason: 'PinnedByAgents', message: 'all nodes have pinned all images' };
  }
  const facts = await observation.facts();
  if (!facts) return waiting('NotFound', 'the node of the controller has no verified bundle yet');
  const { waiting: waitingNodes, unreported, failures } = await applySets(observation, facts);
  if (failures.length > 0) return waiting('PinningFailed', listNames(failures, '; '));
  const silent = unreported.filter((name) => waitingNodes.includes(name));
  const silence =
    silent.length === 0
      ? ''
      : `; the machine config daemon has not reported about these sets on ${listNames(silent)}: oc -n ` +
        'openshift-machine-config-operator get pods -o wide';
  if (waitingNodes.length > 0)
    return waiting('Pinning', `images are not pinned yet on ${listNames(waitingNodes)}${silence}`);
  const unpinnable = listUnpinnable(facts.metadata.images);
  const but = unpinnable.length > 0 ? `, except names that no PinnedImageSet accepts: ${listNames(unpinnable)}` : '';
  return { type: 'Pinned', status: 'True', reason: 'Pinned', message: `all nodes have pinned all images${but}` };
}

/** Applies the PinnedImageSets of a bundle if they differ, and reads the progress of the nodes. */
async function applySets({ cluster, bundle, site, load: state }: Pinnable, facts: BundleFacts): Promise<PinState> {
  const { release, images } = facts.metadata;
  // The sets of the release before stay until the next update has begun, so each of several releases has its own.
  const digest = facts.hops ? parseDigest(digestIn(release)) : facts.digest;
  const desiredSets = makePinnedImageSets({ name: bundle.metadata.name, digest, release, images }, site.pools);
  const setsByName = new Map(site.pinnedSets.map((set) => [set.metadata.name, set]));
  const sets: StoredObject[] = [];
  for (const set of desiredSets) {
    const present = setsByName.get(set.metadata.name);
    sets.push(isSameSet(set, present) ? present : await cluster.apply(set, { manager: 'controller', force: true }));
  }
  return readPinState(
    sets,
    site.pools,
    site.poolNodes,
    state.nodes.map(({ name }) => name),
  );
}

/** The backup before an update: its condition, the node that makes it, and the backups for the record. */
export interface BackupState {
  readonly condition: BundleCondition;
  readonly backupNode?: string;
  readonly backups?: UpgradeBundleStatus['backups'];
}

/**
 * Has the agent of a control plane node back up etcd before an update, unless `spec.backup` is `off`. The condition is
 * true when the agent reports a checked backup of the running version. Another node makes it only if the node is gone,
 * not ready or silent, so that backups of several updates are in one place.
 */
export function awaitBackup({ bundle, site, reports }: Observation): BackupState {
  const { backups = [], backupNode } = bundle.status ?? {};
  if (bundle.spec.backup === 'off') {
    const words = 'spec.backup is off: there is no backup of this update';
    return { condition: falseCondition('BackedUp', 'Off', words) };
  }
  const able = site.nodes
    .map(readNode)
    .filter((node) => isControlPlane(node) && node.ready && reports.get(node.name)?.isRecent)
    .map(({ name }) => name)
    .sort();
  const node = [backupNode, backups.at(-1)?.node].find((name) => name !== undefined && able.includes(name)) ?? able[0];
  if (node === undefined) {
    const words = 'no control plane node that is ready has an agent that reports, to back up etcd before the update';
    return { condition: falseCondition('BackedUp', 'NoNode', words) };
  }
  const { version } = readClusterVersion(site.clusterVersion);
  const { made, failure } = reports.get(node)?.backup ?? {};
  if (made?.version === version && isRecentBackup(made)) {
    const message =
      `etcd and the static pods of ${version} are in ${made.path} on ` +
      `${node}${made.copy === undefined ? '' : `, and in ${made.copy}`}`;
    const pools = site.pools.map(({ metadata, status }) => [metadata.name, readRendered(status)] as const);
    const otherBackups = backups.filter(({ path }) => path !== made.path);
    const entry = { node, ...made, pools: pools.map(([name, config]) => ({ name, config })) };
    return {
      condition: { type: 'BackedUp', status: 'True', reason: 'BackedUp', message },
      backups: [...otherBackups, entry].slice(-keptBackups),
    };
  }
  const condition =
    failure === undefined
      ? falseCondition('BackedUp', 'BackingUp', `${node} backs up etcd and the static pods of ${version}`)
      : falseCondition('BackedUp', 'BackupFailed', `${node} cannot back up etcd before the update: ${failure}`);
  return { condition, backupNode: node };
}
