import { fieldsAt, fieldsOf, textOf, type Fields } from '#fields';

/** The profile of self-managed clusters (cluster-version-operator, DefaultClusterProfile). */
export const selfManaged = 'self-managed-high-availability';

/** The properties of a cluster by which its version operator chooses manifests. A missing one excludes nothing. */
export interface ManifestFilter {
  /** The identifier of `exclude.release.openshift.io/…`. */
  readonly exclude?: string;
  readonly profile?: string;
  /** `Default`, `TechPreviewNoUpgrade` and others. */
  readonly featureSet?: string;
  /** The enabled feature gates. */
  readonly gates?: ReadonlySet<string>;
  /** The major version of the release. */
  readonly major?: number;
  readonly capabilities?: { readonly known: readonly string[]; readonly enabled: readonly string[] };
}

const marks = {
  include: 'include.release.openshift.io/',
  exclude: 'exclude.release.openshift.io/',
  featureSet: 'release.openshift.io/feature-set',
  featureGate: 'release.openshift.io/feature-gate',
  majorVersion: 'release.openshift.io/major-version',
  capability: 'capability.openshift.io/name',
  delete: 'release.openshift.io/delete',
} as const;

/** The feature sets of openshift/api (AllFeatureSets, and CustomNoUpgrade). */
export const featureSets = [
  'Default',
  'OKD',
  'TechPreviewNoUpgrade',
  'DevPreviewNoUpgrade',
  'CustomNoUpgrade',
] as const;

/**
 * Returns why the version operator does not create an object of a release in such a cluster; undefined if it does. Its
 * rules are those of openshift/library-go 93ac9206a (pkg/manifest, Include), without the overrides of ClusterVersion.
 */
export function exclusionOf(object: Fields, filter: ManifestFilter): string | undefined {
  const annotations = annotationsOf(object);
  if (!annotations) return 'it has no annotations';
  if (annotations[marks.delete] === 'true') return 'the version operator deletes it';
  const excluded = filter.exclude === undefined ? undefined : annotations[`${marks.exclude}${filter.exclude}`];
  if (excluded === 'true') return `${marks.exclude}${filter.exclude ?? ''} is true`;
  return (
    checkFeatures(annotations, filter) ??
    (filter.major === undefined ? undefined : checkMajor(object, annotations, filter.major)) ??
    checkProfile(annotations, filter.profile) ??
    checkCapabilities(annotations, filter.capabilities)
  );
}

/** Returns whether an object has annotations of a release, and whether they name cluster profiles. */
export function releaseMarksOf(object: Fields): { readonly any: boolean; readonly profiles: boolean } {
  const names = Object.keys(annotationsOf(object) ?? {});
  const profiles = names.some((name) => name.startsWith(marks.include));
  return { any: profiles || names.some((name) => name.startsWith('release.openshift.io/')), profiles };
}

/** The API server’s library reads no annotations at all if one of them is not a string. */
function annotationsOf({ metadata }: Fields): Readonly<Record<string, string>> | undefined {
  const { annotations } = fieldsOf(metadata);
  if (typeof annotations !== 'object' || annotations === null) return undefined;
  const entries = Object.entries(fieldsAt(metadata, 'annotations'));
  const texts = entries.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value] as const] : []));
  return texts.length === entries.length ? Object.fromEntries(texts) : undefined;
}

type Annotations = Readonly<Record<string, string>>;

function checkFeatures(annotations: Annotations, { featureSet, gates }: ManifestFilter): string | undefined {
  const { [marks.featureSet]: sets, [marks.featureGate]: gateList } = annotations;
  if (featureSet !== undefined && gates && sets !== undefined && gateList !== undefined)
    return `it has both ${marks.featureSet} and ${marks.featureGate}`;
  if (featureSet !== undefined && sets !== undefined) {
    const names = sets.split(',');
    const unknown = names.find((name) => !featureSets.some((each) => each === name));
    if (unknown !== undefined) return `${marks.featureSet} has the unknown value “${unknown}”`;
    if (!names.includes(featureSet)) return `it is for the feature set ${sets}`;
  }
  if (!gates || gateList === undefined) return undefined;
  for (const name of listOf(gateList)) {
    if (name.startsWith('-') && gates.has(name.slice(1))) return `the feature gate ${name.slice(1)} is enabled`;
    if (!name.startsWith('-') && !gates.has(name)) return `the feature gate ${name} is not enabled`;
  }
  return undefined;
}

function checkMajor({ apiVersion, kind }: Fields, annotations: Annotations, major: number): string | undefined {
  const { [marks.majorVersion]: versionList } = annotations;
  if (versionList === undefined) return undefined;
  const [group] = String(apiVersion).split('/');
  const isFiltered =
    (group === 'config.openshift.io' && kind === 'FeatureGate') ||
    (group === 'apiextensions.k8s.io' && kind === 'CustomResourceDefinition');
  if (!isFiltered) return `${marks.majorVersion} is only for feature gates and definitions`;
  const versions = listOf(versionList);
  const invalid = versions.find((each) => !/^-?\d+$/.test(each));
  if (invalid !== undefined) return `${marks.majorVersion} has the invalid value “${invalid}”`;
  const [excluded, included] = [true, false].map((isExcluded) =>
    versions.filter((each) => each.startsWith('-') === isExcluded).map((each) => Math.abs(Number(each))),
  ) as [number[], number[]];
  if (included.some((each) => excluded.includes(each))) return `${marks.majorVersion} contradicts itself`;
  if (included.includes(major) || (included.length === 0 && !excluded.includes(major))) return undefined;
  return `it is for the major versions ${versionList}`;
}

function checkProfile(annotations: Annotations, profile: string | undefined): string | undefined {
  if (profile === undefined) return undefined;
  const value = annotations[`${marks.include}${profile}`];
  if (value === undefined) return `it is not for the cluster profile ${profile}`;
  return value === 'true' ? undefined : `${marks.include}${profile} is “${value}”`;
}

function checkCapabilities(
  { [marks.capability]: capabilityList = '' }: Annotations,
  capabilities: ManifestFilter['capabilities'],
): string | undefined {
  if (!capabilities || capabilityList === '') return undefined;
  const names = capabilityList.split('+');
  const unknown = names.filter((name) => !capabilities.known.includes(name));
  if (unknown.length > 0) return `the capability ${unknown.join(', ')} is unknown`;
  const disabled = names.filter((name) => !capabilities.enabled.includes(name));
  return disabled.length > 0 ? `the capability ${disabled.join(', ')} is disabled` : undefined;
}

function listOf(text: string): string[] {
  return text
    .split(',')
    .map((each) => each.trim())
    .filter((each) => each !== '');
}

/**
 * Returns the feature set that a FeatureGate of a release lists the gates of, for a cluster profile and major version;
 * undefined if it is for others. The profile has the value `false-except-for-the-config-operator` there.
 */
export function listedFeatureSets(object: Fields, profile: string, major: number): readonly string[] {
  const annotations = annotationsOf(object) ?? {};
  const isOfProfile = annotations[`${marks.include}${profile}`] !== undefined;
  if (!isOfProfile || checkMajor(object, annotations, major) !== undefined) return [];
  return textOf(annotations[marks.featureSet])?.split(',') ?? [];
}
