import { isPluginError } from '#errors';
import { fieldsOf, listOf, textOf } from '#fields';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { falseCondition, type BundleCondition } from '../record/conditions.ts';
import { findWindow, formatWindowTime, usualNeeds } from '../record/maintenanceWindow.ts';
import { startAnnotation } from '../record/upgradeBundle.ts';
import type { ClockReading, Observation } from './observation.ts';

/** The largest difference of two clocks, and of a time to one before it, in milliseconds. */
const tolerance = 5 * 60_000;
/** A release is updated to within this time of its signature, in milliseconds: five years. */
const longestAge = 5 * 366 * 24 * 3_600_000;

/**
 * Returns why an update must not be requested now: no maintenance window with enough time is open, or no clock says so.
 * Undefined without windows, within one, and after `resume` has started this update outside of them.
 */
export async function findClosedWindow(
  { bundle, site, clock }: Pick<Observation, 'bundle' | 'site' | 'clock'>,
  facts: BundleFacts,
): Promise<BundleCondition | undefined> {
  const { windows = [], windowNeeds = usualNeeds } = bundle.spec;
  const { version } = facts.metadata;
  if (windows.length === 0 || bundle.metadata.annotations?.[startAnnotation] === version) return undefined;
  const start = `to start it now: oc adm-upgrade-bundle resume ${bundle.metadata.name}`;
  const reading = await clock();
  const doubt = describeDoubt(reading, [
    ...[...facts.signatures.values()].flat().map(({ created }) => ['the signature of the release', +created] as const),
    ['the record of the update', Date.parse(bundle.metadata.creationTimestamp ?? '')],
    ...listOf(fieldsOf(site.clusterVersion['status'])['history']).map(
      ({ completionTime }) => ['the last update', Date.parse(textOf(completionTime) ?? '')] as const,
    ),
  ]);
  if (doubt !== undefined)
    return closed('ClockNotTrusted', `a maintenance window needs the time, and ${doubt}. Set the clock, or ${start}`);
  try {
    const { open, next } = findWindow(windows, windowNeeds, reading.now);
    if (open) return undefined;
    const when =
      next === undefined
        ? `no maintenance window has ${windowNeeds} (${windows.join('; ')})`
        : `the next maintenance window with ${windowNeeds} begins ` +
          `${formatWindowTime(next.begins, next)}, ${new Date(next.begins).toISOString().replace('.000', '')}`;
    return closed('OutsideWindow', `everything is ready; ${when}; ${start}`);
  } catch (error) {
    if (!isPluginError(error, 'usage')) throw error;
    return closed('OutsideWindow', `spec.windows cannot be read: ${error.message}. Correct it, or ${start}`);
  }
}

function closed(reason: string, message: string): BundleCondition {
  return falseCondition('Updated', reason, message);
}

/**
 * Returns why a clock is not trusted; undefined if it is. `earlier` are things that happened before, with their times.
 */
function describeDoubt(
  { now, own, isSynchronized }: ClockReading,
  earlier: readonly (readonly [what: string, time: number])[],
): string | undefined {
  const shown = new Date(now).toISOString().slice(0, 16).replace('T', ' ');
  if (Math.abs(now - own) > tolerance)
    return `the clocks of the API server and of this node differ by ${Math.round(Math.abs(now - own) / 60_000)} minutes`;
  const later = earlier.find(([, time]) => time > now + tolerance);
  if (later) return `the clock shows ${shown} UTC, before ${later[0]}`;
  const [signed] = earlier;
  if (signed?.[0] === 'the signature of the release' && now - signed[1] > longestAge)
    return `the clock shows ${shown} UTC, over five years after the signature of the release`;
  if (isSynchronized === false) return 'no time server (NTP) sets the clock of this node';
  return undefined;
}
