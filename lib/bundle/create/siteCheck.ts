import type { SiteOperator, SiteReport } from '#config/siteReport';
import type { Context } from '#context';
import { nameSome } from '#errors';
import { describeGate, listRequiredGates, type GateConditions } from '#release/payload';
import type { Release } from '#release/release';
import { isOlder, isSameMinor } from '#release/version';
import type { HeldImages } from './base.ts';
import type { BundledCatalog } from './catalogs.ts';

/** The space that nodes keep free, in bytes (see the check `space` of preflight). */
const floor = 16 * 2 ** 30;

/** Logs which release of a bundle has no direct update from the release before it. */
export function checkReleasePath(releases: readonly Pick<Release, 'version' | 'previous'>[], context: Context): void {
  for (const [index, { version, previous }] of releases.entries()) {
    const before = releases[index - 1]?.version;
    if (before === undefined || previous.includes(before)) continue;
    const message = `release ${version} has no direct update from ${before}: no cluster can update by this bundle alone`;
    context.log('warn', message);
  }
}

/**
 * Logs what prevents a site from the updates to some releases: no update path, blockers, and operators that do not
 * support the last one.
 */
export function checkSite(
  site: SiteReport,
  releases: readonly PathRelease[],
  catalogs: readonly BundledCatalog[],
  context: Context,
): void {
  const { version, operators } = site;
  const release = releases.at(-1);
  const next = releases.find((each) => isOlder(version, each.version)) ?? release;
  if (!release || !next) return;
  if (version !== next.version && !next.previous.includes(version)) {
    context.log('warn', `release ${next.version} has no direct update from ${version}, the version of the site`);
  }
  for (const blocker of listSiteBlockers(site, releases)) context.log('warn', `at the site: ${blocker}`);
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

/** Returns the images that all nodes of a site have; undefined if the report names none, or no release by digest. */
export function heldImagesOf({ version, arch, history, heldImages = {} }: SiteReport): HeldImages | undefined {
  const release = history.find((each) => each.version === version)?.image;
  const images = Object.entries(heldImages).flatMap(([repository, digests]) =>
    digests.map((digest) => `${repository}@sha256:${digest}`),
  );
  if (release === undefined || !release.includes('@sha256:') || images.length === 0) return undefined;
  return { version, arch, release, images };
}

/** Logs which nodes of a site lack the space for a bundle. `size` is the size of its blobs in bytes. */
export function warnOfSpace({ nodes }: SiteReport, size: number, { log }: Pick<Context, 'log'>): void {
  // Blobs are compressed: about twice as large when unpacked, beside the bundle itself.
  const needed = 3 * size;
  for (const { name, free } of nodes) {
    if (free === undefined || free - floor >= needed) continue;
    const [want, has] = [needed + floor, free].map((bytes) => `${Math.ceil(bytes / 2 ** 30)} GiB`);
    log('warn', `${name} of the site has ${has ?? ''} free, and needs ${want ?? ''} for the bundle`);
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
  const [minor] = /^\d+\.\d+/.exec(max ?? '') ?? [];
  return minor !== undefined && isOlder(`${minor}.0`, release) && !isSameMinor(`${minor}.0`, release);
}

/** A release on the path of a site. */
type PathRelease = Pick<Release, 'version' | 'previous' | 'gates' | 'provenance'>;

/**
 * Lists what blocks the updates of a site to some releases, in their order. These are the blockers of its report.
 * Before another minor version, they are also feature gates, acknowledgements, and APIs in use that the last release
 * removes.
 */
function listSiteBlockers(site: SiteReport, releases: readonly PathRelease[]): string[] {
  const path = releases.filter(({ version }) => isOlder(site.version, version));
  const isMinor = path.some(({ version }) => !isSameMinor(site.version, version));
  const blockers = site.findings.filter(({ severity, message }) => {
    return severity === 'blocker' || (isMinor && message.startsWith('must not be updated to another minor'));
  });
  return [
    ...blockers.map(({ object, message }) => `${object} ${message}`),
    ...(isMinor ? [...describeFeatureGates(site), ...describeApis(site, path.at(-1))] : []),
    ...listRequiredGates({ version: site.version, gates: site.acknowledgements ?? [] }, path, conditionsOf(site))
      .filter(({ expected }) => expected?.certain !== false)
      .map(describeGate),
  ];
}

/** Returns what the report says about gates of operators; undefined for a report in text form. */
function conditionsOf({ gateConditions: known }: SiteReport): GateConditions | undefined {
  return (
    known && {
      platform: known.platform,
      isAzureStack: known.isAzureStack,
      hasMirrorSets: known.hasMirrorSets,
      hasArmNodes: known.hasArmNodes,
      servesGateways: known.servesGateways,
      managedBootImages: known.managedBootImages,
    }
  );
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
