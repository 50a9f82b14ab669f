import type { ReleaseSource } from '#bundle/create';
import type { Cluster } from '#cluster/client';
import type { WrittenAs } from '#config/manifest';
import type { MirroredSource } from '#config/mirrorSets';
import type { UpdateServiceOptions } from '#config/updateService';
import { readPem } from '#content/files';
import type { FetchFile } from '#content/http';
import { formatReference, type Reference } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { collectFailures, ignoring, isPluginError, PluginError } from '#errors';
import { buildGraphDataImage } from '#release/graph';
import type { SignedRelease } from '#release/load';
import type { Release } from '#release/release';
import { componentTag } from '#release/version';
import { Lines } from '#text';
import { formatPlace, formatTarget, releaseName, type Destination, type MirrorImage } from './destination.ts';
import type { MirroringAccess, MirroringRequest } from './request.ts';

const graphDataName = 'graph-data';

/**
 * Returns the images of a release by name, with their sources by digest. The release image is first, unless it is
 * skipped.
 */
export function namedImages(release: Release, skipReleaseImage: boolean): (readonly [string, Reference])[] {
  const own = [releaseName, release.reference] as const;
  const components = [...release.images].map(([name, { reference }]) => [name, reference] as const);
  return skipReleaseImage ? components : [own, ...components];
}

/** Lists the images of a release with their sources and targets. Leaves the release image out if `skipReleaseImage`. */
export async function listMirrorImages(
  { release }: SignedRelease,
  source: ReleaseSource,
  destination: Destination,
  skipReleaseImage: boolean,
  context: Context,
): Promise<MirrorImage[]> {
  const images = namedImages(release, skipReleaseImage).map(async ([name, reference]) => ({
    name,
    digest: reference.digest ?? release.digest,
    target: destination(name, release),
    isRelease: name === releaseName,
    ...(await source.sourceOf(name, reference)),
  }));
  const results = await Promise.allSettled(images);
  checkInterrupted(context.signal);
  const failures = results.flatMap((each) => {
    if (each.status === 'fulfilled') return [];
    if (!isPluginError(each.reason)) throw each.reason as Error;
    return [each.reason];
  });
  if (failures.length > 0) {
    throw collectFailures(failures, {
      title: `${failures.length} of ${images.length} images are not complete`,
      hint: 'Mirror the release to the directory again: only what is missing is fetched.',
    });
  }
  return results.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
}

/**
 * Lists the repositories of a release with their mirrors in registries. Warns if components have repositories of their
 * own.
 */
export function listMirrors(release: Release, destination: Destination, context: Context): MirroredSource[] {
  const mirrored = namedImages(release, false).flatMap(([name, { registry, repository }]) => {
    const source = formatReference({ registry, repository });
    const { place } = destination(name, release);
    const mirror = formatPlace(place);
    return place.kind === 'registry' && mirror !== source ? [{ source, mirrors: [mirror] }] : [];
  });
  for (const [source, entries] of Map.groupBy(mirrored, (entry) => entry.source)) {
    const count = new Set(entries.flatMap(({ mirrors }) => mirrors)).size;
    // The release image may have a repository of its own. Its source then has one mirror more.
    if (count <= 2) continue;
    context.log(
      'warn',
      `each component has a repository of its own, so that ${source} gets ${count} mirrors: for each image, ` +
        'nodes try them one by one. A destination without ${component} puts all images into one repository.',
    );
  }
  return mirrored;
}

/**
 * Returns the graph-data image: built from an archive (path or URL) on the release’s `cli` image, or copied beside the
 * release by an earlier run. Undefined if there is neither.
 */
export async function findGraphData(
  archive: string | undefined,
  { release, signatures }: SignedRelease,
  source: ReleaseSource,
  destination: Destination,
  fetchFile: FetchFile,
  context: Context,
): Promise<MirrorImage | undefined> {
  const target = destination(graphDataName, release);
  if (archive === undefined) {
    if (!source.isLocal) return undefined;
    const content = source.found.source;
    const tag = componentTag(release.version, release.arch, graphDataName);
    const root = await content.resolve(tag).catch(ignoring('not-found'));
    if (!root) return undefined;
    const message = `the graph-data image ${root.digest} in ${content.name} is not covered by the release signature`;
    context.log('warn', message);
    return { name: graphDataName, digest: root.digest, source: content, target };
  }
  const cli = release.images.get('cli');
  if (!cli) {
    throw new PluginError('invalid-release', `${release.pullspec} has no image “cli” to build the graph-data image on`);
  }
  const { source: content } = await source.sourceOf('cli', cli.reference);
  const base = { source: content, root: await content.resolve(cli.digest) };
  const good = new Map([...signatures].map(([digest, all]) => [digest, all.map(({ bytes }) => bytes)] as const));
  const image = await buildGraphDataImage({ archive, signatures: good, base, fetchFile }, context);
  return { name: graphDataName, digest: image.root.digest, source: image.source, target };
}

