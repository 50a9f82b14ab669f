import type { BundleCondition } from '../record/conditions.ts';
import type { UpgradeBundle } from '../record/upgradeBundle.ts';
import type { LoadState } from './loadState.ts';
import type { Site } from './readiness.ts';
import type { Step } from './step.ts';

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
  return `no progress since ${time} (limit: ${minutes} minutes); waiting: ${wait.message}; ${remedy}; all remedies: docs/how-to/update-stands-still.md`;
}
