import { isOlder } from '../release/version.ts';
import type { BundleFacts } from './bundleFacts.ts';
import type { HopPhase, HopProgress, Phase, UpgradeBundleStatus } from './upgradeBundle.ts';

/**
 * Returns the facts about one release of a bundle: the one with a version, or the first. Returns the facts of a bundle
 * with one release unchanged, and undefined if no release has that version.
 */
export function selectHop(facts: BundleFacts, version: string | undefined): BundleFacts | undefined {
  const { hops } = facts;
  if (!hops) return facts;
  const hop = version === undefined ? hops[0] : hops.find(({ metadata }) => metadata.version === version);
  return hop && { ...hop, hops };
}

/**
 * Lists the hops of an update to the releases of a bundle. Hops to releases that are not later than the running version
 * are skipped, except the last. Undefined for a bundle with one release.
 */
export function planHops({ hops }: BundleFacts, running: string): HopProgress[] | undefined {
  return hops?.map(({ metadata: { version, release } }, index) => {
    const isNeeded = isOlder(running, version) || index === hops.length - 1;
    return { version, release, phase: isNeeded ? 'Pending' : 'Skipped' };
  });
}

/** Returns the hop that begins after the present one; undefined if there is none. */
export function nextHop({ hops = [], version }: UpgradeBundleStatus): HopProgress | undefined {
  return hops.find((hop) => hop.phase === 'Pending' && hop.version !== version);
}

/** Returns hops with the phase of the hop to a version. */
export function withPhase(hops: readonly HopProgress[], version: string | undefined, phase: Phase): HopProgress[] {
  const own: HopPhase = phase === 'Detected' ? 'Pending' : phase;
  return hops.map((hop) => (hop.version === version ? { ...hop, phase: own } : hop));
}
