import type { ArchiveWriter } from '../../content/archive/archiveWriter.ts';
import { findArchive } from '../../content/archive/volumes.ts';
import type { Context } from '../../context.ts';
import { isPluginError, ignoreFailure } from '../../errors.ts';
import { formatBytes } from '../../byteSize.ts';

import { RequestLimiter } from '../../content/http/requestLimiter.ts';
import { sumSizes } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';
import type { Bundle } from '../bundle.ts';
import { descriptorOf } from '../deltaBase.ts';
import type { BlobRecord } from '../metadata.ts';
import { openBundle } from '../open.ts';
import type { Contents, StoredBlob } from './contents.ts';
import type { BundleOrigin } from './origin.ts';

/** The number of blobs to copy in parallel. */
const parallelCopies = 3;

/** An origin that copies blobs from a finished bundle, and fetches only the others. */
class ReusedBundle implements BundleOrigin {
  readonly held: ReadonlySet<Digest>;
  /** The bytes that were copied from the bundle. */
  reused = 0;
  readonly #bundle: Bundle;
  readonly #origin: BundleOrigin;
  readonly #context: Context;
  readonly #limiter = new RequestLimiter(parallelCopies);

  constructor(bundle: Bundle, held: readonly BlobRecord[], origin: BundleOrigin, context: Context) {
    this.held = new Set(held.map(({ digest }) => digest));
    this.#bundle = bundle;
    this.#origin = origin;
    this.#context = context;
  }

  get signatures(): BundleOrigin['signatures'] {
    return this.#origin.signatures;
  }

  get isLocal(): boolean {
    return this.#origin.isLocal === true;
  }

  get fetchFile(): BundleOrigin['fetchFile'] {
    return this.#origin.fetchFile;
  }

  sourceOf(...of: Parameters<BundleOrigin['sourceOf']>): ReturnType<BundleOrigin['sourceOf']> {
    return this.#origin.sourceOf(...of);
  }

  async fetchBlob(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void> {
    if (!this.held.has(blob.descriptor.digest) || !(await this.#copy(blob, writer))) {
      await this.#origin.fetchBlob(blob, writer, onProgress);
    }
  }

  /** Closes the bundle, and not the other origin. */
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
  origin: BundleOrigin,
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
    return new ReusedBundle(bundle, held, origin, context);
  }
  await bundle[Symbol.asyncDispose]();
  return undefined;
}
