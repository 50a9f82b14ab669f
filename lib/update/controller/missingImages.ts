import { fieldsOf, textOf } from '../../fields.ts';
import { digestIn } from '../../content/oci/reference.ts';
import type { Cluster } from '../../cluster/client.ts';
import { timeOfEvent } from '../../cluster/storedObject.ts';

/** An image that nodes failed to pull. */
export interface MissingImage {
  readonly image: string;
  /** A pod that needs the image: `namespace/name`. */
  readonly pod: string;
  /** Whether the bundle has the image. It is then not missing, but a pod still pulls it. */
  readonly bundled: boolean;
}

/** Finds the images that nodes failed to pull since a moment, by the events of kubelets. */
export async function findMissingImages(
  cluster: Cluster,
  images: readonly string[],
  since: Date,
): Promise<MissingImage[]> {
  const fieldSelector = 'involvedObject.kind=Pod,reason=Failed';
  const events = await cluster.list('v1', 'Event', { fieldSelector });
  const digests = new Set(images.map(digestIn));
  const pulls = events.flatMap((event): [string, MissingImage][] => {
    const { message, involvedObject } = event;
    const image = /^Failed to pull image "([^"]+)"/.exec(textOf(message) ?? '')?.[1];
    if (image === undefined || timeOfEvent(event) < since.getTime()) return [];
    const { namespace, name } = fieldsOf(involvedObject);
    const bundled = image.includes('@') && digests.has(digestIn(image));
    return [[image, { image, pod: `${String(namespace)}/${String(name)}`, bundled }]];
  });
  return [...new Map(pulls).values()].sort((a, b) => (a.image < b.image ? -1 : 1));
}
