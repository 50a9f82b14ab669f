import { type Digest, formatReference, parseReference, type Reference, parseJson } from '#content/oci';
import type { Context } from '#context';
import { PluginError, messageOf } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { isImagePolicy, readImagePolicy, type ImagePolicy } from '../sigstore/imagePolicy.ts';
import { parseVersion, majorOf } from '../version.ts';
import { exclusionOf, featureSets, listedFeatureSets, selfManaged, type ManifestFilter } from './manifestFilter.ts';
import { type PayloadFiles, readPayloadObjects } from './payload.ts';

/** One image of a release. */
export interface ComponentImage {
  /** The name of the component: `etcd`. It is safe in tags and file names. */
  readonly name: string;
  readonly reference: Reference;
  /** The reference as text, by digest. */
  readonly pullspec: string;
  readonly digest: Digest;
}

// A component name becomes part of a tag and of file names, so it must not have separators or leading dots.
const componentName = /^[a-z0-9][a-z0-9._-]{0,127}$/;

/**
 * Reads the version and the images of a release from its `image-references`, an ImageStream of image.openshift.io/v1
 * whose tags name images by digest. Throws `invalid-release` with the invalid tag. `where` is for messages.
 */
export function readImageReferences(
  files: PayloadFiles,
  where: string,
): { version: string; images: ReadonlyMap<string, ComponentImage> } {
  const stream = parseObject(files, 'image-references', where);
  if (stream['kind'] !== 'ImageStream' || stream['apiVersion'] !== 'image.openshift.io/v1') {
    throw invalid(where, 'image-references is not an ImageStream of image.openshift.io/v1');
  }
  const name = objectOf(stream['metadata'])['name'];
  const tags = objectOf(stream['spec'])['tags'];
  if (!Array.isArray(tags) || tags.length === 0) throw invalid(where, 'image-references has no tags');
  const images = new Map<string, ComponentImage>();
  for (const tag of tags as unknown[]) {
    const image = readTag(objectOf(tag), where);
    if (images.has(image.name)) throw invalid(where, `image-references has the tag “${image.name}” twice`);
    images.set(image.name, image);
  }
  return { version: readVersion(name, where), images };
}

/**
 * The content of `release-metadata`: the versions that can update to the release, and whether it is multi-architecture.
 */
interface ReleaseMetadata {
  readonly previous: readonly string[];
  readonly multi: boolean;
}

/** Reads `release-metadata`, which some payloads lack. Throws `invalid-release`. */
export function readReleaseMetadata(files: PayloadFiles, where: string): ReleaseMetadata {
  if (!files.has('release-metadata')) return { previous: [], multi: false };
  const { previous = [], metadata } = parseObject(files, 'release-metadata', where);
  if (!Array.isArray(previous) || !previous.every((version) => typeof version === 'string')) {
    throw invalid(where, 'release-metadata has previous versions that are not a list of texts');
  }
  return { previous, multi: objectOf(metadata)['release.openshift.io/architecture'] === 'multi' };
}

function readTag(tag: Record<string, unknown>, where: string): ComponentImage {
  const { name } = tag;
  const from = objectOf(tag['from']);
  const label = `the tag “${typeof name === 'string' ? name.slice(0, 100) : ''}” of image-references`;
  if (typeof name !== 'string' || !componentName.test(name))
    throw invalid(where, `${label} has a name that cannot be a component’s`);
  if (from['kind'] !== 'DockerImage' || typeof from['name'] !== 'string')
    throw invalid(where, `${label} is not an image`);
  try {
    const { registry, repository, digest } = parseReference(from['name']);
    if (digest === undefined) throw invalid(where, `${label} is not by digest: ${from['name']}`);
    const reference = { registry, repository, digest };
    return { name, reference, pullspec: formatReference(reference), digest };
  } catch (cause) {
    if (cause instanceof PluginError && cause.code === 'invalid-release') throw cause;
    throw invalid(where, `${label} is malformed: ${messageOf(cause)}`, cause);
  }
}

function readVersion(name: unknown, where: string): string {
  try {
    return parseVersion(String(name));
  } catch (cause) {
    throw invalid(where, `its name is not a version: ${messageOf(cause)}`, cause);
  }
}

function parseObject(files: PayloadFiles, name: string, where: string): Record<string, unknown> {
  try {
    return objectOf(parseJson(files.get(name)?.toString('utf8') ?? ''));
  } catch (cause) {
    throw invalid(where, `${name} is not JSON`, cause);
  }
}

function objectOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function invalid(where: string, what: string, cause?: unknown): PluginError {
  return new PluginError('invalid-release', `${where} is not a valid release payload: ${what}`, { cause });
}

/** The feature gates that a release lists for one feature set. */
interface ListedGates {
  readonly enabled: ReadonlySet<string>;
  readonly disabled: ReadonlySet<string>;
}

/**
 * Returns the filter for the manifests of a release in self-managed clusters with a feature set. Its gates are those of
 * the release’s own FeatureGate; undefined if the release has none for the feature set.
 */
export function makeManifestFilter(
  files: PayloadFiles,
  version: string,
  context: Context,
  featureSet = 'Default',
): ManifestFilter {
  const gates = readFeatureGates(files, version, context).get(featureSet)?.enabled;
  return { profile: selfManaged, featureSet, gates, major: majorOf(version) };
}

/** The kinds that are served as v1 in the feature sets with a gate. */
const gatedKinds = {
  PinnedImageSet: { gate: 'PinnedImages', plural: 'pinnedimagesets' },
  OSImageStream: { gate: 'OSStreams', plural: 'osimagestreams' },
};

/**
 * Returns the feature sets with which clusters of a release serve a kind as v1. Undefined if the manifests of the
 * release do not say. The gate of the kind decides where it is listed, and everywhere the definition of the kind:
 * releases after it was removed from the gates have only that. Releases up to 4.22 serve OSImageStream as v1alpha1
 * only, in previews.
 */
export function readFeatureSets(
  files: PayloadFiles,
  version: string,
  kind: keyof typeof gatedKinds,
  context: Context,
): readonly string[] | undefined {
  const { gate, plural } = gatedKinds[kind];
  const gates = readFeatureGates(files, version, context);
  const definitions = readPayloadObjects(files, plural, context)
    .map(({ object }) => object)
    .filter(
      ({ kind: own, spec }) =>
        own === 'CustomResourceDefinition' &&
        fieldsAt(spec, 'names')['kind'] === kind &&
        listOf(fieldsOf(spec)['versions']).some(({ name, served }) => name === 'v1' && served === true),
    );
  const isListed = [...gates.values()].some((each) => each.enabled.has(gate) || each.disabled.has(gate));
  if (definitions.length === 0 && !isListed) return undefined;
  return featureSets.filter((featureSet) => {
    const listed = gates.get(featureSet);
    const filter = { profile: selfManaged, featureSet, gates: listed?.enabled, major: majorOf(version) };
    const isServed = definitions.some((each) => exclusionOf(each, filter) === undefined);
    return isServed && listed?.disabled.has(gate) !== true;
  });
}

/** Reads the feature gates that a release lists, by feature set (openshift/api, payload-manifests/featuregates). */
function readFeatureGates(files: PayloadFiles, version: string, context: Context): Map<string, ListedGates> {
  const gates = new Map<string, ListedGates>();
  for (const { object } of readPayloadObjects(files, 'FeatureGate', context)) {
    const { apiVersion, kind, status } = object;
    if (apiVersion !== 'config.openshift.io/v1' || kind !== 'FeatureGate') continue;
    const [listed] = listOf(fieldsOf(status)['featureGates']);
    if (!listed) continue;
    const [enabled, disabled] = [namesOf(listed['enabled']), namesOf(listed['disabled'])];
    for (const featureSet of listedFeatureSets(object, selfManaged, majorOf(version)))
      gates.set(featureSet, { enabled, disabled });
  }
  return gates;
}

function namesOf(gates: unknown): Set<string> {
  return new Set(listOf(gates).flatMap(({ name }) => textOf(name) ?? []));
}

/**
 * Reads the image policies in the manifests of a payload, with the reason why a self-managed cluster with the default
 * feature set does not have one. Skips a file that cannot be read, with a warning.
 */
export function readPayloadPolicies(files: PayloadFiles, version: string, context: Context): ImagePolicy[] {
  const policies = readPayloadObjects(files, 'ImagePolicy', context).filter(({ object }) => isImagePolicy(object));
  if (policies.length === 0) return [];
  const filter = makeManifestFilter(files, version, context);
  return policies.map(({ file, object }) => ({
    ...readImagePolicy(object, `${file} of the release payload`),
    excluded: exclusionOf(object, filter),
  }));
}
