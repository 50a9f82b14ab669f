import type { BundleMetadata } from './metadata.ts';

/**
 * Returns the metadata of each release of a bundle in the order of the updates, as if it were a bundle of that release
 * and the extra images only. The blobs and signatures are those of the whole bundle.
 */
export function splitReleases(metadata: BundleMetadata): [BundleMetadata, ...BundleMetadata[]] {
  const { releases, ...shared } = metadata;
  const [first, ...others] = (releases ?? []).map(({ version, release, components, osImages, previous, risks }) => {
    const images = [...new Set([release, ...Object.values(components), ...metadata.extraImages])];
    return { ...shared, formatVersion: 1, version, release, images, components, osImages, previous, risks } as const;
  });
  return first ? [first, ...others] : [metadata];
}
