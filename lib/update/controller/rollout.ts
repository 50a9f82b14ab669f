import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../../context.ts';
import { messageOf } from '../../errors.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { ClusterView } from '../../kubernetes/clusterView.ts';
import { leadWithLease } from '../../kubernetes/lease.ts';
import { Rollout, watchedKinds } from './rolloutRound.ts';
import type { RolloutOptions } from './observation.ts';

const usualPace = 15_000;

/**
 * Leads UpgradeBundles through their phases while it holds the Lease `controller`, until the signal is aborted. All
 * state is in the cluster, so it may end at any moment and another controller continues.
 */
export async function controlRollout(cluster: Cluster, options: RolloutOptions, context: Context): Promise<void> {
  const { identity, namespace, lease, pace: acquirePeriod = usualPace } = options;
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
      return await rollout.reconcile();
    } catch (error) {
      checkInterrupted(signal);
      const words = `the rollout cannot continue: ${messageOf(error)}`;
      context.log('warn', words);
      await rollout.tellTrouble(words);
      return false;
    }
  };
  try {
    for (;;) {
      bell = new AbortController();
      const moved = view.complete && (await look());
      // Reports of nodes arrive as many small changes: handle them together.
      await sleep(pace / 15, undefined, { signal }).catch(() => undefined);
      if (!moved)
        await sleep(pace, undefined, { signal: AbortSignal.any([signal, bell.signal]) }).catch(() => undefined);
      checkInterrupted(signal);
    }
  } finally {
    await watching;
  }
}
