import { setTimeout as sleep } from 'node:timers/promises';
import type { VerifyTrust } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import { leadWithLease } from '#cluster/lease';
import { ClusterView } from '#cluster/version';
import { checkInterrupted, type Context } from '#context';
import { messageOf } from '#errors';
import { isClockSynchronized, type Host } from '#node/machine';
import { BundleCache } from '../agent/bundleCache.ts';
import { keepMirror, type MirrorKeeperOptions } from '../mirror/mirrorKeeper.ts';
import { agentNamespace } from '../record/upgradeBundle.ts';
import { defaultInterval, type RolloutOptions } from './observation.ts';
import { Rollout, watchedKinds } from './rolloutRound.ts';

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
