import type { ConfigManifest } from '../config/manifest.ts';
import { PluginError } from '../errors.ts';
import { formatObjectName } from './compatibility.ts';

/** The kinds of release configuration by their groups; the core group has no name. */
const acceptedKinds: ReadonlyMap<string, readonly string[]> = new Map([
  ['', ['Namespace', 'ConfigMap']],
  ['config.openshift.io', ['ImageDigestMirrorSet', 'ImageTagMirrorSet']],
  ['operator.openshift.io', ['ImageContentSourcePolicy']],
  ['updateservice.operator.openshift.io', ['UpdateService']],
  ['upgrade-bundle.openshift.io', ['UpgradeBundle']],
]);

const mostNamed = 5;

/**
 * Checks that manifests are only release configuration. Content of a USB drive must not add a Secret, a role or a
 * ClusterVersion. Throws `unsupported` with the other objects.
 */
export function checkKinds(manifests: readonly ConfigManifest[], where: string): void {
  const others = manifests.filter(({ object: { apiVersion, kind } }) => {
    const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '';
    return !acceptedKinds.get(group)?.includes(kind);
  });
  if (others.length === 0) return;
  const named = others.slice(0, mostNamed).map(({ object, path }) => `${formatObjectName(object)} (${path})`);
  const more = others.length > mostNamed ? [`${others.length - mostNamed} more`] : [];
  const kinds = [...acceptedKinds.values()].flat();
  throw new PluginError(
    'unsupported',
    `${where} has what is no configuration of a release, and nothing of it is applied: ${[...named, ...more].join(', ')}`,
    {
      hint:
        `Applied are ${kinds.join(', ')}. Find out how the rest got there; ` +
        'what is meant to be in the cluster, “oc apply -f FILE” brings there; then take it out and apply this again.',
    },
  );
}
