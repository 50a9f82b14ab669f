import { type ConfigManifest, formatManifest } from '#config/manifest';
import { layOutTar, roundToBlock, type TarEntry, type TarLayout } from '#content/archive';
import { CopyFailure, describeFailures } from '#content/copy';
import { type Descriptor, type Digest, formatReference, isContainerImage, type Reference } from '#content/oci';
import {
  blobsOf,
  ImageGraphReader,
  releaseRepository,
  walkManifests,
  type ImageGraph,
  type StoredManifest,
  type StoredManifests,
  type ContentSource,
} from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError, nameSome } from '#errors';
import type { BundleImage, ExtraImage } from '../metadata/images.ts';
import {
  type MetadataFacts,
  formatMetadata,
  metadataPath,
  parseMetadata,
  type BundleMetadata,
} from '../metadata/metadata.ts';
import { describeVolumes, type Split } from '../open/split.ts';

/** A configuration or layer, with the images that need it. */
export interface StoredBlob {
  readonly descriptor: Descriptor;
  readonly images: Set<BundleImage>;
}

/** All content of some images, each item once. The order depends only on the images. */
export interface Contents {
  readonly images: readonly BundleImage[];
  readonly manifests: StoredManifests;
  readonly blobs: ReadonlyMap<Digest, StoredBlob>;
  /** The tags of the bundle’s repository, with the tags of sigstore attachments. */
  readonly tags: ReadonlyMap<string, Digest>;
  /** Blobs that are already read: payloads of sigstore signatures. */
  readonly payloads?: ReadonlyMap<Digest, Buffer>;
  /** The tags of attachments that lead to images, and are left out. */
  readonly notAttached?: readonly string[];
}

/**
 * Reads every manifest of some images and of their sigstore attachments, and lists their blobs. Tries all images, and
 * throws one error that names each failed image. Emits `manifests` events.
 */
export async function gatherContents(
  images: readonly BundleImage[],
  sourceOf: (reference: Reference) => ContentSource,
  { onEvent }: Pick<Context, 'onEvent'>,
): Promise<Contents> {
  const reader = new ImageGraphReader();
  const total = images.length;
  let read = 0;
  // Several components may be the same image.
  const graphs = new Map<string, Promise<ImageGraph>>();
  const tasks = images.map(({ name, reference }) => {
    const key = formatReference(reference);
    const source = sourceOf(reference);
    const task = graphs.get(key) ?? reader.read(source, reference.digest);
    graphs.set(key, task);
    const count = (): void => {
      onEvent({ kind: 'manifests', read: (read += 1), images: total });
    };
    // A failure is handled with the others below.
    task.then(count, () => undefined);
    return { names: [name], digest: reference.digest, source: source.name, task };
  });
  await settleTasks(tasks, total);
  return orderContents(images, await Promise.all(tasks.map(({ task }) => task)));
}

/** The reading of some content from a source. */
export interface FetchTask {
  /** The names of the images that need it. */
  readonly names: readonly string[];
  readonly digest: Digest;
  readonly source: string;
  readonly task: Promise<unknown>;
}

/**
 * Waits for all tasks. Then throws one error with the images, the digest and the error of the source for each failure:
 * `partial` if there are several. Equal errors are combined. `total` is the number of images.
 */
export async function settleTasks(all: readonly FetchTask[], total: number): Promise<void> {
  const results = await Promise.allSettled(all.map(({ task }) => task));
  const failures = new Map<string, { failure: CopyFailure; names: Set<string> }>();
  for (const [index, { names, digest, source }] of all.entries()) {
    const result = results[index];
    if (result?.status !== 'rejected') continue;
    const error: unknown = result.reason;
    if (!isPluginError(error) || ['interrupted', 'disk-full', 'not-writable'].includes(error.code)) throw error;
    // A registry that is down has the same error for all remaining content.
    const key = `${source} ${error.code} ${error.message}`;
    const earlierFailure = failures.get(key);
    if (earlierFailure) for (const name of names) earlierFailure.names.add(name);
    else failures.set(key, { failure: new CopyFailure('source', source, digest, error), names: new Set(names) });
  }
  if (failures.size === 0) return;
  throw describeFailures(new Map([...failures.values()].map(({ failure, names }) => [failure, [...names]])), total);
}

