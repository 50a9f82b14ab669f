import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../context.ts';
import { messageOf } from '../errors.ts';
import type { Digest } from '../oci/digest.ts';
import type { BundleFacts } from './bundleFacts.ts';
import type { Cluster } from './client.ts';
import { ClusterView } from './clusterView.ts';
import { leadWithLease, type LeaseOptions } from './lease.ts';
import { Rollout, watchedKinds } from './rolloutRound.ts';

const usualPace = 15_000;

/**
 * How to control the rollout of bundles. Nodes load when `mayLoad` says so; it is the controller that decides, by the phase and,
 * for the control plane, by whose turn it is.
 */
export interface RolloutOptions {
  /** Who this is, for the Lease: the name of the node. */
  readonly identity: string;
  /** Where the Lease is. */
  readonly namespace: string;
  /** Reads the facts of the bundle with a digest that this node has verified; undefined if it has not yet. */
  readBundle(digest: Digest): Promise<BundleFacts | undefined>;
  /** Milliseconds after which the cluster is looked at even if it did not change, and whether somebody leads by those who do not; default 15 s. It is looked at no more than 15 times as often. */
  readonly pace?: number;
  readonly lease?: Pick<LeaseOptions, 'duration' | 'retryPeriod' | 'lookPeriod'>;
}

/**
 * Leads UpgradeBundles through their phases, whenever it has the Lease `controller`, until the signal is aborted. All that it knows is in the cluster:
 * it may end at any moment, and another one goes on.
 */
export async function controlRollout(cluster: Cluster, options: RolloutOptions, context: Context): Promise<void> {
  const { identity, namespace, lease, pace: lookPeriod = usualPace } = options;
  try {
    await leadWithLease(cluster, { lookPeriod, ...lease, name: 'controller', namespace, identity }, context, (signal) =>
      leadRollout(cluster.within(signal), options, { ...context, signal }),
    );
  } catch (error) {
    if (!context.signal.aborted) throw error;
  }
}

async function leadRollout(cluster: Cluster, options: RolloutOptions, context: Context): Promise<void> {
  const { signal } = context;
  const { pace = usualPace } = options;
  let bell = new AbortController();
  const ring = (): void => {
    bell.abort();
  };
  const view = new ClusterView(cluster, { kinds: watchedKinds, retryPause: pace }, ring, context);
  const watching = view.run();
  const rollout = new Rollout(cluster, view, options, context);
  const look = async (): Promise<boolean> => {
    try {
      return await rollout.look();
    } catch (error) {
      checkInterrupted(signal);
      const words = `the rollout cannot go on: ${messageOf(error)}`;
      context.log('warn', words);
      await rollout.tellTrouble(words);
      return false;
    }
  };
  try {
    for (;;) {
      bell = new AbortController();
      const moved = view.complete && (await look());
      // What nodes report comes in many small changes: they are looked at together.
      await sleep(pace / 15, undefined, { signal }).catch(() => undefined);
      if (!moved)
        await sleep(pace, undefined, { signal: AbortSignal.any([signal, bell.signal]) }).catch(() => undefined);
      checkInterrupted(signal);
    }
  } finally {
    await watching;
  }
}
