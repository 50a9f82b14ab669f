import semver from 'semver';
import { PluginError } from '#errors';

/** The architectures of published releases: the names in their tags, and the names in image configurations. */
const goNames = { x86_64: 'amd64', aarch64: 'arm64', ppc64le: 'ppc64le', s390x: 's390x', multi: undefined } as const;

/** An architecture of a release, by its name in tags. `multi` is a manifest list of all. */
export type Architecture = keyof typeof goNames;

/** The repository of Red Hat's releases, and the default repository for the release images of a directory. */
export const usualRepository = 'quay.io/openshift-release-dev/ocp-release';

/** All architectures, in the order of help texts. */
export const architectures = Object.keys(goNames) as readonly Architecture[];

/** Reads an architecture by its own name or by Go’s (`amd64`, `arm64`). Throws `usage`. */
export function parseArchitecture(text: string): Architecture {
  const architecture = architectures.find((name) => name === text || goNames[name] === text);
  if (architecture) return architecture;
  throw new PluginError('usage', `“${text}” is not an architecture of OpenShift`, {
    hint: `Use one of ${architectures.join(', ')}.`,
  });
}

/** Returns the name of an architecture in image configurations and manifest lists; undefined for `multi`. */
export function goArchitecture(arch: Architecture): string | undefined {
  return goNames[arch];
}

/** Returns whether a text is a complete release version. */
export function isVersion(text: string): boolean {
  return semver.parse(text)?.version === text;
}

/** Parses a complete release version such as `4.12.4` or `4.13.0-rc.2`. Throws `usage`. */
export function parseVersion(text: string): string {
  const version = semver.parse(text);
  // A tag cannot have build metadata (+…), and `v4.12.4` is not a tag either. Only the canonical form is valid.
  if (version?.version === text) return text;
  const prefixed = version !== null && text === `v${version.version}`;
  // The digits of a pullspec’s digest are no version.
  const meant = version?.version ?? semver.coerce(text.replace(/@.*/s, ''))?.version;
  throw new PluginError('usage', `“${text}” is not the version of a release`, {
    hint: prefixed ? `Leave out the “v”: ${version.version}.` : `Give all three numbers, such as ${meant ?? '4.12.4'}.`,
    settings: prefixed ? [] : [text.includes('/') ? 'releaseImage' : 'channel'],
  });
}

/** Throws `usage` if a release is named twice. */
export function requireDistinct(releases: readonly string[]): void {
  const twice = releases.find((each, index) => releases.indexOf(each) !== index);
  if (twice === undefined) return;
  throw new PluginError('usage', `${twice} is given twice`, {
    hint: `Name each release once: ${[...new Set(releases)].join(',')}.`,
  });
}

/** Returns whether a version is older than another; false for a text that is not a version. */
export function isOlder(version: string, than: string): boolean {
  const parsed = semver.parse(version);
  return parsed !== null && semver.lt(parsed, than);
}

/** Returns whether two texts are the same version; false for a text that is not a version. */
export function isSameVersion(version: string, other: string): boolean {
  const [a, b] = [semver.parse(version), semver.parse(other)];
  return a !== null && b !== null && semver.compareBuild(a, b) === 0;
}

/**
 * Returns whether a version is in a range such as `>=1.0.0 <1.2.0 || 2.1.x`, as OLM reads it: with `!=`, and
 * pre-releases are in a range if they are between its ends. False for a text that is not a version or a range.
 */
export function satisfiesRange(version: string, range: string): boolean {
  return range.split('||').some((part) => {
    const excluded = [...part.matchAll(/!=?\s*([0-9][^\s|]*)/g)].map(([, text = '']) => text);
    const rest = part.replace(/!=?\s*[0-9][^\s|]*/g, ' ');
    if (excluded.some((each) => semver.satisfies(version, each, { includePrerelease: true }))) return false;
    return semver.satisfies(version, rest, { includePrerelease: true });
  });
}

/** Returns the major version; 0 for a text that is not a version. */
export function majorOf(version: string): number {
  return semver.parse(version)?.major ?? 0;
}

/** Returns whether a text is a range of versions that `satisfiesRange` understands. */
export function isRange(text: string): boolean {
  return text.split('||').every((part) => semver.validRange(part.replace(/!=?\s*[0-9][^\s|]*/g, ' ')) !== null);
}

