import type { SiteOperator, SiteReport } from '../../config/siteReport.ts';
import type { Context } from '../../context.ts';
import type { Release } from '../../release/release.ts';
import { isOlder, isSameMinor } from '../../release/version.ts';
import type { BundledCatalog } from './catalogs.ts';

/** Logs which release of a bundle has no direct update from the release before it. */
export function checkReleasePath(releases: readonly Pick<Release, 'version' | 'previous'>[], context: Context): void {
  for (const [index, { version, previous }] of releases.entries()) {
    const before = releases[index - 1]?.version;
    if (before === undefined || previous.includes(before)) continue;
    context.log(
      'warn',
      `release ${version} has no direct update from ${before}: no cluster can update by this bundle alone`,
    );
  }
}

/**
 * Logs what prevents a site from the updates to some releases: no update path, and operators that do not support the
 * last one.
 */
export function checkSite(
  { version, operators }: SiteReport,
  releases: readonly Pick<Release, 'version' | 'previous'>[],
  catalogs: readonly BundledCatalog[],
  context: Context,
): void {
  const release = releases.at(-1);
  const next = releases.find((each) => isOlder(version, each.version)) ?? release;
  if (!release || !next) return;
  if (version !== next.version && !next.previous.includes(version)) {
    context.log('warn', `release ${next.version} has no direct update from ${version}, the version of the site`);
  }
  if (isSameMinor(version, release.version)) return;
  for (const operator of operators.filter((each) => isLimited(each.maxOpenShiftVersion, release.version))) {
    const better = findBetter(operator, release.version, catalogs);
    const { name, maxOpenShiftVersion: max = '' } = operator;
    const limit = `operator ${name} ${operator.version} at the site supports OpenShift up to ${max}`;
    if (better === undefined)
      context.log('warn', `${limit}, and the bundle has no version that supports ${release.version}`);
    else context.log('info', `${limit}: update it to ${better} before the cluster`);
  }
}

function findBetter({ name }: SiteOperator, target: string, catalogs: readonly BundledCatalog[]): string | undefined {
  const bundles = catalogs.flatMap(({ packages }) =>
    packages.flatMap((selected) => (selected.name === name ? selected.bundles : [])),
  );
  return bundles.find(({ maxOpenShiftVersion: max }) => !isLimited(max, target))?.version;
}

/** Returns whether a last supported minor version is below a release. */
function isLimited(max: string | undefined, release: string): boolean {
  const [maxMinor, minor] = [max, release].map((text) => Number(/^4\.(\d+)/.exec(text ?? '')?.[1]));
  return maxMinor !== undefined && minor !== undefined && maxMinor < minor;
}
