import type { KubernetesObject } from '../config/manifest.ts';
import { fieldsOf, listOf, textOf } from './fields.ts';

/** What a cluster says about its version and its updates (ClusterVersion `version`). */
export interface ClusterVersion {
  /** The version that it runs: the latest that was completed, else the one that it is installing. */
  readonly version: string;
  /** The version that it is, or should become. */
  readonly desired: string;
  readonly channel: string | undefined;
  /** The update graph that it asks instead of the public one. */
  readonly upstream: string | undefined;
  /** Whether it runs, or may run, nodes of several architectures. */
  readonly multi: boolean;
  /** Pullspecs of the releases that it knows by version: desired, available updates, history. */
  readonly releases: ReadonlyMap<string, string>;
}

/** Where a cluster says it. */
export const clusterVersionReference = {
  apiVersion: 'config.openshift.io/v1',
  kind: 'ClusterVersion',
  metadata: { name: 'version' },
} as const;

/** Reads a ClusterVersion object; whatever it lacks is empty or undefined. */
export function readClusterVersion(object: KubernetesObject): ClusterVersion {
  const spec = fieldsOf(object['spec']);
  const status = fieldsOf(object['status']);
  const desired = fieldsOf(status['desired']);
  const history = listOf(status['history']);
  const completed = history.find(({ state }) => state === 'Completed');
  const known = [
    ...history.toReversed(),
    ...listOf(status['availableUpdates']),
    ...listOf(status['conditionalUpdates']).map(({ release }) => fieldsOf(release)),
    desired,
  ];
  const releases = known.flatMap(({ version, image }) =>
    typeof version === 'string' && typeof image === 'string' && image !== '' ? [[version, image] as const] : [],
  );
  const wanted = textOf(desired['version']) ?? '';
  return {
    version: textOf(completed?.['version']) ?? wanted,
    desired: wanted,
    channel: textOf(spec['channel']),
    upstream: textOf(spec['upstream']),
    multi: desired['architecture'] === 'Multi',
    releases: new Map(releases),
  };
}
