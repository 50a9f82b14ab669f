import { dirname } from 'node:path';
import { Readable } from 'node:stream';
import { type ConfigManifest, formatManifest } from '#config/manifest';
import {
  ArchiveWriter,
  type ArchiveDigests,
  VolumeHash,
  layOutTar,
  roundToBlock,
  type TarEntry,
  type TarLayout,
} from '#content/archive';
import { takeLock, measureFree } from '#content/files';
import { sumSizes, isContainerImage, type Digest } from '#content/oci';
import { Verifier, releaseRepository, walkManifests, type StoredManifests } from '#content/store';
import { type Context, checkInterrupted } from '#context';
import { PluginError } from '#errors';
import { formatBytes } from '#text';
import type { BundleImage, ExtraImage } from '../metadata/images.ts';
import {
  type MetadataFacts,
  formatMetadata,
  metadataPath,
  parseMetadata,
  type BundleMetadata,
} from '../metadata/metadata.ts';
import { lockOf, makeFolder, prepareSidecars, type SidecarOptions } from '../open/sidecars.ts';
import { describeVolumes, type Split } from '../open/split.ts';
import { type Contents, settleTasks, type FetchTask, type StoredBlob } from './contents.ts';
import type { ReleaseProvider } from './releaseProvider.ts';

/**
 * Writes a bundle and the files beside it, or resumes an interrupted run. A digest file is never beside a tar with
 * another digest. Returns the digests, and the number of fetched bytes. Throws `busy`, `disk-full`, `not-writable` and
 * the errors of the provider.
 */
export async function writeBundle(
  path: string,
  { tar, metadata }: BundleLayout,
  contents: Contents,
  sidecars: SidecarOptions,
  provider: ReleaseProvider,
  context: Context,
): Promise<{ readonly digests: ArchiveDigests; readonly fetched: number }> {
  await makeFolder(dirname(path));
  await using _lock = await takeLock(lockOf(path), path);
  const writer = await ArchiveWriter.open(path, tar, context);
  try {
    const { digests, fetched } = await fillBundle(writer, contents, provider, context);
    const placeSidecars = await prepareSidecars(path, digests, metadata, sidecars);
    await writer.finish();
    await placeSidecars();
    return { digests, fetched };
  } catch (error) {
    await writer.close();
    throw error;
  }
}

/**
 * Fetches every blob into its place. Returns the digests of the tar and the number of fetched bytes. A failed blob does
 * not stop the others. Throws one error with all failures at the end.
 */
export async function fillBundle(
  writer: ArchiveWriter,
  contents: Contents,
  provider: ReleaseProvider,
  context: Context,
): Promise<{ digests: ArchiveDigests; fetched: number }> {
  const missingBlobs = [...contents.blobs.values()].filter(({ descriptor }) => !writer.resumed.has(descriptor.digest));
  await announcePlan(writer, contents, missingBlobs, provider, context);
  const completeImages = watchImages(contents.images, missingBlobs, context);
  let fetched = 0;
  const fetchBlob = async (blob: StoredBlob): Promise<void> => {
    const { digest, size } = blob.descriptor;
    let done = writer.place(digest)?.present ?? 0;
    const count = (present: number): void => {
      fetched += present - done;
      context.onEvent({ kind: 'bytes', digest, bytes: present - done });
      done = present;
    };
    const bytes = contents.payloads?.get(digest);
    if (bytes) await writer.push(blob.descriptor, () => Promise.resolve(Readable.from([bytes])));
    else
      await provider.fetchBlob(blob, writer, (present) => {
        writer.noteProgress(digest, present);
        count(present);
      });
    count(size);
    context.onEvent({ kind: 'stored', digest, size });
    completeImages(blob);
  };

  const startTask = (blob: StoredBlob): FetchTask => {
    const { digest } = blob.descriptor;
    const images = [...blob.images];
    const [source = ''] = images.map(({ reference }) => provider.sourceOf(reference).name);
    return { names: images.map(({ name }) => name), digest, source, task: fetchBlob(blob) };
  };

  const total = contents.images.length;
  const arrivals = new Map(missingBlobs.map((blob) => [blob.descriptor.digest, startTask(blob)]));
  const whole = digestWhole(
    writer,
    async (digest) => void (await arrivals.get(digest)?.task),
    async (digest) => {
      const blob = contents.blobs.get(digest);
      if (blob) await settleTasks([startTask(blob)], total);
    },
    context,
  );
  // A failed blob also fails the digest. settleTasks throws all failures, not only the first one.
  whole.catch(() => undefined);
  await settleTasks([...arrivals.values()], total);
  return { digests: await whole, fetched };
}

