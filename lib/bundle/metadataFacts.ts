import type { SignedRelease } from '../release/load.ts';
import type { Release } from '../release/release.ts';
import { PluginError } from '../errors.ts';
import type { BundledRelease, BundleMetadata } from './metadata.ts';

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
    signatures: describeSignatures(signatures),
    tool,
  };
}

/** Returns verified signatures in the form of metadata.json. */
export function describeSignatures(signatures: SignedRelease['signatures']): BundleMetadata['signatures'] {
  return Object.fromEntries(
    [...signatures].map(([digest, good]) => [
      digest,
      good.map(({ fingerprint, userId }) => ({ fingerprint, signer: userId })),
    ]),
  );
}

/**
 * Returns the same for several releases in the order of the updates: the facts about the last one, the images and
 * signatures of all, and the list of releases. `more` has the risks and bytes of each release.
 */
export function describeReleases(
  signed: readonly SignedRelease[],
  extras: readonly string[],
  tool: string,
  more: readonly Pick<BundledRelease, 'risks' | 'bytes'>[],
): MetadataFacts {
  const all = signed.map((each) => describeRelease(each, extras, tool));
  const last = all.at(-1);
  if (!last) throw new PluginError('internal', 'a bundle without a release');
  const [first] = more;
  if (all.length === 1) return { ...last, ...(first && first.risks.length > 0 && { risks: first.risks }) };
  return {
    ...last,
    images: [...new Set(all.flatMap(({ images }) => images))],
    signatures: Object.assign({}, ...all.map(({ signatures }) => signatures)) as MetadataFacts['signatures'],
    releases: all.map(({ version, release, components, osImages, previous }, index) => {
      const { risks, bytes } = more[index] ?? { risks: [], bytes: 0 };
      return { version, release, components, osImages, previous, risks, bytes };
    }),
  };
}

/** Returns the pullspecs of the components of a release by name, in the form of metadata.json. */
export function describeComponents({ images }: Pick<Release, 'images'>): BundleMetadata['components'] {
  return Object.fromEntries([...images].map(([name, { pullspec }]) => [name, pullspec]));
}
