import type { ConfigManifest } from '../config/manifest.ts';
import { PluginError } from '../errors.ts';
import { formatObjectName } from './compatibility.ts';

/** The kinds that configuration of a release consists of, by their groups; the core group has no name. */
const acceptedKinds: ReadonlyMap<string, readonly string[]> = new Map([
  ['', ['Namespace', 'ConfigMap']],
  ['config.openshift.io', ['ImageDigestMirrorSet', 'ImageTagMirrorSet']],
  ['operator.openshift.io', ['ImageContentSourcePolicy']],
  ['updateservice.operator.openshift.io', ['UpdateService']],
  ['upgrade-bundle.openshift.io', ['UpgradeBundle']],
]);

const mostNamed = 5;

/**
 * Makes sure that manifests from a folder or bundle are configuration of a release and nothing else: whoever applies what came on a
 * stick means that, and no Secret, role or ClusterVersion that got among it. Throws `unsupported`, naming the others.
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
