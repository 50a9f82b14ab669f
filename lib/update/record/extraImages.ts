import { listContainerImages } from '#bundle/metadata';
import { digestIn } from '#content/oci';
import { fieldsOf, listOf } from '#fields';
import { isOlder } from '#release/version';
import { describeMismatch, type BundleFacts } from './bundleFacts.ts';
import { listNames, type BundleCondition } from './conditions.ts';
import type { UpgradeBundle, HopPhase, HopProgress, Phase, UpgradeBundleStatus } from './upgradeBundle.ts';

/** Facts without the extra images that an UpgradeBundle does not allow. */
export interface AllowedFacts extends BundleFacts {
  /** The extra images that were removed from the facts. */
  readonly leftOut: readonly string[];
}

/**
 * Removes the images that the release signature does not cover, unless `spec.allowExtraImages` has their digest. The
 * signed payload alone names the images of the release.
 */
export function withoutExtraImages(facts: BundleFacts, { spec }: Pick<UpgradeBundle, 'spec'>): AllowedFacts {
  const { release, components, extraImages } = facts.metadata;
  const images = listContainerImages(facts.metadata);
  const signed = new Set([release, ...Object.values(components)]);
  const allowed = new Set(spec.allowExtraImages);
  const isChosen = (image: string): boolean => signed.has(image) || allowed.has(digestIn(image));
  const metadata = {
    ...facts.metadata,
    images: images.filter(isChosen),
    extraImages: extraImages.filter(isChosen),
  };
  return { ...facts, metadata, leftOut: images.filter((image) => !isChosen(image)) };
}

/**
 * Returns the facts about the release that the cluster updates to now, without extra images that are not allowed.
 * Undefined if the bundle does not have that release, or is not the allowed one.
 */
export function chooseFacts(
  facts: BundleFacts,
  bundle: Pick<UpgradeBundle, 'spec' | 'status'>,
): AllowedFacts | undefined {
  if (describeMismatch(bundle, facts) !== undefined) return undefined;
  const own = selectHop(facts, bundle.status?.version);
  return own && withoutExtraImages(own, bundle);
}

/** Describes which extra images are not loaded, and how to allow them. */
export function describeExtras({ status }: UpgradeBundle, { leftOut }: AllowedFacts): BundleCondition[] {
  const type = 'ExtraImagesAllowed';
  const isKnown = listOf(fieldsOf(status)['conditions']).some((each) => each['type'] === type);
  if (leftOut.length === 0) {
    const message = 'no extra image is left out';
    return isKnown ? [{ type, status: 'True', reason: 'Allowed', message }] : [];
  }
  const message =
    `the release signature does not cover ${listNames(leftOut)}: they are not loaded. To allow them, add their ` +
    'digests to spec.allowExtraImages, or use oc adm-upgrade-bundle apply';
  return [{ type, status: 'False', reason: 'LeftOut', message }];
}

/**
 * Returns the facts about one release of a bundle: the one with a version, or the first. Returns the facts of a bundle
 * with one release unchanged, and undefined if no release has that version.
 */
function selectHop(facts: BundleFacts, version: string | undefined): BundleFacts | undefined {
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
