import semver from 'semver';
import { PluginError } from '../errors.ts';

/** The architectures that releases are published for, by the names that their tags have, with the names that image configurations have. */
const goNames = { x86_64: 'amd64', aarch64: 'arm64', ppc64le: 'ppc64le', s390x: 's390x', multi: undefined } as const;

/** An architecture of a release, as its tags spell it; `multi` is a list of all of them. */
export type Architecture = keyof typeof goNames;

/** Where Red Hat publishes releases: what the release images of a directory are called when nothing says otherwise. */
export const usualRepository = 'quay.io/openshift-release-dev/ocp-release';

/** Every architecture, in the order in which help texts name them. */
export const architectures = Object.keys(goNames) as readonly Architecture[];

/** Reads an architecture by its own name or by Go’s (`amd64`, `arm64`). Throws `usage`. */
export function parseArchitecture(text: string): Architecture {
  const found = architectures.find((name) => name === text || goNames[name] === text);
  if (found) return found;
  throw new PluginError('usage', `“${text}” is not an architecture of OpenShift`, {
    hint: `Use one of ${architectures.join(', ')}.`,
  });
}

/** The name that image configurations and manifest lists have for an architecture; undefined for `multi`. */
export function goArchitecture(arch: Architecture): string | undefined {
  return goNames[arch];
}

/** Tells whether a text is a complete release version. */
export function isVersion(text: string): boolean {
  return semver.parse(text)?.version === text;
}

/** Reads a complete release version such as `4.12.4` or `4.13.0-rc.2` and gives it back. Throws `usage`. */
export function parseVersion(text: string): string {
  const version = semver.parse(text);
  // A tag cannot hold build metadata (+…), and `v4.12.4` is no tag either: only the canonical form will do.
  if (version?.version === text) return text;
  const meant = version?.version ?? semver.coerce(text)?.version;
  throw new PluginError('usage', `“${text}” is not the version of a release`, {
    hint: `Give all three numbers, such as ${meant ?? '4.12.4'}.`,
  });
}

/** Tells whether a version comes before another; false for what is no version. */
export function isOlder(version: string, than: string): boolean {
  const parsed = semver.parse(version);
  return parsed !== null && semver.lt(parsed, than);
}

/** Tells whether two versions differ in their patch at most; false for what is no version. */
export function isSameMinor(version: string, other: string): boolean {
  const [a, b] = [semver.parse(version), semver.parse(other)];
  return a !== null && b !== null && a.major === b.major && a.minor === b.minor;
}

/** The tag of a release: `4.12.4-x86_64`. */
export function releaseTag(version: string, arch: Architecture): string {
  return `${version}-${arch}`;
}

/** Tells whether a tag is that of a release, whichever. */
export function isReleaseTag(tag: string): boolean {
  return parseReleaseTag(tag) !== undefined;
}

/** Which release a tag names, whatever it leads to; undefined for any other tag. */
export function parseReleaseTag(tag: string): { version: string; arch: Architecture } | undefined {
  const arch = architectures.find((each) => tag.endsWith(`-${each}`));
  const version = arch && tag.slice(0, -arch.length - 1);
  return arch && version !== undefined && isVersion(version) ? { version, arch } : undefined;
}

/** The tag of one image of a release: `4.12.4-x86_64-etcd`. */
export function componentTag(version: string, arch: Architecture, component: string): string {
  return `${releaseTag(version, arch)}-${component}`;
}

/**
 * The update channels that may have a version, the most settled first. Every release enters `candidate`, pre-releases go no further; then come
 * `fast` and `stable`, and in even minor versions `eus`.
 */
export function channelsOf(version: string): string[] {
  const { major, minor, prerelease } = new semver.SemVer(version);
  const final = ['stable', 'fast', ...(minor % 2 === 0 ? ['eus'] : [])];
  const stages = prerelease.length === 0 ? [...final, 'candidate'] : ['candidate'];
  return stages.map((stage) => `${stage}-${major}.${minor}`);
}

/** The architectures for which a repository with these tags has a version. */
export function architecturesOf(version: string, tags: readonly string[]): Architecture[] {
  const present = new Set(tags);
  return architectures.filter((arch) => present.has(releaseTag(version, arch)));
}

/**
 * The existing versions of an architecture that are nearest to a wanted one, nearest first: of the same minor version
 * before others, final ones before pre-releases unless a pre-release is wanted.
 */
export function nearVersions(wanted: string, tags: readonly string[], arch: Architecture, count = 5): string[] {
  const target = new semver.SemVer(wanted);
  const distance = (version: semver.SemVer): number[] => [
    Math.abs(version.major - target.major),
    Math.abs(version.minor - target.minor),
    target.prerelease.length === 0 && version.prerelease.length > 0 ? 1 : 0,
    // Of another minor version, the latest patch is the one of interest, not the one with a like number.
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

/** The error for a version that a repository (`where`) does not have: says for which architectures it has it, or which versions are near. */
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
