import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { type ArchiveDigests, findArchive, type ArchiveWriter } from '#content/archive';
import { RequestLimiter } from '#content/http';
import { type Digest, formatReference, type Reference, sumSizes } from '#content/oci';
import type { Context } from '#context';
import { asFailure, isPluginError, ignoreFailure } from '#errors';
import { formatBytes } from '#text';
import { describeSignatures, type BundleMetadata, splitReleases, type BlobRecord } from '../metadata/metadata.ts';
import type { Bundle } from '../open/bundle.ts';
import { descriptorOf } from '../open/deltaBase.ts';
import { openBundle } from '../open/open.ts';
import { prepareSidecars, readCurrentDigest, removeLeftovers } from '../open/sidecars.ts';
import type { VerifyTrust } from '../open/signatureCheck.ts';
import { checkSigned } from '../open/signedBundle.ts';
import { describeVolumes } from '../open/split.ts';
import { verifyBundle } from '../verify/verify.ts';
import type { Base } from './base.ts';
import type { Contents, StoredBlob } from './contents.ts';
import type { ReleaseProvider } from './releaseProvider.ts';
import type { CreateRequest } from './request.ts';

interface ExpectedBundle {
  /** The releases in their order. */
  readonly references: readonly (Reference & { readonly digest: Digest })[];
  /** The pullspecs by digest. */
  readonly extraImages: readonly string[];
  /** The base release, whose blobs the bundle may leave out. */
  readonly base: Base | undefined;
  readonly reports: BundleMetadata['reports'];
}

/** A finished bundle with the expected content. */
interface ExistingBundle {
  /** The metadata, with the verified signatures. */
  readonly metadata: BundleMetadata;
  readonly digest: Digest;
  /** Whether every byte was read. */
  readonly isRead: boolean;
}

/**
 * Checks whether a finished bundle has the expected content, by its metadata, its entries and its size. Reads every
 * byte if requested, or if the .sha256 or .yaml file is missing or older, and then rewrites these files. Otherwise the
 * digest is that of the .sha256 file. An unsigned bundle counts only if unsigned releases are allowed. Returns
 * undefined if there is no such bundle.
 */
export async function checkExisting(
  path: string,
  expected: ExpectedBundle,
  { verifyExisting, dryRun, volumeSize = Infinity }: Pick<CreateRequest, 'verifyExisting' | 'dryRun' | 'volumeSize'>,
  trust: VerifyTrust,
  context: Context,
): Promise<ExistingBundle | undefined> {
  const archive = await findArchive(path).catch(() => undefined);
  if (!archive) return undefined;
  try {
    await using bundle = await openBundle(path, context);
    const { size } = bundle;
    let { metadata } = bundle;
    const volumes = describeVolumes({ name: basename(path), volumeSize }, metadata.size);
    const difference = differenceOf(metadata, size, { ...expected, volumes });
    if (difference !== undefined) {
      context.log('warn', `${path} ${difference}: ${dryRun ? 'it would be replaced' : 'it is replaced'}`);
      return undefined;
    }
    // The signatures that metadata.json names prove nothing, because anyone can write them.
    const { signatures } = await checkSigned(bundle, trust, context);
    metadata = { ...metadata, signatures: describeSignatures(signatures) };
    const currentDigest = verifyExisting ? undefined : await readCurrentDigest(path, archive.volumes);
    if (currentDigest) {
      if (!dryRun) await removeLeftovers(path);
      return { metadata, digest: currentDigest, isRead: false };
    }
    const report = await verifyBundle(bundle, { assumeBase: true }, context);
    if (!report.digest || report.problems.length > 0) {
      context.log('warn', `${path} is corrupt (${report.problems[0]?.message ?? ''}): creating it again`);
      return undefined;
    }
    if (!dryRun) await writeSidecars(path, { digest: report.digest, volumes: report.volumes }, metadata, context);
    return { metadata, digest: report.digest, isRead: true };
  } catch (error) {
    context.log('warn', `${asFailure(error).message}; creating it again`);
    return undefined;
  }
}

/** Rewrites the files beside a bundle. Only warns if that fails. */
async function writeSidecars(
  path: string,
  digests: ArchiveDigests,
  metadata: BundleMetadata,
  context: Context,
): Promise<void> {
  try {
    const place = await prepareSidecars(path, digests, metadata);
    await place();
    await removeLeftovers(path);
  } catch (error) {
    if (!isPluginError(error)) throw error;
    context.log('warn', `the files beside ${path} cannot be written: ${error.message}`);
  }
}

/**
 * Returns how a finished bundle differs from the expected one, as the rest of a sentence that begins with its path;
 * undefined if it does not.
 */