/** Compares two versions: negative if the first is older. A text that is not a version is older than every version. */
export function compareVersions(a: string, b: string): number {
  const [first, second] = [semver.parse(a), semver.parse(b)];
  if (!first || !second) return Number(first !== null) - Number(second !== null);
  return semver.compare(first, second);
}

/** Returns whether two versions have the same minor version; false for a text that is not a version. */
export function isSameMinor(version: string, other: string): boolean {
  const [a, b] = [semver.parse(version), semver.parse(other)];
  return a !== null && b !== null && a.major === b.major && a.minor === b.minor;
}

/**
 * Returns how many minor versions the second version is ahead of the first; 0 for an earlier major version and for
 * other texts. Infinity for a later major version, because it is unknown with which minor version the first one ends.
 */
export function minorsBetween(version: string, other: string): number {
  const [a, b] = [semver.parse(version), semver.parse(other)];
  if (a === null || b === null) return 0;
  return a.major === b.major ? b.minor - a.minor : a.major < b.major ? Infinity : 0;
}

/**
 * Returns whether updates lead from one extended release (EUS) to the next one, such as from 4.18 to 4.20 or from 4.22
 * to 5.2. Workers can skip the releases between them.
 */
export function isExtendedUpdate(version: string, to: string): boolean {
  const [from, last] = [semver.parse(version), semver.parse(to)];
  if (from === null || last === null || !isExtended(from)) return false;
  // 4.22 and 4.23 both lead to 5.2: the graph has updates from 4.22 to 4.23 and 5.0, and from both of these to 5.1
  // (openshift/cincinnati-graph-data, build-suggestions, September 2026). That 5.1 leads to 5.2 is inferred.
  const [major, minor] =
    from.major === 4 ? (from.minor < 22 ? [4, from.minor + 2] : [5, 2]) : [from.major, from.minor + 3];
  return last.major === major && last.minor === minor;
}

/**
 * Extended releases are the even ones of 4, then 4.23, which is the last one of 4, and 5.2, 5.5, 5.8
 * (openshift/cluster-kube-apiserver-operator c813e820b, comments of kubelet_version_skew_controller.go).
 */
function isExtended({ major, minor }: semver.SemVer): boolean {
  return major === 4 ? minor % 2 === 0 || minor === 23 : major === 5 && minor % 3 === 2;
}

/**
 * Returns the oldest kubelet that OpenShift supports with the API server of a release, as the minor version of
 * Kubernetes 1. Upstream allows older ones. Undefined for other major versions than 4 and 5.
 */
export function oldestKubelet(version: string): number | undefined {
  const release = semver.parse(version);
  if (release?.major !== 4 && release?.major !== 5) return undefined;
  // 4.12 has Kubernetes 1.25. 4.23 and 5.0 both have 1.36.
  const server = release.minor + (release.major === 4 ? 13 : 36);
  // The rule of openshift/cluster-kube-apiserver-operator c813e820b, minSupportedKubeletSkewForOpenShiftVersion.
  const behind = release.major === 4 ? 2 - (release.minor % 2) : 1 + (release.minor % 3);
  return server - behind;
}

/** Returns the tag of a release: `4.12.4-x86_64`. */
export function releaseTag(version: string, arch: Architecture): string {
  return `${version}-${arch}`;
}

/** Returns whether a tag is a version and an architecture: `4.12.4-x86_64`. */
export function isReleaseTag(tag: string): boolean {
  return parseReleaseTag(tag) !== undefined;
}

/** Parses the tag of a release; undefined for any other tag. */
export function parseReleaseTag(tag: string): { version: string; arch: Architecture } | undefined {
  const arch = architectures.find((each) => tag.endsWith(`-${each}`));
  const version = arch && tag.slice(0, -arch.length - 1);
  return arch && version !== undefined && isVersion(version) ? { version, arch } : undefined;
}

/** Returns the tag of one image of a release: `4.12.4-x86_64-etcd`. */
export function componentTag(version: string, arch: Architecture, component: string): string {
  return `${releaseTag(version, arch)}-${component}`;
}