function orderContents(images: readonly BundleImage[], graphs: readonly ImageGraph[]): Contents {
  const manifests = new Map<Digest, StoredManifest>();
  const blobs = new Map<Digest, StoredBlob>();
  const tags = new Map<string, Digest>();
  for (const [index, image] of images.entries()) {
    const graph = graphs[index];
    if (!graph) continue;
    tags.set(image.tag, image.reference.digest);
    for (const [tag, { digest }] of graph.attachments) tags.set(tag, digest);
    for (const [digest, stored] of graph.manifests) manifests.set(digest, stored);
    for (const child of blobsOf(graph.manifests.values())) {
      const blob = blobs.get(child.digest) ?? { descriptor: child, images: new Set() };
      if (blob.descriptor.size !== child.size) {
        const message =
          `${image.name} (${formatReference(image.reference)}) gives ${child.digest} a size of ${child.size} ` +
          `bytes, another image ${blob.descriptor.size}`;
        throw new PluginError('invalid-manifest', message);
      }
      blobs.set(child.digest, blob);
      blob.images.add(image);
    }
  }
  const notAttached = [...new Set(graphs.flatMap((graph) => graph.notAttached))];
  return { images, manifests, blobs, tags, notAttached };
}

/**
 * Logs one warning with the tags of attachments that are images, which the bundle leaves out. Logs nothing without
 * tags.
 */
export function warnOfImages(tags: readonly string[], context: Pick<Context, 'log'>): void {
  if (tags.length === 0) return;
  context.log('warn', `${nameSome(tags)}: left out, because no attachment is an image that can run`);
}

/** The layout of a bundle, without its blobs. */
export interface BundleLayout {
  readonly metadata: BundleMetadata;
  readonly tar: TarLayout;
}

/**
 * Lays out a bundle: metadata.json, the configuration manifests, then a mirror directory with manifests, tags and
 * blobs, in the order of the images. The same inputs give the same bytes.
 */
export function layOutBundle(
  facts: MetadataFacts,
  contents: Contents,
  config: readonly ConfigManifest[],
  split?: Split,
): BundleLayout {
  const folder = `v2/${releaseRepository}`;
  const rest: TarEntry[] = [
    ...config.map(({ path, object }) => ({ path, content: Buffer.from(formatManifest(object)) })),
    ...[...contents.manifests].map(([digest, { bytes }]) => ({
      path: `${folder}/manifests/${digest}`,
      content: bytes,
    })),
    ...[...contents.tags].map(([tag, digest]) => ({ path: `${folder}/manifests/${tag}`, target: digest })),
    ...[...contents.blobs].map(([digest, { descriptor }]) => ({ path: `${folder}/blobs/${digest}`, descriptor })),
  ];
  const blobs = [...contents.blobs.values()].map(({ descriptor: { digest, size } }) => ({ digest, size }));
  const restSize = layOutTar(rest).size;
  const bytes = formatMetadata(
    { formatVersion: facts.releases ? 2 : 1, ...facts, blobs },
    (length) => 512 + roundToBlock(length) + restSize,
    (size) => split && describeVolumes(split, size),
  );
  const tar = layOutTar([{ path: metadataPath, content: bytes }, ...rest], split?.volumeSize);
  return { metadata: parseMetadata(bytes, 'this bundle'), tar };
}

/**
 * Returns the names of the extra images that are OCI artifacts, such as charts or models. No image store takes them: a
 * bundle only carries them to a registry.
 */
export function listArtifacts(images: readonly ExtraImage[], manifests: StoredManifests): string[] {
  const manifestOf = (digest: ExtraImage['reference']['digest']) => manifests.get(digest)?.manifest;
  const isImage = ({ reference }: ExtraImage): boolean =>
    [...walkManifests(reference.digest, manifestOf)].some(({ manifest }) => manifest && isContainerImage(manifest));
  return images.filter((image) => !isImage(image)).map(({ name }) => name);
}
