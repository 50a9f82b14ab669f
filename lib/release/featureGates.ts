import type { Context } from '../context.ts';
import { fieldsAt, fieldsOf, listOf, textOf } from '../fields.ts';
import { exclusionOf, featureSets, listedFeatureSets, selfManaged, type ManifestFilter } from './manifestFilter.ts';
import type { PayloadFiles } from './payload.ts';
import { readPayloadObjects } from './payloadObjects.ts';
import { majorOf } from './version.ts';

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

/**
 * Returns the feature sets with which clusters of a release serve PinnedImageSet v1 and take pinned images from the
 * storage of their nodes. Undefined if the manifests of the release do not say. The gate PinnedImages decides where it is
 * listed, and everywhere the definition of the kind: releases after it was removed from the gates have only that.
 */
export function readPinningFeatureSets(
  files: PayloadFiles,
  version: string,
  context: Context,
): readonly string[] | undefined {
  const gates = readFeatureGates(files, version, context);
  const definitions = readPayloadObjects(files, 'pinnedimagesets', context)
    .map(({ object }) => object)
    .filter(
      ({ kind, spec }) =>
        kind === 'CustomResourceDefinition' &&
        fieldsAt(spec, 'names')['kind'] === 'PinnedImageSet' &&
        listOf(fieldsOf(spec)['versions']).some(({ name, served }) => name === 'v1' && served === true),
    );
  const isListed = [...gates.values()].some((each) => each.enabled.has(pinning) || each.disabled.has(pinning));
  if (definitions.length === 0 && !isListed) return undefined;
  return featureSets.filter((featureSet) => {
    const listed = gates.get(featureSet);
    const filter = { profile: selfManaged, featureSet, gates: listed?.enabled, major: majorOf(version) };
    const isServed = definitions.some((each) => exclusionOf(each, filter) === undefined);
    return isServed && listed?.disabled.has(pinning) !== true;
  });
}

const pinning = 'PinnedImages';

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
