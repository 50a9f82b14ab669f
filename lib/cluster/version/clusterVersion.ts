import type { MergePatch, WrittenAs, KubernetesObject } from '#config/manifest';
import { fieldsOf, listOf, textOf } from '#fields';

/** The facts of the ClusterVersion object `version`: the running and the requested version, and the known updates. */
export interface ClusterVersion {
  /** The running version: the latest completed version, else the version that is being installed. */
  readonly version: string;
  /** The requested version. */
  readonly desired: string;
  readonly channel: string | undefined;
  /** The URL of its update graph, if it is not the public one. */
  readonly upstream: string | undefined;
  /** Whether its nodes may have several architectures. */
  readonly multi: boolean;
  /** The pullspecs of known releases by version: desired, available updates, history. */
  readonly releases: ReadonlyMap<string, string>;
}

/** The only ClusterVersion object of a cluster. */
export const clusterVersionReference = {
  apiVersion: 'config.openshift.io/v1',
  kind: 'ClusterVersion',
  metadata: { name: 'version' },
} as const;

/** What is changed of ClusterVersion. */
export type ClusterVersionPatch = MergePatch<
  WrittenAs<'config.openshift.io/v1', 'ClusterVersion', { readonly spec: { readonly desiredUpdate?: DesiredUpdate } }>
>;

/** An update that is requested of the version operator (openshift/api, config/v1, Update). */
export interface DesiredUpdate {
  readonly image: string;
  readonly version: string;
  readonly force: boolean;
  readonly architecture: string;
  readonly acceptRisks?: readonly { readonly name: string }[];
}

/**
 * Returns the pullspecs of releases whose images a cluster may need: the running release, and all releases back to the
 * previous one, for a rollback. Undefined while the cluster changes its release.
 */
export function listNeededReleases(object: KubernetesObject): string[] | undefined {
  const history = listOf(fieldsOf(object['status'])['history']);
  const [latest] = history;
  if (latest?.['state'] !== 'Completed') return undefined;
  const before = history.findIndex(({ state, version }) => state === 'Completed' && version !== latest['version']);
  return history.slice(0, before < 0 ? undefined : before + 1).map(({ image }) => textOf(image) ?? '');
}

/** Reads a ClusterVersion object; missing fields are empty or undefined. */
export function readClusterVersion(object: KubernetesObject): ClusterVersion {
  const spec = fieldsOf(object['spec']);
  const status = fieldsOf(object['status']);
  const desired = fieldsOf(status['desired']);
  const history = listOf(status['history']);
  const completed = history.find(({ state }) => state === 'Completed');
  const entries = [
    ...history.toReversed(),
    ...listOf(status['availableUpdates']),
    ...listOf(status['conditionalUpdates']).map(({ release }) => fieldsOf(release)),
    desired,
  ];
  const releases = entries.flatMap(({ version, image }) =>
    typeof version === 'string' && typeof image === 'string' && image !== '' ? [[version, image] as const] : [],
  );
  const desiredVersion = textOf(desired['version']) ?? '';
  return {
    version: textOf(completed?.['version']) ?? desiredVersion,
    desired: desiredVersion,
    channel: textOf(spec['channel']),
    upstream: textOf(spec['upstream']),
    multi: desired['architecture'] === 'Multi',
    releases: new Map(releases),
  };
}
