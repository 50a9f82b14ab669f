import type { CreateRequest } from './request.ts';
import { releaseLimit } from '../metadata.ts';
import type { BundleOrigin } from './origin.ts';
import type { SiteReport } from '../../config/siteTypes.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import {
  requireAccepted,
  resolveChannelRanges,
  resolveUpdatePath,
  type ChannelRange,
  type PathStep,
} from '../../release/graph/updatePath.ts';
import {
  compareVersions,
  minorsBetween,
  parseVersion,
  requireDistinct,
  type Architecture,
} from '../../release/version.ts';

/** The versions of a new bundle, and the known risks of the updates to them. */
export interface PlannedReleases extends Pick<CreateRequest, 'risks'> {
  readonly versions: readonly string[];
}

/** The releases to choose: versions in a text with commas, or the last one of a path, or ranges of channels. */
interface BundleChoice {
  readonly text: string;
  readonly from: string | undefined;
  readonly ranges: readonly ChannelRange[];
}

/**
 * Returns the versions of a choice: those of the text, of the path of updates to a single one, or of the ranges. The path
 * begins at `from`, or at the version of a site that is more than one minor version behind. Throws `usage`, and the
 * errors of resolveUpdatePath, resolveChannelRanges and requireAccepted.
 */
export async function planReleases(
  { text, from, ranges }: BundleChoice,
  place: {
    readonly arch: Architecture;
    readonly graphUrl: string | undefined;
    readonly site: SiteReport | undefined;
    readonly acceptRisk: readonly string[];
  },
  { fetchFile }: Pick<BundleOrigin, 'fetchFile'>,
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
