import { stringify } from 'yaml';

const profile = 'include.release.openshift.io/self-managed-high-availability';
const featureSet = 'release.openshift.io/feature-set';
const previews = ['TechPreviewNoUpgrade', 'DevPreviewNoUpgrade'];

/**
 * A FeatureGate of a payload, as openshift/api writes it (payload-manifests/featuregates): JSON, not for the version
 * operator.
 */
export function featureGateFile(
  set: string,
  enabled: readonly string[],
  disabled: readonly string[],
  marks: Readonly<Record<string, string>> = {},
  name = set,
): Record<string, string> {
  const named = (names: readonly string[]): object[] => names.map((each) => ({ name: each }));
  const gate = {
    apiVersion: 'config.openshift.io/v1',
    kind: 'FeatureGate',
    metadata: {
      name: 'cluster',
      annotations: { [profile]: 'false-except-for-the-config-operator', [featureSet]: set, ...marks },
    },
    spec: {},
    status: { featureGates: [{ version: '', enabled: named(enabled), disabled: named(disabled) }] },
  };
  return { [`0000_50_cluster-config-api_featureGate-${name}.yaml`]: JSON.stringify(gate, null, 4) };
}

/**
 * The manifests by which a payload says whether clusters pin images. `byDefault`: as in 4.19.12 and later; else as in
 * 4.19.0 to 4.19.11, where the definition and the gate are for previews.
 */
export function pinningFiles(byDefault: boolean): Record<string, string> {
  const sets = byDefault ? undefined : previews.join(',');
  const definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      annotations: { [profile]: 'true', ...(sets !== undefined && { [featureSet]: sets }) },
      name: 'pinnedimagesets.machineconfiguration.openshift.io',
    },
    spec: {
      group: 'machineconfiguration.openshift.io',
      names: { kind: 'PinnedImageSet', plural: 'pinnedimagesets' },
      scope: 'Cluster',
      versions: [{ name: 'v1', served: true, storage: true }],
    },
  };
  const gates = ['PinnedImages'];
  return {
    '0000_80_machine-config_01_pinnedimagesets.crd.yaml': stringify(definition),
    ...featureGateFile('Default', byDefault ? gates : [], byDefault ? [] : gates),
    ...Object.assign({}, ...previews.map((each) => featureGateFile(each, gates, []))),
  } as Record<string, string>;
}
