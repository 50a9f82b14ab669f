import { isDeepStrictEqual } from 'node:util';
import { fieldsAt, listOf, textOf } from '../fields.ts';
import { clusterVersionReference } from '../kubernetes/clusterVersion.ts';
import type { Cluster } from '../kubernetes/client.ts';
import { digestIn } from '../oci/reference.ts';
import { formatOSImageStream, installedVersionOf, type OSImageStream } from '../release/osImageStreamObject.ts';
import type { OSImageStreams } from '../release/osImageStreams.ts';

const reference = {
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'OSImageStream',
  metadata: { name: 'cluster' },
} as const;

const controllerReference = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'machine-config-controller', namespace: 'openshift-machine-config-operator' },
} as const;

/** The OSImageStream that a cluster needs for a release. */
export interface NeededStream {
  readonly object: OSImageStream;
  /** Whether the cluster updates to the release, or runs it. Before that, nothing may be written. */
  readonly isDesired: boolean;
  /** Whether the cluster serves the kind: the version operator creates its definition during the update. */
  readonly isServed: boolean;
  /**
   * Whether an earlier controller still renders from the object. It would refuse the new one, and its pools become
   * degraded until the new controller runs.
   */
  readonly isInUse: boolean;
}

/**
 * Formats the OSImageStream of a release for a cluster, by its ClusterVersion and the object that it has. `release` and
 * `operator` are the images of the release and of its machine-config-operator, by digest. Throws the errors of formatOSImageStream and of reading the cluster.
 */
export async function planOSImageStream(
  cluster: Cluster,
  streams: OSImageStreams,
  { release, operator }: { readonly release: string; readonly operator: string },
): Promise<NeededStream> {
  const isServed = (await cluster.findKind(reference.apiVersion, reference.kind)) !== undefined;
  const [site = {}, existing, controller] = await Promise.all([
    cluster.read(clusterVersionReference),
    isServed ? cluster.read(reference) : undefined,
    cluster.read(controllerReference),
  ]);
  const desired = textOf(fieldsAt(site, 'status', 'desired')['image']) ?? '';
  const isDesired = digestIn(desired) === digestIn(release);
  const installedVersion = installedVersionOf(site);
  // machine-config-controller compares the whole name, which may be that of a mirror.
  const object = formatOSImageStream(streams, isDesired ? desired : release, { installedVersion, existing });
  const containers = listOf(fieldsAt(controller, 'spec', 'template', 'spec')['containers']);
  const isNew = containers.some(({ image }) => digestIn(textOf(image) ?? '') === digestIn(operator));
  return { object, isDesired, isServed, isInUse: existing !== undefined && containers.length > 0 && !isNew };
}

/**
 * Creates or changes the OSImageStream of a cluster, in the order of machine-config-controller: the annotations before
 * the status. So the previous controller renders nothing from images that are not its own. Leaves `spec` of an existing
 * object. Throws the errors of the cluster.
 */
export async function writeOSImageStream(
  cluster: Cluster,
  object: OSImageStream,
): Promise<'created' | 'configured' | 'unchanged'> {
  const { metadata, status } = object;
  const existing = await cluster.read(reference);
  const isNoted = Object.entries(metadata.annotations).every(
    ([name, value]) => fieldsAt(existing, 'metadata', 'annotations')[name] === value,
  );
  if (existing && isNoted && isDeepStrictEqual(existing['status'], status)) return 'unchanged';
  if (!existing) await cluster.create(object);
  else if (!isNoted) await cluster.patch(reference, { metadata: { annotations: metadata.annotations } });
  await cluster.patch(reference, { status }, { subresource: 'status' });
  return existing ? 'configured' : 'created';
}