/**
 * Returns the update channels that may have a version, the most stable first. Every release is in `candidate`; final
 * releases can also be in `fast` and `stable`, and extended releases in `eus`.
 */
export function channelsOf(version: string): string[] {
  const release = new semver.SemVer(version);
  const { major, minor, prerelease } = release;
  const final = ['stable', 'fast', ...(isExtended(release) ? ['eus'] : [])];
  const stages = prerelease.length === 0 ? [...final, 'candidate'] : ['candidate'];
  return stages.map((stage) => `${stage}-${major}.${minor}`);
}

/** The largest number of minor versions that a path of updates is searched over. */
const longestSeries = 24;

/**
 * Returns the series of channels that may have a path of updates between two versions, the most stable first: one
 * channel for each minor version on the way. Throws `usage` for more than 24 minor versions.
 */
export function channelSeries(from: string, to: string): string[][] {
  const [first, last] = [new semver.SemVer(from), new semver.SemVer(to)];
  // A channel has the releases of the minor version before too, also if that has another major version.
  const start = first.major === last.major ? Math.min(first.minor, last.minor) : 0;
  const count = last.minor - start + 1;
  if (count > longestSeries) {
    throw new PluginError('usage', `${from} and ${to} are too far apart for one path of updates`);
  }
  const own = first.major === last.major ? [] : [`${first.major}.${first.minor}`];
  const minors = [...own, ...Array.from({ length: count }, (_, index) => `${last.major}.${start + index}`)];
  const stages = last.prerelease.length > 0 ? ['candidate'] : ['stable', 'fast', 'candidate'];
  return stages.map((stage) => minors.map((minor) => `${stage}-${minor}`));
}

/** Returns the architectures for which a repository with these tags has a version. */
export function architecturesOf(version: string, tags: readonly string[]): Architecture[] {
  const present = new Set(tags);
  return architectures.filter((arch) => present.has(releaseTag(version, arch)));
}

/**
 * Returns the existing versions of an architecture that are nearest to a requested one, nearest first. The same minor
 * version comes before others. Final versions come before pre-releases, unless a pre-release is requested.
 */
export function nearVersions(requested: string, tags: readonly string[], arch: Architecture, count = 5): string[] {
  const target = new semver.SemVer(requested);
  const distance = (version: semver.SemVer): number[] => [
    Math.abs(version.major - target.major),
    Math.abs(version.minor - target.minor),
    target.prerelease.length === 0 && version.prerelease.length > 0 ? 1 : 0,
    // Of another minor version, the latest patch comes first, not the patch with the nearest number.
    version.minor === target.minor ? Math.abs(version.patch - target.patch) : -version.patch,
  ];
  return tags
    .filter((tag) => tag.endsWith(`-${arch}`))
    .flatMap((tag) => semver.parse(tag.slice(0, -arch.length - 1)) ?? [])
    .map((version) => ({ version, distance: distance(version) }))
    .sort((a, b) => compareLists(a.distance, b.distance) || semver.rcompare(a.version, b.version))
    .slice(0, count)
    .map(({ version }) => version.version);
}

/**
 * Returns the error for a version that a repository (`where`) does not have. The hint lists the architectures that have
 * it, or the nearest versions.
 */
export function unknownVersion(
  version: string,
  arch: Architecture,
  tags: readonly string[],
  where: string,
  cause?: unknown,
): PluginError {
  const elsewhere = architecturesOf(version, tags);
  const near = nearVersions(version, tags, arch);
  const hint =
    elsewhere.length > 0
      ? `It exists for ${elsewhere.join(', ')}.`
      : near.length > 0
        ? `The nearest that exist: ${near.join(', ')}.`
        : tags.length > 0
          ? `${where} has no release for ${arch} at all.`
          : 'The existing tags are not known. Check the version, the architecture and the repository.';
  return new PluginError('unknown-version', `${where} has no release ${version} for ${arch}`, {
    hint,
    settings: near.length > 0 && elsewhere.length === 0 ? [] : ['arch', 'releaseRepository'],
    cause,
  });
}

function compareLists(a: readonly number[], b: readonly number[]): number {
  return a.map((value, index) => value - (b[index] ?? 0)).find((difference) => difference !== 0) ?? 0;
}
