import type { Context } from '#context';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import { isImagePolicy, readImagePolicy, type ImagePolicy } from '../sigstore/imagePolicy.ts';
import { majorOf } from '../version.ts';
import { exclusionOf, featureSets, listedFeatureSets, selfManaged, type ManifestFilter } from './manifestFilter.ts';
import { type PayloadFiles, readPayloadObjects } from './payload.ts';

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
