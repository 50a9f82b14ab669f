import type { SiteReport } from '../../config/siteTypes.ts';
import { nameSome } from '../../failures.ts';
import type { Release } from '../../release/release.ts';
import { describeGate, listRequiredGates } from '../../release/adminGates.ts';
import { isOlder, isSameMinor } from '../../release/version.ts';

/** A release on the path of a site. */
export type PathRelease = Pick<Release, 'version' | 'previous' | 'gates' | 'provenance'>;

/**
 * Lists what blocks the updates of a site to some releases, in their order. These are the blockers of its report. Before
 * another minor version, they are also feature gates, acknowledgements, and APIs in use that the last release removes.
 */
export function listSiteBlockers(site: SiteReport, releases: readonly PathRelease[]): string[] {
  const path = releases.filter(({ version }) => isOlder(site.version, version));
  const isMinor = path.some(({ version }) => !isSameMinor(site.version, version));
  const found = site.findings.filter(({ severity, message }) => {
    return severity === 'blocker' || (isMinor && message.startsWith('must not be updated to another minor'));
  });
  return [
    ...found.map(({ object, message }) => `${object} ${message}`),
    ...(isMinor ? [...describeFeatureGates(site), ...describeApis(site, path.at(-1))] : []),
    ...listRequiredGates({ version: site.version, gates: site.acknowledgements ?? [] }, path).map(describeGate),
  ];
}

// The version operator refuses another minor version with such a feature set (cluster-config-operator).
function describeFeatureGates({ featureGates }: SiteReport): string[] {
  const { featureSet = '', enabled = [], disabled = [] } = featureGates ?? {};
  if (!featureSet.endsWith('NoUpgrade')) return [];
  const gates = [...enabled, ...disabled];
  const names = gates.length === 0 ? '' : ` (${nameSome(gates, 10)})`;
  return [`the feature set ${featureSet}${names} prevents updates to another minor version`];
}

function describeApis({ removedApis = [] }: SiteReport, last: PathRelease | undefined): string[] {
  const kubernetes = last?.provenance.versions['kubernetes'];
  return removedApis
    .filter(({ removedIn }) => kubernetes === undefined || !isOlder(kubernetes, `${removedIn}.0`))
    .map(
      ({ name, removedIn, users }) => `Kubernetes ${removedIn} removes the API ${name}, which ${nameSome(users)} used`,
    );
}
