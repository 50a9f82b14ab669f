import { fieldsOf } from '../../fields.ts';
import type { StoredObject } from '../../cluster/storedObject.ts';
import { isExtendedUpdate } from '../../release/version.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import { clearCondition, falseCondition, listNames, type BundleCondition } from '../conditions.ts';
import type { UpgradeBundle } from '../upgradeBundle.ts';
import { findCompleted } from './nextHop.ts';
import { isPaused } from './pauses.ts';

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
    `spec.controlPlaneOnly is for updates from one extended (EUS) release to the next one, and the bundle leads from ${running} to ` +
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