function differenceOf(
  metadata: BundleMetadata,
  actual: number,
  expected: ExpectedBundle & Pick<BundleMetadata, 'volumes'>,
): string | undefined {
  const { images: all, extraImages, size, volumes, base } = metadata;
  const releases = splitReleases(metadata).map(({ release }) => release);
  const expectedReleases = expected.references.map(formatReference);
  if (releases.join() !== expectedReleases.join())
    return `has ${releases.join(', ')} instead of ${expectedReleases.join(', ')}`;
  const added = expected.extraImages.filter((image) => !all.includes(image));
  const dropped = extraImages.filter((image) => !expected.extraImages.includes(image));
  const images = [
    ...(added.length > 0 ? [`lacks ${added.join(', ')}`] : []),
    ...(dropped.length > 0 ? [`has ${dropped.join(', ')} in addition`] : []),
  ];
  if (images.length > 0) return images.join(' and ');
  if (!isDeepStrictEqual(metadata.reports, expected.reports)) return 'has another place or key for reports';
  if (base?.release !== expected.base?.release) return 'has another base';
  if (base?.blobs.some(({ digest }) => !expected.base?.blobs.has(digest)))
    return 'lacks blobs that the base does not have';
  if (formOf(volumes) !== formOf(expected.volumes)) {
    return expected.volumes ? 'is not in volumes of that size' : 'is in volumes';
  }
  return size === actual ? undefined : `has ${actual} bytes and should have ${size}`;
}

/** Returns the sizes of the volumes as a text to compare. */
function formOf(volumes: BundleMetadata['volumes']): string {
  return volumes?.map(({ size }) => size).join() ?? '';
}

/** The number of blobs to copy in parallel. */
const parallelCopies = 3;

/** A provider that copies blobs from a finished bundle, and fetches only the others. */
class ReusedBundle implements ReleaseProvider {
  readonly held: ReadonlySet<Digest>;
  /** The bytes that were copied from the bundle. */
  reused = 0;
  readonly #bundle: Bundle;
  readonly #provider: ReleaseProvider;
  readonly #context: Context;
  readonly #limiter = new RequestLimiter(parallelCopies);

  constructor(bundle: Bundle, held: readonly BlobRecord[], provider: ReleaseProvider, context: Context) {
    this.held = new Set(held.map(({ digest }) => digest));
    this.#bundle = bundle;
    this.#provider = provider;
    this.#context = context;
  }

  get signatures(): ReleaseProvider['signatures'] {
    return this.#provider.signatures;
  }

  get isLocal(): boolean {
    return this.#provider.isLocal === true;
  }

  get fetchFile(): ReleaseProvider['fetchFile'] {
    return this.#provider.fetchFile;
  }

  sourceOf(...of: Parameters<ReleaseProvider['sourceOf']>): ReturnType<ReleaseProvider['sourceOf']> {
    return this.#provider.sourceOf(...of);
  }

  async fetchBlob(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void> {
    if (!this.held.has(blob.descriptor.digest) || !(await this.#copy(blob, writer))) {
      await this.#provider.fetchBlob(blob, writer, onProgress);
    }
  }

  /** Closes the bundle, and not the other provider. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#bundle[Symbol.asyncDispose]();
  }

  /** Copies a blob, and verifies it. Returns false if it is corrupt. */
  async #copy({ descriptor }: StoredBlob, writer: ArchiveWriter): Promise<boolean> {
    const { signal, log } = this.#context;
    const release = await this.#limiter.take('plain', signal);
    try {
      await writer.push(descriptor, () => this.#bundle.content.fetch(descriptor));
      this.reused += descriptor.size;
      return true;
    } catch (error) {
      if (!isPluginError(error) || !['digest-mismatch', 'size-mismatch', 'not-readable'].includes(error.code))
        throw error;
      log('warn', `${error.message}: fetching it`);
      return false;
    } finally {
      release();
    }
  }
}

/**
 * Opens the finished bundle at a path to copy from it the blobs that a new bundle needs, because only its form or a few
 * images differ. Returns undefined if there is none, or if it has none of the blobs.
 */
export async function reuseBundle(
  path: string,
  { blobs }: Pick<Contents, 'blobs'>,
  provider: ReleaseProvider,
  context: Context,
): Promise<ReusedBundle | undefined> {
  const archive = await findArchive(path).catch(() => undefined);
  const bundle = archive && (await openBundle(path, context).catch(ignoreFailure));
  if (!bundle) return undefined;
  const held: BlobRecord[] = [];
  for (const { descriptor } of blobs.values()) {
    if (await bundle.content.exists(descriptorOf(descriptor))) held.push(descriptor);
  }
  if (held.length > 0) {
    context.log('info', `${formatBytes(sumSizes(held))} in ${held.length} blobs are copied from ${path}`);
    return new ReusedBundle(bundle, held, provider, context);
  }
  await bundle[Symbol.asyncDispose]();
  return undefined;
}
