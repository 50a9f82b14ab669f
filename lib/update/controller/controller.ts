import { setTimeout as sleep } from 'node:timers/promises';
import type { VerifyTrust } from '../../bundle/signatureCheck.ts';
import type { Context } from '../../context.ts';
import { messageOf } from '../../errors.ts';
import { agentNamespace } from '../upgradeBundle.ts';
import { BundleCache } from '../agent/bundleCache.ts';
import type { Cluster } from '../../cluster/client.ts';
import { keepMirror, type MirrorKeeperOptions } from '../mirror/mirrorKeeper.ts';
import { controlRollout } from './rollout.ts';
import { type RolloutOptions } from './observation.ts';

/** Settings of a controller. */
export interface ControllerSettings {
  /** The name of the controller’s node. */
  readonly node: string;
  /** The folder in which the agent of the node keeps the facts about bundles. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** What keeps the mirror of the node; undefined does not touch it. */
  readonly mirror?: Omit<MirrorKeeperOptions, 'interval'>;
  /** The average pause between two checks of the cluster, in milliseconds. */
  readonly interval: number;
}

/**
 * Leads updates from one control plane node while it holds the Lease, until the signal is aborted. Reads the facts of a
 * bundle that the agent of its own node has verified, and verifies them again. May be killed at any point.
 */
export async function runController(
  cluster: Cluster,
  { node: identity, folder, trust, mirror, interval }: ControllerSettings,
  context: Context,
): Promise<void> {
  const cache = new BundleCache(folder, trust);
  const readBundle: RolloutOptions['readBundle'] = (digest) => cache.recall(digest, context);
  const { signal } = context;
  const keeping = mirror && keepMirror({ ...mirror, interval }, context);
  const mirrors = mirror && { mirrorFolder: mirror.secrets };
  const isOver = (): boolean => signal.aborted;
  while (!isOver()) {
    try {
      await controlRollout(cluster, { identity, namespace: agentNamespace, readBundle, interval, ...mirrors }, context);
    } catch (error) {
      context.log('warn', `this node cannot lead the rollout: ${messageOf(error)}`);
    }
    await sleep(interval, undefined, { signal }).catch(() => undefined);
  }
  await keeping;
}
