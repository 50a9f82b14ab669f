import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { formatReference } from '../../content/oci/reference.ts';
import { loadRelease, type FoundRelease, type SignedRelease, type TrustRequest } from '../../release/load.ts';
import { readPayload, type Release } from '../../release/release.ts';
import type { Architecture } from '../../release/version.ts';
import type { BundleImage } from '../images.ts';
import type { Contents } from './contents.ts';
import type { CreateRequest } from './request.ts';

/** The versions and the architecture of the releases of a bundle. */
export interface WantedReleases {
  readonly versions: readonly string[];
  readonly arch: Architecture;
}

/** Returns the versions of a request; undefined if a release is requested by image. */
export function listWanted({ releases }: Pick<CreateRequest, 'releases'>): WantedReleases | undefined {
  const [first] = releases;
  const versions = releases.flatMap((each) => ('version' in each ? each.version : []));
  return 'version' in first && versions.length === releases.length ? { versions, arch: first.arch } : undefined;
}

/**
 * Reads the releases of a request, and verifies their signatures. Throws the errors of loadRelease, and `usage` for
 * releases of several architectures.
 */
export async function loadReleases(
  foundReleases: readonly FoundRelease[],
  { releases, isLocal = false }: Pick<CreateRequest, 'releases'> & { readonly isLocal?: boolean },
  trust: TrustRequest,
  context: Context,
): Promise<[SignedRelease, ...SignedRelease[]]> {
  const signed: SignedRelease[] = [];
  for (const [index, each] of foundReleases.entries()) {
    const { reference, source } = each;
    const place = isLocal ? `${reference.digest} in ${source.name}` : formatReference(reference);
    context.log('info', `reading the release ${place}`);
    signed.push(await loadRelease(each, releases[index] ?? {}, trust, context));
  }
  const [first, ...others] = signed;
  if (!first) throw new PluginError('internal', 'a bundle without a release');
  const other = others.find(({ release }) => release.arch !== first.release.arch);
  if (!other) return [first, ...others];
  const architectures = `${first.release.version} is for ${first.release.arch}, and ${other.release.version} for ${other.release.arch}`;
  throw new PluginError('usage', `the releases of a bundle have one architecture: ${architectures}`);
}

/** Reads releases whose signatures are verified already. Throws the errors of readPayload. */
export function readVerifiedPayloads(foundReleases: readonly FoundRelease[], context: Context): Promise<Release[]> {
  return Promise.all(
    foundReleases.map(({ reference: { registry, repository }, descriptor, source }) =>
      readPayload(source, descriptor, { repository: `${registry}/${repository}` }, context),
    ),
  );
}

/** Returns the size of the blobs that each release adds to the releases before it, in bytes. */
export function measureReleases({ blobs }: Contents, lists: readonly (readonly BundleImage[])[]): number[] {
  const places = new Map(lists.flatMap((images, index) => images.map((image) => [image, index] as const)));
  const bytes = lists.map(() => 0);
  for (const { descriptor, images } of blobs.values()) {
    const first = Math.min(...[...images].map((image) => places.get(image) ?? 0));
    bytes[first] = (bytes[first] ?? 0) + descriptor.size;
  }
  return bytes;
}
