import type { SignedRelease } from '../release/load.ts';
import type { Release } from '../release/release.ts';
import type { BundleMetadata } from './metadata.ts';

/** The part of metadata.json that describes the release, without the blobs. */
export type MetadataFacts = Omit<BundleMetadata, 'formatVersion' | 'size' | 'blobs' | 'volumes'>;

/** Returns the part of metadata.json that describes a release. `extras` are pullspecs by digest. */
export function describeRelease(
  { release, signatures }: SignedRelease,
  extras: readonly string[],
  tool: string,
): MetadataFacts {
  const { version, arch, pullspec, osImages, previous } = release;
  const components = describeComponents(release);
  return {
    version,
    arch,
    release: pullspec,
    images: [...new Set([pullspec, ...Object.values(components), ...extras])],
    components,
    extraImages: extras,
    osImages: osImages.flatMap((name) => components[name] ?? []),
    previous,
    signatures: Object.fromEntries(
      [...signatures].map(([digest, good]) => [
        digest,
        good.map(({ fingerprint, userId }) => ({ fingerprint, signer: userId })),
      ]),
    ),
    tool,
  };
}

/** Returns the pullspecs of the components of a release by name, in the form of metadata.json. */
export function describeComponents({ images }: Pick<Release, 'images'>): BundleMetadata['components'] {
  return Object.fromEntries([...images].map(([name, { pullspec }]) => [name, pullspec]));
}
