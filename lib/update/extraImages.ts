import { fieldsOf, listOf } from '../fields.ts';
import { listContainerImages } from '../bundle/images.ts';
import { digestIn } from '../content/oci/reference.ts';
import { describeMismatch } from './allowedBundle.ts';
import type { BundleFacts } from './bundleFacts.ts';
import { listNames, type BundleCondition } from './conditions.ts';
import { selectHop } from './hops.ts';
import type { UpgradeBundle } from './upgradeBundle.ts';

/** Facts without the extra images that an UpgradeBundle does not allow. */
export interface AllowedFacts extends BundleFacts {
  /** The extra images that were removed from the facts. */
  readonly leftOut: readonly string[];
}

/**
 * Removes the images that the release signature does not cover, unless `spec.allowExtraImages` has their digest. The
 * signed payload alone names the images of the release.
 */
export function leaveOutExtras(facts: BundleFacts, { spec }: Pick<UpgradeBundle, 'spec'>): AllowedFacts {
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
  return own && leaveOutExtras(own, bundle);
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
    `the release signature does not cover ${listNames(leftOut)}: they are not loaded. To allow them, add their digests to spec.allowExtraImages, or use ` +
    'oc adm-upgrade-bundle apply';
  return [{ type, status: 'False', reason: 'LeftOut', message }];
}
