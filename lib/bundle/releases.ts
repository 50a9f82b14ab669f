import { PluginError } from '../errors.ts';
import type { Bundle } from './bundle.ts';
import type { BundleMetadata } from './metadata.ts';

/**
 * Returns the metadata of each release of a bundle in the order of the updates, as if it were a bundle of that release
 * and the extra images only. The blobs and signatures are those of the whole bundle.
 */
export function splitReleases(metadata: BundleMetadata): [BundleMetadata, ...BundleMetadata[]] {
  const { releases, ...shared } = metadata;
  const [first, ...others] = (releases ?? []).map(({ version, release, components, osImages, previous }) => {
    const images = [...new Set([release, ...Object.values(components), ...metadata.extraImages])];
    return { ...shared, formatVersion: 1, version, release, images, components, osImages, previous } as const;
  });
  return first ? [first, ...others] : [metadata];
}

/** Throws `unsupported` for a bundle with several releases. */
export function requireOneRelease({ path, metadata }: Pick<Bundle, 'path' | 'metadata'>): void {
  if (!metadata.releases) return;
  throw new PluginError('unsupported', `${path} has several releases (${nameVersions(metadata)})`, {
    hint: 'A cluster updates itself from a bundle with one release. Create one for each update.',
  });
}

/** Returns the versions of a bundle in words: `4.19.12, 4.20.3`. */
function nameVersions(metadata: BundleMetadata): string {
  return splitReleases(metadata)
    .map(({ version }) => version)
    .join(', ');
}
