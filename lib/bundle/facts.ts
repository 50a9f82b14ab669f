import type { SignedRelease } from '../release/load.ts';
import type { BundleMetadata } from './metadata.ts';

/** What a bundle says of its release, before its blobs are known. */
export type MetadataFacts = Omit<BundleMetadata, 'formatVersion' | 'size' | 'blobs' | 'volumes'>;

/** What metadata.json says of a release: everything but the blobs and the size. `extras` are pullspecs by digest. */
export function describeRelease(
  { release, signatures }: SignedRelease,
  extras: readonly string[],
  tool: string,
): MetadataFacts {
  const { version, arch, pullspec, images, osImages, previous } = release;
  const pullspecs = new Map([...images].map(([name, image]) => [name, image.pullspec]));
  return {
    version,
    arch,
    release: pullspec,
    images: [...new Set([pullspec, ...pullspecs.values(), ...extras])],
    components: Object.fromEntries(pullspecs),
    extraImages: extras,
    osImages: osImages.flatMap((name) => pullspecs.get(name) ?? []),
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
