import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, type Fields } from '#fields';
import { majorOf } from '../version.ts';
import type { OSImageStreams, OSImageStreamSet } from './osImageStreams.ts';

/** What decides the default stream in a cluster. */
export interface StreamCluster {
  /** The version that the cluster was installed with, by installedVersionOf; undefined if it is unknown. */
  readonly installedVersion?: string;
  /** The OSImageStream `cluster`, if there is one. */
  readonly existing?: Fields;
}

/** The annotations that say what an OSImageStream is for. */
export const streamAnnotations = {
  version: 'machineconfiguration.openshift.io/release-image-version',
  payload: 'machineconfiguration.openshift.io/release-payload-image',
} as const;

/** An OSImageStream of machineconfiguration.openshift.io/v1, as machine-config-controller makes it. */
export type OSImageStream = Readonly<StreamObject>;

interface StreamObject {
  readonly apiVersion: 'machineconfiguration.openshift.io/v1';
  readonly kind: 'OSImageStream';
  readonly metadata: { readonly name: string; readonly annotations: Readonly<Record<string, string>> };
  readonly spec: { readonly defaultStream: string };
  readonly status: { readonly availableStreams: readonly OSImageStreamSet[]; readonly defaultStream: string };
}

/**
 * Formats the OSImageStream that machine-config-controller makes from these streams for a release image, which is
 * `status.desired.image` of ClusterVersion. Keeps the default stream of an existing object. Throws `not-ready` if there
 * are problems, or if the streams lack the default of the cluster.
 */
export function formatOSImageStream(
  streams: OSImageStreams,
  releaseImage: string,
  cluster: StreamCluster = {},
): OSImageStream {
  const { commit, version, availableStreams, problems } = streams;
  const [problem] = problems;
  if (problem !== undefined || commit === undefined) {
    const why = problem ?? 'its commit is unknown';
    throw new PluginError('not-ready', `the operating system streams of ${version} cannot be described: ${why}`, {
      hint: noStreamsAdvice,
    });
  }
  const defaultStream = chooseDefaultStream(streams, cluster);
  return {
    apiVersion: 'machineconfiguration.openshift.io/v1',
    kind: 'OSImageStream',
    metadata: {
      name: 'cluster',
      annotations: { [streamAnnotations.version]: commit, [streamAnnotations.payload]: releaseImage },
    },
    spec: { defaultStream },
    status: { availableStreams, defaultStream },
  };
}

/** What to do if the streams of a release cannot be described in the cluster. */
export const noStreamsAdvice =
  'Give the cluster a mirror with the release image and all operating system images, or use another release.';

/** What an OSImageStream is for, as machine-config-controller compares it. */
export interface StreamTarget {
  readonly commit: string | undefined;
  readonly releaseImage: string | undefined;
}

/** Reads from its annotations what an OSImageStream is for. A value is undefined if it is missing. */
export function readStreamTarget(object: Fields | undefined): StreamTarget {
  const noted = fieldsAt(object, 'metadata', 'annotations');
  return { commit: textOf(noted[streamAnnotations.version]), releaseImage: textOf(noted[streamAnnotations.payload]) };
}

/**
 * Returns the version that a cluster was installed with, by its ClusterVersion: the completed update that is oldest, or
 * during the installation the desired one.
 */
export function installedVersionOf(clusterVersion: Fields): string | undefined {
  const { history, desired } = fieldsOf(clusterVersion['status']);
  const completed = listOf(history)
    .filter(({ state, completionTime }) => state === 'Completed' && textOf(completionTime) !== undefined)
    .sort((a, b) => Date.parse(String(a['completionTime'])) - Date.parse(String(b['completionTime'])));
  return textOf((completed[0] ?? fieldsOf(desired))['version']);
}

function chooseDefaultStream({ version, availableStreams }: OSImageStreams, cluster: StreamCluster): string {
  const names = availableStreams.map(({ name }) => name);
  const { spec, status } = cluster.existing ?? {};
  const kept = textOf(fieldsOf(spec)['defaultStream']) ?? textOf(fieldsOf(status)['defaultStream']);
  const [only] = names;
  const chosen = kept ?? (only !== undefined && names.length === 1 ? only : builtinDefault(names, version, cluster));
  if (names.includes(chosen)) return chosen;
  const which = `${version} has no operating system stream ${chosen}, the default of the cluster`;
  throw new PluginError('not-ready', `${which}; it has ${names.join(', ')}`, {
    hint: 'Set spec.defaultStream of the OSImageStream “cluster” to one of them.',
  });
}

/** OKD has no RHEL. Clusters that were installed with OpenShift 4 keep RHEL 9. */
function builtinDefault(names: readonly string[], version: string, { installedVersion }: StreamCluster): string {
  if (!names.some((name) => name.startsWith('rhel-'))) return 'centos-10';
  return (majorOf(installedVersion ?? '') || majorOf(version)) === 4 ? 'rhel-9' : 'rhel-10';
}
