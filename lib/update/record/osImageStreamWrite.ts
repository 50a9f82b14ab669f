import { isDeepStrictEqual } from 'node:util';
import type { Cluster } from '#cluster/client';
import type { StoredObject } from '#cluster/objects';
import { clusterVersionReference } from '#cluster/version';
import type { MergePatch } from '#config/manifest';
import { digestIn } from '#content/oci';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf, type Fields } from '#fields';
import { controllerPods } from '#readiness/preflight';
import {
  formatOSImageStream,
  installedVersionOf,
  readStreamTarget,
  type OSImageStream,
  type OSImageStreams,
} from '#release/payload';

/** The kind of the OSImageStream `cluster`. */
export const osImageStreamKind = {
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'OSImageStream',
} as const;

/** The OSImageStream that machine-config-controller reads. */
export const osImageStreamReference = { ...osImageStreamKind, metadata: { name: 'cluster' } } as const;

/** What of a release decides about its OSImageStream: its version, and images by digest. */
export interface StreamImages {
  readonly version: string;
  readonly release: string;
  /** The image of machine-config-operator, which is that of machine-config-controller too. */
  readonly operator: string;
}

/** The objects of a cluster that decide about its OSImageStream. */
export interface StreamSite {
  readonly clusterVersion: Fields;
  /** Whether the cluster serves the kind: the version operator creates its definition during the update. */
  readonly isServed: boolean;
  readonly existing: StoredObject | undefined;
  /** The pods of machine-config-controller. */
  readonly pods: readonly StoredObject[];
}

/** The OSImageStream that a cluster needs for a release. */
export interface NeededStream {
  readonly object: OSImageStream;
  /** Whether the cluster updates to the release, or runs it. Before that, nothing may be written. */
  readonly isDesired: boolean;
  readonly isServed: boolean;
  /** Whether the existing object is for this release image, with streams. */
  readonly isThere: boolean;
  /**
   * Whether an earlier controller still renders from the object. It would refuse the new one, and its pools become
   * degraded until the new controller runs.
   */
  readonly isInUse: boolean;
}

/** Reads the objects that decide about the OSImageStream of a cluster. Throws the errors of the cluster. */
export async function readStreamSite(cluster: Cluster): Promise<StreamSite> {
  const { apiVersion, kind, ...which } = controllerPods;
  const isServed = (await cluster.findKind(osImageStreamKind.apiVersion, osImageStreamKind.kind)) !== undefined;
  const [clusterVersion = {}, existing, pods] = await Promise.all([
    cluster.read(clusterVersionReference),
    isServed ? cluster.read(osImageStreamReference) : undefined,
    cluster.list(apiVersion, kind, which),
  ]);
  return { clusterVersion, isServed, existing, pods };
}

/**
 * Formats the OSImageStream of a release for a cluster, and says whether it may be written. Throws the errors of
 * formatOSImageStream.
 */
export function planOSImageStream(
  { clusterVersion, isServed, existing, pods }: StreamSite,
  streams: OSImageStreams,
  images: StreamImages,
): NeededStream {
  const { release } = images;
  const desired = textOf(fieldsAt(clusterVersion, 'status', 'desired')['image']) ?? '';
  const isDesired = digestIn(desired) === digestIn(release);
  const installedVersion = installedVersionOf(clusterVersion);
  // machine-config-controller compares the whole name, which may be that of a mirror.
  const object = formatOSImageStream(streams, isDesired ? desired : release, { installedVersion, existing });
  const isThere = readStreamTarget(existing).releaseImage === desired && hasStreams(existing, object);
  const running = pods.filter(isRunning);
  // Without a pod of the release, the earlier controller may restart, as after an eviction.
  const isReplaced = running.length > 0 && running.every((pod) => runsRelease(pod, images));
  const isInUse = existing !== undefined && !isReplaced;
  return { object, isDesired, isServed, isThere, isInUse };
}

/** Returns whether the status of an object names the same images. Its default stream follows its spec. */
function hasStreams(existing: StoredObject | undefined, { status }: OSImageStream): boolean {
  const { availableStreams, defaultStream } = fieldsOf(existing?.['status']);
  const existingStreams = listOf(availableStreams).map(({ name, osImage, osExtensionsImage }) => {
    return { name, osImage, osExtensionsImage };
  });
  return (textOf(defaultStream) ?? '') !== '' && isDeepStrictEqual(existingStreams, status.availableStreams);
}

/**
 * Returns whether a pod runs the machine-config-controller of a release. Releases may have the same image of it: then
 * only the argument `--payload-version` differs.
 */
export function runsRelease({ spec }: StoredObject, { operator, version }: StreamImages): boolean {
  return listOf(fieldsOf(spec)['containers']).some(({ image, args }) => {
    const payload = textsOf(args).find((each) => each.startsWith('--payload-version='));
    const isVersion = payload === undefined || payload === `--payload-version=${version}`;
    return isVersion && digestIn(textOf(image) ?? '') === digestIn(operator);
  });
}

/** A pod that is being deleted ends its controller within seconds. */
function isRunning({ metadata, status }: StoredObject): boolean {
  const phase = textOf(fieldsOf(status)['phase']) ?? '';
  return metadata['deletionTimestamp'] === undefined && phase !== 'Succeeded' && phase !== 'Failed';
}

/**
 * Creates or changes the OSImageStream of a cluster. Changes the status before the annotations, which tell the new
 * controller to take it: otherwise it renders from the images of the earlier release until the status is written. The
 * earlier one must have ended (`isInUse`). Leaves `spec` of an existing object. Throws the errors of the cluster.
 */
export async function writeOSImageStream(
  cluster: Cluster,
  object: OSImageStream,
): Promise<'created' | 'configured' | 'unchanged'> {
  const { metadata, status } = object;
  const existing = await cluster.read(osImageStreamReference);
  const isNoted = isDeepStrictEqual(readStreamTarget(existing), readStreamTarget(object));
  const isComplete = hasStreams(existing, object);
  if (existing && isNoted && isComplete) return 'unchanged';
  if (!existing) await cluster.create(object);
  const complete: MergePatch<OSImageStream> = { status };
  if (!isComplete) await cluster.patch(osImageStreamReference, complete, { subresource: 'status' });
  const note: MergePatch<OSImageStream> = { metadata: { annotations: metadata.annotations } };
  if (existing && !isNoted) await cluster.patch(osImageStreamReference, note);
  return existing ? 'configured' : 'created';
}
