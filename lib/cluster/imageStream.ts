import { checkInterrupted, type Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { Lines } from '../lines.ts';
import type { Cluster } from './client.ts';

/** An image for a tag of an image stream. */
export interface StreamImage {
  readonly tag: string;
  /** The image by digest. */
  readonly pullspec: string;
}

/** The image stream, and the options of the import. */
export interface ImportRequest {
  /** The image stream, in the namespace of the cluster’s context. */
  readonly stream: string;
  readonly images: readonly StreamImage[];
  /** Whether the cluster may use plain HTTP, or ignore the certificate of the registry. */
  readonly insecure: boolean;
  /** Whether the cluster only checks the images, and imports nothing. */
  readonly dryRun: boolean;
}

// The batch size of oc. A cluster reads the manifests of all images in a request before it responds.
const batchSize = 13;
const attempts = 4;

/**
 * Has a cluster import images into the tags of an image stream (ImageStreamImport), in batches. Retries failed images.
 * Throws `partial` with each failed image and its reason, and the errors of the cluster.
 */
export async function importImages(
  cluster: Cluster,
  { images, ...request }: ImportRequest,
  context: Context,
): Promise<void> {
  let remaining = images.map((image) => ({ ...image, problem: '' }));
  for (let attempt = 1; attempt <= attempts && remaining.length > 0; attempt += 1) {
    const failed: typeof remaining = [];
    for (let at = 0; at < remaining.length; at += batchSize) {
      checkInterrupted(context.signal);
      failed.push(...(await importBatch(cluster, request, remaining.slice(at, at + batchSize), context)));
    }
    remaining = failed;
  }
  if (remaining.length === 0) return;
  const lines = remaining.map(({ tag, pullspec, problem }) => `  ${tag} (${pullspec}): ${problem}`);
  const what = `${remaining.length} of ${images.length} images could not be imported into ${request.stream}`;
  throw new PluginError('partial', new Lines(`${what}:`, ...lines), {
    hint: 'The cluster itself fetches the images: it must reach the registry and have credentials for it in that namespace.',
  });
}

type Remaining = StreamImage & { readonly problem: string };

async function importBatch(
  cluster: Cluster,
  { stream, insecure, dryRun }: Omit<ImportRequest, 'images'>,
  batch: readonly StreamImage[],
  context: Context,
): Promise<Remaining[]> {
  const answer = await cluster.create({
    apiVersion: 'image.openshift.io/v1',
    kind: 'ImageStreamImport',
    metadata: { name: stream, namespace: cluster.namespace },
    spec: {
      import: !dryRun,
      images: batch.map(({ tag, pullspec }) => ({
        from: { kind: 'DockerImage', name: pullspec },
        to: { name: tag },
        // Keeps manifest lists, also in the image stream.
        importPolicy: { insecure, importMode: 'PreserveOriginal' },
      })),
    },
  });
  const { images = [] } = (answer['status'] ?? {}) as { images?: { status?: { status?: string; message?: string } }[] };
  return batch.flatMap((image, index): Remaining[] => {
    const { status = 'Failure', message = 'the cluster said nothing about it' } = images[index]?.status ?? {};
    if (status !== 'Failure') {
      context.onEvent({ kind: 'image', name: image.tag });
      return [];
    }
    return [{ ...image, problem: message }];
  });
}