/**
 * Returns the settings of an update service; undefined if the images are not copied to a registry, or to one by its
 * IPv6 address, which no pullspec has (Bug 1780376).
 */
export async function describeUpdateService(
  graphData: MirrorImage,
  release: Release,
  destination: Destination,
  authorityFile: string | undefined,
  context: Context,
): Promise<UpdateServiceOptions | undefined> {
  const { place } = destination(releaseName, release);
  if (place.kind !== 'registry' || graphData.target.place.kind !== 'registry') return undefined;
  const releases = formatPlace(place);
  if (releases.startsWith('[')) {
    const what = `an update service cannot name the IPv6 address in ${releases}, so none is written`;
    context.log('warn', `${what}: name the registry by a host name that the cluster resolves, and mirror again`);
    return undefined;
  }
  if (formatPlace(destination('cli', release).place) === releases) {
    const message =
      `the update service reads every image in ${releases}; a separate repository for the release image avoids ` +
      'that';
    context.log('warn', message);
  }
  return {
    releases,
    graphDataImage: formatTarget(graphData.target, graphData.digest),
    certificateAuthority: authorityFile === undefined ? undefined : await readPem(authorityFile),
  };
}

/** Has the cluster import the images of a release into an image stream, and returns their number. */
export async function importRelease(
  stream: string,
  { skipReleaseImage, insecure, dryRun }: Pick<MirroringRequest, 'skipReleaseImage' | 'insecure' | 'dryRun'>,
  { release }: Pick<SignedRelease, 'release'>,
  { isLocal }: Pick<ReleaseSource, 'isLocal'>,
  { openCluster }: Pick<MirroringAccess, 'openCluster'>,
  context: Context,
): Promise<number> {
  if (isLocal) {
    throw new PluginError('usage', 'an image stream needs a release in a registry: the cluster fetches the images');
  }
  const images = namedImages(release, skipReleaseImage).map(([tag, reference]) => ({
    tag,
    pullspec: formatReference(reference),
  }));
  // The default of oc for this request, because the cluster reads manifests before it responds.
  using cluster = await openCluster('3m');
  await importImages(cluster, { stream, images, insecure, dryRun: dryRun !== undefined }, context);
  return images.length;
}

/** An image for a tag of an image stream. */
export interface StreamImage {
  readonly tag: string;
  /** The image by digest. */
  readonly pullspec: string;
}

/** The image stream, and the options of the import. */
interface ImportRequest {
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
    hint:
      'The cluster itself fetches the images: it must reach the registry and have credentials for it in that ' +
      'namespace.',
  });
}

/** What is written of an ImageStreamImport (openshift/api, image/v1). */
type ImageStreamImport = WrittenAs<
  'image.openshift.io/v1',
  'ImageStreamImport',
  { readonly spec: { readonly import: boolean; readonly images: readonly ImageImport[] } }
>;

interface ImageImport {
  readonly from: { readonly kind: 'DockerImage'; readonly name: string };
  readonly to: { readonly name: string };
  readonly importPolicy: { readonly insecure: boolean; readonly importMode: 'PreserveOriginal' };
}

type Remaining = StreamImage & { readonly problem: string };

async function importBatch(
  cluster: Cluster,
  { stream, insecure, dryRun }: Omit<ImportRequest, 'images'>,
  batch: readonly StreamImage[],
  context: Context,
): Promise<Remaining[]> {
  const request: ImageStreamImport = {
    apiVersion: 'image.openshift.io/v1',
    kind: 'ImageStreamImport',
    metadata: { name: stream, namespace: cluster.namespace },
    spec: {
      import: !dryRun,
      images: batch.map(({ tag, pullspec }): ImageImport => ({
        from: { kind: 'DockerImage', name: pullspec },
        to: { name: tag },
        // Keeps manifest lists, also in the image stream.
        importPolicy: { insecure, importMode: 'PreserveOriginal' },
      })),
    },
  };
  const answer = await cluster.create(request);
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
