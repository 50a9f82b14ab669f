import { parseDigest, type Digest, digestIn, repositoryIn } from '#content/oci';
import type { Context } from '#context';
import { asFailure } from '#errors';
import { readPayload, type Release } from '#release/release';
import type { Bundle } from '../open/bundle.ts';

/** The differences of a release from the base of a delta bundle, by components. */
export interface ReleaseChanges {
  /** The version and the release image of the base. */
  readonly version: string;
  readonly release: string;
  readonly images: readonly ChangedImage[];
  /** The number of components that are the same in both. */
  readonly unchanged: number;
}

/** A component that one release lacks, or that is another image in it. */
export interface ChangedImage {
  readonly name: string;
  readonly kind: 'added' | 'removed' | 'changed';
  readonly from?: ImageVersion;
  readonly to?: ImageVersion;
}

/** An image of a component, and the commit of its source. */
interface ImageVersion {
  readonly digest: Digest;
  readonly commit?: string;
}

/**
 * Compares a release with the base of its delta bundle. Undefined if the bundle is no delta, or if no opened base has
 * the release of the base. Throws `interrupted`.
 */
export async function findChanges(
  { metadata, bases = [] }: Bundle,
  release: Release,
  context: Context,
): Promise<ReleaseChanges | undefined> {
  if (!metadata.base) return undefined;
  const { release: pullspec, version } = metadata.base;
  const digest = parseDigest(digestIn(pullspec));
  for (const content of bases) {
    try {
      const options = { repository: repositoryIn(pullspec) };
      const before = await readPayload(content, await content.resolve(digest), options, context);
      return { version, release: pullspec, ...compareReleases(before, release) };
    } catch (error) {
      // A bundle of another release may be in the same folder.
      asFailure(error);
    }
  }
  return undefined;
}

/** Compares the components of two releases, by their digests. */
export function compareReleases(before: Release, after: Release): Pick<ReleaseChanges, 'images' | 'unchanged'> {
  const names = [...new Set([...before.images.keys(), ...after.images.keys()])].sort();
  const all = names.map((name): ChangedImage => {
    const [from, to] = [imageVersionOf(before, name), imageVersionOf(after, name)];
    const kind = from === undefined ? 'added' : to === undefined ? 'removed' : 'changed';
    return { name, kind, from, to };
  });
  const images = all.filter(({ from, to }) => from?.digest !== to?.digest);
  return { images, unchanged: all.length - images.length };
}

function imageVersionOf({ images, provenance }: Release, name: string): ImageVersion | undefined {
  const image = images.get(name);
  const commit = provenance.sources.get(name)?.commit;
  return image && { digest: image.digest, commit };
}
