import { dirname } from 'node:path';
import { Readable } from 'node:stream';
import { ArchiveWriter, type ArchiveDigests, VolumeHash } from '#content/archive';
import { takeLock, measureFree } from '#content/files';
import { RequestLimiter } from '#content/http';
import { sumSizes, type Digest } from '#content/oci';
import { Verifier } from '#content/store';
import { type Context, checkInterrupted } from '#context';
import { ignoreFailure, isPluginError, messageOf, PluginError } from '#errors';
import { formatBytes } from '#text';
import type { BundleImage } from '../metadata/images.ts';
import type { BlobRecord } from '../metadata/metadata.ts';
import { openBundle } from '../open/open.ts';
import { lockOf, makeFolder, prepareSidecars, removeLeftovers, type SidecarOptions } from '../open/sidecars.ts';
import { type BundleLayout, type Contents, settleTasks, type FetchTask, type StoredBlob } from './contents.ts';
import type { SameBundle } from './existing.ts';
import type { ReleaseProvider } from './releaseProvider.ts';

/** What is written to a path. */
export interface BundlePlan extends SidecarOptions {
  readonly path: string;
  readonly layout: BundleLayout;
  readonly contents: Contents;
  /** Blobs that are copied from the finished bundle at the path; by default none. */
  readonly reusable?: readonly BlobRecord[];
}

/**
 * Writes a bundle and the files beside it, or resumes an interrupted run. A digest file is never beside a tar with
 * another digest. Returns the digests, and the number of fetched bytes. Throws `busy`, `disk-full`, `not-writable` and
 * the errors of the provider.
 */
export async function writeBundle(
  { path, layout: { tar, metadata }, contents, reusable = [], ...sidecars }: BundlePlan,
  provider: ReleaseProvider,
  context: Context,
): Promise<{ readonly digests: ArchiveDigests; readonly fetched: number }> {
  await using reused = await openReused(path, reusable, context);
  await makeFolder(dirname(path));
  await using _lock = await takeLock(lockOf(path), path);
  const writer = await ArchiveWriter.open(path, tar, context);
  try {
    const { digests, fetched } = await fillBundle(writer, { contents, reused }, provider, context);
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
 * Keeps a finished bundle: writes the files beside it again if every byte was read, and removes temporary files of a
 * killed run. Only warns if that fails.
 */
export async function keepBundle(path: string, { metadata, computed }: SameBundle, context: Context): Promise<void> {
  try {
    if (computed) {
      const placeSidecars = await prepareSidecars(path, computed, metadata);
      await placeSidecars();
    }
    await removeLeftovers(path);
  } catch (error) {
    if (!isPluginError(error)) throw error;
    context.log('warn', `the files beside ${path} cannot be written: ${error.message}`);
  }
}

/**
 * Fetches every blob into its place. Returns the digests of the tar and the number of fetched bytes. A failed blob does
 * not stop the others. Throws one error with all failures at the end.
 */
export async function fillBundle(
  writer: ArchiveWriter,
  { contents, reused }: { readonly contents: Contents; readonly reused?: ReusedBlobs | undefined },
  provider: ReleaseProvider,
  context: Context,
): Promise<{ digests: ArchiveDigests; fetched: number }> {
  const missingBlobs = [...contents.blobs.values()].filter(({ descriptor }) => !writer.resumed.has(descriptor.digest));
  await announcePlan(writer, contents, missingBlobs, reused, provider.isLocal, context);
  const completeImages = watchImages(contents.images, missingBlobs, context);
  let fetched = 0;
  const fetchBlob = async (blob: StoredBlob): Promise<void> => {
    const { digest, size } = blob.descriptor;
    const begun = writer.place(digest)?.present ?? 0;
    let done = begun;
    const count = (present: number): void => {
      context.onEvent({ kind: 'bytes', digest, bytes: present - done });
      done = present;
    };
    const bytes = contents.payloads?.get(digest);
    const isCopied = !bytes && (await reused?.copy(blob, writer)) === true;
    if (bytes) await writer.push(blob.descriptor, () => Promise.resolve(Readable.from([bytes])));
    else if (!isCopied)
      await provider.fetchBlob(blob, writer, (present) => {
        writer.noteProgress(digest, present);
        count(present);
      });
    count(size);
    if (!isCopied) fetched += size - begun;
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
  reused: ReusedBlobs | undefined,
  isLocal: boolean | undefined,
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
  const copied = missingBlobs.map(({ descriptor }) => descriptor).filter(({ digest }) => reused?.digests.has(digest));
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

/** The number of blobs to copy in parallel. */
const parallelCopies = 3;

/** Blobs of the finished bundle that the new one replaces. */
interface ReusedBlobs extends AsyncDisposable {
  readonly digests: ReadonlySet<Digest>;
  /** Copies a blob, and verifies it. Returns false if the bundle does not have it, or if it is corrupt. */
  copy(blob: StoredBlob, writer: ArchiveWriter): Promise<boolean>;
}

/** Opens a finished bundle to copy blobs from it. Returns undefined if there are none to copy, or if it is gone. */
async function openReused(
  path: string,
  reusable: readonly BlobRecord[],
  context: Context,
): Promise<ReusedBlobs | undefined> {
  const bundle = reusable.length > 0 ? await openBundle(path, context).catch(ignoreFailure) : undefined;
  if (!bundle) return undefined;
  context.log('info', `${formatBytes(sumSizes(reusable))} in ${reusable.length} blobs are copied from ${path}`);
  const digests = new Set(reusable.map(({ digest }) => digest));
  const limiter = new RequestLimiter(parallelCopies);
  return {
    digests,
    copy: async ({ descriptor }, writer) => {
      if (!digests.has(descriptor.digest)) return false;
      const release = await limiter.take('plain', context.signal);
      try {
        await writer.push(descriptor, () => bundle.content.fetch(descriptor));
        return true;
      } catch (error) {
        if (!copyFailures.some((code) => isPluginError(error, code))) throw error;
        context.log('warn', `${messageOf(error)}: fetching it`);
        return false;
      } finally {
        release();
      }
    },
    [Symbol.asyncDispose]: () => bundle[Symbol.asyncDispose](),
  };
}

/** The codes of errors of a finished bundle that is corrupt, or that another run has replaced meanwhile. */
const copyFailures = ['digest-mismatch', 'size-mismatch', 'not-found', 'not-readable'] as const;
