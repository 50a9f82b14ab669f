import type { SiteReport } from '#config/siteReport';
import { formatReference } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import {
  requireAccepted,
  resolveChannelRanges,
  resolveUpdatePath,
  type ChannelRange,
  type PathStep,
  type UpdateRisk,
} from '#release/graph';
import {
  loadRelease,
  type FoundRelease,
  type ReleaseRequest,
  type SignedRelease,
  type TrustRequest,
} from '#release/load';
import { readPayload, type Release } from '#release/release';
import { type Architecture, compareVersions, minorsBetween, parseVersion, requireDistinct } from '#release/version';
import type { BundleImage } from '../metadata/images.ts';
import { releaseLimit } from '../metadata/metadata.ts';
import type { Contents } from './contents.ts';
import type { ReleaseProvider } from './releaseProvider.ts';

/** The versions and the architecture of the releases of a bundle. */
export interface WantedReleases {
  readonly versions: readonly string[];
  readonly arch: Architecture;
}

/** Returns the versions of a request; undefined if a release is requested by image. */
export function listWanted(releases: readonly [ReleaseRequest, ...ReleaseRequest[]]): WantedReleases | undefined {
  const [first] = releases;
  const versions = releases.flatMap((each) => ('version' in each ? each.version : []));
  return 'version' in first && versions.length === releases.length ? { versions, arch: first.arch } : undefined;
}

/** Returns the versions and the architecture of releases that are read. */
export function listLoaded([first, ...others]: readonly [SignedRelease, ...SignedRelease[]]): WantedReleases {
  return { versions: [first, ...others].map(({ release }) => release.version), arch: first.release.arch };
}

/**
 * Reads the releases of a request, and verifies their signatures. Throws the errors of loadRelease, and `usage` for
 * releases of several architectures.
 */
export async function loadReleases(
  foundReleases: readonly FoundRelease[],
  requirements: readonly ReleaseRequest[],
  isLocal: boolean | undefined,
  trust: TrustRequest,
  context: Context,
): Promise<[SignedRelease, ...SignedRelease[]]> {
  const signed: SignedRelease[] = [];
  for (const [index, each] of foundReleases.entries()) {
    const { reference, source } = each;
    const place = isLocal ? `${reference.digest} in ${source.name}` : formatReference(reference);
    context.log('info', `reading the release ${place}`);
    signed.push(await loadRelease(each, requirements[index] ?? {}, trust, context));
  }
  const [first, ...others] = signed;
  if (!first) throw new PluginError('internal', 'a bundle without a release');
  const other = others.find(({ release }) => release.arch !== first.release.arch);
  if (!other) return [first, ...others];
  const architectures =
    `${first.release.version} is for ${first.release.arch}, and ${other.release.version} ` +
    `for ${other.release.arch}`;
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

/** The versions of a new bundle, and the known risks of the updates to them. */
interface PlannedReleases {
  readonly versions: readonly string[];
  readonly risks?: ReadonlyMap<string, readonly UpdateRisk[]>;
}

/** The releases to choose: versions in a text with commas, or the last one of a path, or ranges of channels. */
interface BundleChoice {
  readonly text: string;
  readonly from: string | undefined;
  readonly ranges: readonly ChannelRange[];
}

/**
 * Returns the versions of a choice: those of the text, of the path of updates to a single one, or of the ranges. The
 * path begins at `from`, or at the version of a site that is more than one minor version behind. Throws `usage`, and
 * the errors of resolveUpdatePath, resolveChannelRanges and requireAccepted.
 */
export async function planReleases(
  { text, from, ranges }: BundleChoice,
  place: {
    readonly arch: Architecture;
    readonly graphUrl: string | undefined;
    readonly site: SiteReport | undefined;
    readonly acceptRisk: readonly string[];
  },
  { fetchFile }: Pick<ReleaseProvider, 'fetchFile'>,
  context: Context,
): Promise<PlannedReleases> {
  const { arch, graphUrl, site, acceptRisk } = place;
  if (ranges.length > 0) {
    const updatePath = await resolveChannelRanges(ranges, arch, { graphUrl, fetchFile }, context);
    context.log(
      'info',
      `the releases in ${updatePath.channels.join(', ')}: ${updatePath.steps.map((step) => step.version).join(', ')}`,
    );
    requireAccepted(updatePath, acceptRisk, context);
    return listPlanned(updatePath.steps);
  }
  const versions = text.split(',');
  const [version = ''] = versions;
  requireDistinct(versions);
  if (versions.length > 1) return { versions: limit(versions.map(parseVersion).sort(compareVersions)) };
  const start = from ?? (site && minorsBetween(site.version, version) > 1 ? site.version : undefined);
  if (start === undefined) return { versions };
  const path = await resolveUpdatePath({ from: start, to: version }, arch, { graphUrl, fetchFile }, context);
  const { steps, channels } = path;
  const updates = steps.slice(1);
  if (updates.length === 0) throw new PluginError('usage', `${start} and ${version} are the same version`);
  const names = steps.map((step) => step.version).join(' → ');
  context.log('info', `the shortest path of updates in ${channels.join(', ')}: ${names}`);
  requireAccepted(path, acceptRisk, context);
  return listPlanned(updates);
}

function listPlanned(steps: readonly PathStep[]): PlannedReleases {
  return {
    versions: limit(steps.map(({ version }) => version)),
    risks: new Map(steps.map(({ version, risks }) => [version, risks])),
  };
}

/** Returns the versions. Throws `usage` above the limit of a bundle, before anything is downloaded. */
function limit(versions: readonly string[]): readonly string[] {
  if (versions.length <= releaseLimit) return versions;
  throw new PluginError('usage', `a bundle has at most ${releaseLimit} releases, and ${versions.length} are wanted`, {
    hint: 'Create two bundles.',
  });
}
