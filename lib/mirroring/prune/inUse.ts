import { isPluginError } from '../../errors.ts';
import { fieldsAt, fieldsOf, listOf } from '../../fields.ts';
import type { Cluster } from '../../cluster/client.ts';
import { clusterVersionReference } from '../../cluster/clusterVersion.ts';
import { isDigest, type Digest } from '../../content/oci/digest.ts';
import { digestIn } from '../../content/oci/reference.ts';
import type { MirroringAccess } from '../request.ts';

/** What a cluster needs: the versions in its history, and the images that it runs, has pinned or names. */
export interface ClusterNeeds {
  readonly name: string;
  readonly versions: ReadonlySet<string>;
  readonly digests: ReadonlySet<Digest>;
}

/**
 * Reads what the cluster needs: its history (ClusterVersion), pinned images (PinnedImageSet), the images of pods, and the graph data of
 * update services. Returns undefined if no cluster is configured, and none was named. Throws the errors of the cluster, and
 * `no-cluster` for a context that does not exist.
 */
export async function readClusterNeeds(
  { openCluster }: Pick<MirroringAccess, 'openCluster'>,
  isNamed: boolean,
): Promise<ClusterNeeds | undefined> {
  using cluster = await openCluster('30s').catch((error: unknown) => {
    // A kubeconfig without the context that it names is a mistake, and may have the cluster that uses the target.
    const isAbsent =
      isPluginError(error, 'no-cluster') && error.settings.some((each) => each === 'kubeconfig' || each === 'server');
    if (isAbsent && !isNamed) return undefined;
    throw error;
  });
  if (!cluster) return undefined;
  const version = await cluster.read(clusterVersionReference).catch(ignoreUnserved);
  const status = fieldsAt(version, 'status');
  const releases = [...listOf(status['history']), fieldsOf(status['desired'])];
  const pins = await listKind(cluster, 'machineconfiguration.openshift.io/v1', 'PinnedImageSet');
  const services = await listKind(cluster, 'updateservice.operator.openshift.io/v1', 'UpdateService');
  const pods = await cluster.list('v1', 'Pod');
  const images = [
    ...releases.map(({ image }) => image),
    ...pins.flatMap((pin) => listOf(fieldsAt(pin, 'spec')['pinnedImages']).map(({ name }) => name)),
    ...services.map((service) => fieldsAt(service, 'spec')['graphDataImage']),
    ...pods.flatMap(imagesOfPod),
  ];
  const digests = images.map((image) => digestIn(String(image))).filter(isDigest);
  return {
    name: cluster.name,
    versions: new Set(releases.map((release) => String(release['version']))),
    digests: new Set(digests),
  };
}

/** Returns the images of a pod: the requested and the running images. */
function imagesOfPod(pod: unknown): unknown[] {
  const [spec, status] = [fieldsAt(pod, 'spec'), fieldsAt(pod, 'status')];
  const kinds = ['containers', 'initContainers', 'ephemeralContainers'].flatMap((kind) => listOf(spec[kind]));
  const statuses = ['containerStatuses', 'initContainerStatuses', 'ephemeralContainerStatuses'];
  const volumes = listOf(spec['volumes']).map((volume) => fieldsAt(volume, 'image')['reference']);
  const running = statuses.flatMap((kind) => listOf(status[kind])).flatMap(({ image, imageID }) => [image, imageID]);
  return [...kinds.map(({ image }) => image), ...running, ...volumes];
}

async function listKind(cluster: Cluster, apiVersion: string, kind: string): Promise<readonly unknown[]> {
  return (await cluster.list(apiVersion, kind).catch(ignoreUnserved)) ?? [];
}

function ignoreUnserved(error: unknown): undefined {
  if (!isPluginError(error, 'not-served') && !isPluginError(error, 'not-found')) throw error;
}
