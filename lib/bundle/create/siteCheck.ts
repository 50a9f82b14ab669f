import type { SiteOperator, SiteReport } from '../../config/siteReport.ts';
import type { Context } from '../../context.ts';
import type { Release } from '../../release/release.ts';
import { isSameMinor } from '../../release/version.ts';
import type { BundledCatalog } from './catalogs.ts';

/** Logs what prevents a site from the update to a release: no update path, and operators that do not support it. */
export function checkSite(
  { version, operators }: SiteReport,
  release: Pick<Release, 'version' | 'previous'>,
  catalogs: readonly BundledCatalog[],
  context: Context,
): void {
  if (version !== release.version && !release.previous.includes(version)) {
    context.log('warn', `release ${release.version} has no direct update from ${version}, the version of the site`);
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