async function announcePlan(
  writer: ArchiveWriter,
  { images, blobs }: Contents,
  missingBlobs: readonly StoredBlob[],
  { held, isLocal = false }: ReleaseProvider,
  context: Context,
): Promise<void> {
  let [bytes, present] = [0, 0];
  for (const { descriptor } of blobs.values()) {
    bytes += descriptor.size;
    present += writer.place(descriptor.digest)?.present ?? 0;
  }
  context.onEvent({ kind: 'plan', images: images.length, blobs: missingBlobs.length, bytes, present });
  const { folder, free } = await measureFree(writer.name);
  const kept = present === 0 ? '' : `, ${formatBytes(present)} is kept`;
  const copied = missingBlobs
    .filter(({ descriptor }) => held?.has(descriptor.digest))
    .map(({ descriptor }) => descriptor);
  const missing = bytes - present - sumSizes(copied);
  const amount = `${formatBytes(Math.max(0, missing))} in ${missingBlobs.length - copied.length} blobs`;
  const what = `${isLocal ? 'copying' : 'fetching'} ${amount} of ${images.length} images${kept}`;
  context.log('info', `${what}; ${folder} has ${formatBytes(free)} free`);
}

/** Reports each image that has all its blobs. Call the returned function for each fetched blob. */
function watchImages(
  images: readonly BundleImage[],
  missingBlobs: readonly StoredBlob[],
  context: Context,
): (blob: StoredBlob) => void {
  const missing = new Map(images.map((image) => [image, new Set<StoredBlob>()]));
  const tellIfComplete = (image: BundleImage): void => {
    if (missing.get(image)?.size === 0) context.onEvent({ kind: 'image', name: image.name });
  };
  for (const blob of missingBlobs) for (const image of blob.images) missing.get(image)?.add(blob);
  for (const image of images) tellIfComplete(image);
  return (blob) => {
    for (const image of blob.images) if (missing.get(image)?.delete(blob)) tellIfComplete(image);
  };
}

/** Large reads, because each read wakes a thread and waits for its reply. */
const readSize = 4 * 1024 * 1024;

/**
 * Computes the digests of a tar and of its volumes while the tar is filled. Reads from the beginning, and waits for
 * each blob with `arrivalOf`. Verifies the blobs of an earlier run, and calls `fetchAgain` for a blob that a power
 * failure damaged.
 */
async function digestWhole(
  writer: ArchiveWriter,
  arrivalOf: (digest: Digest) => Promise<void>,
  fetchAgain: (digest: Digest) => Promise<void>,
  context: Context,
): Promise<ArchiveDigests> {
  let hash = new VolumeHash(writer.volumes);
  let position = 0;
  const buffer = Buffer.allocUnsafeSlow(readSize);
  const readRange = async (from: number, to: number, readers: readonly (VolumeHash | Verifier)[]): Promise<void> => {
    for (let at = from; at < to;) {
      checkInterrupted(context.signal);
      const length = await writer.read(buffer.subarray(0, to - at), at);
      if (length === 0) {
        const message = `${writer.name} is shorter than expected: another program may be writing it`;
        throw new PluginError('not-readable', message);
      }
      for (const reader of readers) reader.update(buffer.subarray(0, length));
      at += length;
    }
  };
  for (const { entry, start, size } of writer.layout.entries) {
    if (!('descriptor' in entry)) continue;
    const { digest } = entry.descriptor;
    await arrivalOf(digest);
    await readRange(position, start, [hash]);
    position = start + size;
    const before = hash.copy();
    const verifier = writer.resumed.has(digest) ? new Verifier(entry.descriptor, writer.name) : undefined;
    await readRange(start, position, verifier ? [hash, verifier] : [hash]);
    if (!verifier || verifier.matches()) continue;
    context.log('warn', `${digest} is corrupt since the last run: fetching it again`);
    writer.forget(digest);
    await fetchAgain(digest);
    hash = before;
    await readRange(start, position, [hash]);
  }
  await readRange(position, writer.layout.size, [hash]);
  return hash.finish();
}

/** The layout of a bundle, without its blobs. */
interface BundleLayout {
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
