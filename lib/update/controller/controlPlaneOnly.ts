import type { StoredObject } from '#cluster/objects';
import { fieldsOf } from '#fields';
import { isExtendedUpdate } from '#release/version';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { clearCondition, falseCondition, listNames, type BundleCondition } from '../record/conditions.ts';
import { nextHop, withPhase } from '../record/extraImages.ts';
import { type UpgradeBundle, resumeAnnotation, type HopProgress } from '../record/upgradeBundle.ts';
import { isPaused } from './pauses.ts';
import type { Step } from './statusWriter.ts';

const controlPlane = ['master', 'arbiter'];

/** Returns whether nodes of a pool can stay at their version while the control plane takes several updates. */
export function isWorkerPool({ metadata: { name } }: StoredObject): boolean {
  return !controlPlane.includes(name);
}

/** Lists the pools that this bundle has paused until the last of several updates. */
export function listWaitingPools({ spec }: UpgradeBundle, pools: readonly StoredObject[]): StoredObject[] {
  if (spec.controlPlaneOnly !== true) return [];
  // An administrator may have resumed a pool.
  return pools.filter((pool) => isWorkerPool(pool) && isPaused(pool) && fieldsOf(pool['spec'])['paused'] === true);
}

/** Returns whether pools stay paused between two updates, even if the next one is held. */
export function keepsPoolsPaused({ spec, status }: UpgradeBundle): boolean {
  return spec.controlPlaneOnly === true && findCompleted(status?.hops) !== undefined;
}

/** Returns the condition `Ready` that `spec.controlPlaneOnly` does not fit the releases of the bundle. */
export function checkControlPlaneOnly(
  { spec, status }: UpgradeBundle,
  running: string,
  { hops = [], metadata }: BundleFacts,
): BundleCondition | undefined {
  const { version } = hops.at(-1)?.metadata ?? metadata;
  if (spec.controlPlaneOnly !== true || findCompleted(status?.hops) || isExtendedUpdate(running, version))
    return undefined;
  const message =
    'spec.controlPlaneOnly is for updates from one extended (EUS) release to the next one, and the bundle ' +
    `leads from ${running} to ` +
    `${version}: remove it from the spec`;
  return falseCondition('Ready', 'NotControlPlaneOnly', message);
}

/** Describes the pools that this update has paused. `ended`: whether it has just ended, and restored them. */
export function describePausedPools(
  { spec, status }: UpgradeBundle,
  pools: readonly StoredObject[],
  ended: boolean,
): BundleCondition[] {
  const type = 'PoolsPaused';
  const names = pools.filter(isPaused).map(({ metadata }) => metadata.name);
  if (ended || names.length === 0) return clearCondition(status, type, 'Resumed', 'no pool is paused for this update');
  const last = status?.hops?.at(-1)?.version ?? status?.version ?? '';
  const isWaiting = spec.controlPlaneOnly === true;
  const until = isWaiting ? `the control plane runs ${last}` : 'the images are pinned on their nodes';
  const reason = isWaiting ? 'ControlPlaneOnly' : 'Pinning';
  return [{ type, status: 'True', reason, message: `paused until ${until}: ${listNames(names)}` }];
}

/** Returns whether an update must not begin yet: the first one by `hold`, each later one by `holdBetween` too. */
export function isHeld({ spec, status = {}, metadata: { annotations = {} } }: UpgradeBundle): boolean {
  if (spec.hold) return true;
  const isLater = findCompleted(status.hops) !== undefined;
  return spec.holdBetween === true && isLater && annotations[resumeAnnotation] !== status.version;
}

/**
 * Returns the step after one of several updates: the next one begins with its checks, because the bundle is verified.
 * Undefined after the last update.
 */
export function beginNextHop({ status = {} }: UpgradeBundle): Step | undefined {
  const next = nextHop(status);
  if (!next) return undefined;
  const { version, release } = next;
  const message = `the cluster is updated to ${status.version ?? ''}; the next release is ${version}`;
  const types = ['Ready', 'Loaded', 'Pinned', 'Updated'] as const;
  const conditions = types.map((type) => falseCondition(type, 'NextRelease', message));
  const hops = withPhase(status.hops ?? [], status.version, 'Completed');
  const notBackedUp = clearCondition(status, 'BackedUp', 'NextRelease', message);
  return { phase: 'Verified', version, release, hops, conditions: [...conditions, ...notBackedUp] };
}

/** Returns the last completed one of several updates; undefined if there is none. */
export function findCompleted(hops: readonly HopProgress[] = []): HopProgress | undefined {
  return hops.findLast(({ phase }) => phase === 'Completed');
}
