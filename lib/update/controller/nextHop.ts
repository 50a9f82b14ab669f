import { clearCondition, falseCondition } from '../conditions.ts';
import { nextHop, withPhase } from '../hops.ts';
import { resumeAnnotation, type HopProgress, type UpgradeBundle } from '../upgradeBundle.ts';
import type { Step } from './step.ts';

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
