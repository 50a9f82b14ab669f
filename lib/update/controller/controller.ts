import { setTimeout as sleep } from 'node:timers/promises';
import type { VerifyTrust } from '../../bundle/signatureCheck.ts';
import type { Context } from '../../context.ts';
import { messageOf } from '../../errors.ts';
import { agentNamespace } from '../upgradeBundle.ts';
import { BundleCache } from '../agent/bundleCache.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { controlRollout } from './rollout.ts';
import { type RolloutOptions } from './observation.ts';

/** What a controller works with. */
export interface ControllerSettings {
  /** The name of its node. */
  readonly node: string;
  /** The folder in which the agent of the node keeps what it knows about bundles. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** Milliseconds between two looks at the cluster, more or less. */
  readonly interval: number;
}

/**
 * Leads updates from one node of the control plane, while it has the Lease, until the signal ends it. It learns about a bundle from what the agent of its own node has verified,
 * and verifies that again. It can be killed at any point.
 */
export async function runController(
  cluster: Cluster,
  { node: identity, folder, trust, interval: pace }: ControllerSettings,
  context: Context,
): Promise<void> {
  const holdings = new BundleCache(folder, trust);
  const readBundle: RolloutOptions['readBundle'] = (digest) => holdings.recall(digest, context);
  const { signal } = context;
  const isOver = (): boolean => signal.aborted;
  while (!isOver()) {
    try {
      await controlRollout(cluster, { identity, namespace: agentNamespace, readBundle, pace }, context);
    } catch (error) {
      context.log('warn', `the rollout is not controlled from here: ${messageOf(error)}`);
    }
    await sleep(pace, undefined, { signal }).catch(() => undefined);
  }
}
