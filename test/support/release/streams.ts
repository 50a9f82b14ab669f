import { stringify } from 'yaml';
import { featureGateFile, pinningFiles } from './pinning.ts';
import type { ReleaseOptions } from './release.ts';

/** The commit of machine-config-operator in such a release. */
export const operatorCommit = 'd20efd9b9bdb278b533916ecc7c1e451e68cc3b8';

const streamLabel = 'io.openshift.os.streamclass';
const profile = 'include.release.openshift.io/self-managed-high-availability';

/** The labels of operating system images and extensions, as release-5.0 of machine-config-operator reads them. */
export const systemLabels = (stream: string, kind: 'os' | 'extensions'): Record<string, string> => ({
  [streamLabel]: stream,
  ...(kind === 'os' ? { 'containers.bootc': '1' } : { 'io.openshift.os.extensions': 'true' }),
});

/**
 * The manifests by which a payload says whether clusters need OSImageStream v1: as in 5.0, or with `v1alpha1` as in
 * 4.22, where the gate is for previews.
 */
export function streamFiles(version: 'v1' | 'v1alpha1' = 'v1'): Record<string, string> {
  const previews = ['TechPreviewNoUpgrade', 'DevPreviewNoUpgrade'];
  const isDefault = version === 'v1';
  const sets = { 'release.openshift.io/feature-set': ['CustomNoUpgrade', ...previews].join(',') };
  const definition = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      annotations: { [profile]: 'true', ...(isDefault ? {} : sets) },
      name: 'osimagestreams.machineconfiguration.openshift.io',
    },
    spec: {
      group: 'machineconfiguration.openshift.io',
      names: { kind: 'OSImageStream', plural: 'osimagestreams' },
      scope: 'Cluster',
      versions: [{ name: version, served: true, storage: true }],
    },
  };
  const both = ['PinnedImages', 'OSStreams'];
  return {
    ...pinningFiles(true),
    '0000_80_machine-config_01_osimagestreams.crd.yaml': stringify(definition),
    ...featureGateFile('Default', isDefault ? both : ['PinnedImages'], isDefault ? [] : ['OSStreams']),
    ...(Object.assign({}, ...previews.map((each) => featureGateFile(each, both, []))) as Record<string, string>),
  };
}

/** Options of a release with the streams rhel-9 and rhel-10, as in 5.0. */
export const streamRelease = {
  version: '5.0.1',
  components: [
    'cluster-version-operator',
    'machine-config-operator',
    'rhel-coreos',
    'rhel-coreos-10',
    'rhel-coreos-10-extensions',
    'rhel-coreos-extensions',
  ],
  files: streamFiles(),
  configs: {
    'machine-config-operator': {
      labels: { 'io.openshift.build.commit.id': operatorCommit },
      env: [`SOURCE_GIT_COMMIT=${operatorCommit}`],
    },
    'rhel-coreos': { labels: systemLabels('rhel-9', 'os') },
    'rhel-coreos-extensions': { labels: systemLabels('rhel-9', 'extensions') },
    'rhel-coreos-10': { labels: systemLabels('rhel-10', 'os') },
    'rhel-coreos-10-extensions': { labels: systemLabels('rhel-10', 'extensions') },
  },
  commits: { 'machine-config-operator': operatorCommit },
} as const satisfies ReleaseOptions;
