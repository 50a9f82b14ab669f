import type { SignaturesByDigest } from '#config/signatures';
import type { ArchiveWriter } from '#content/archive';
import { RootFolder } from '#content/files';
import { type FetchFile, RequestLimiter } from '#content/http';
import { formatReference, parseReference, type Reference } from '#content/oci';
import { Registries, type RegistryAccess } from '#content/registry';
import { Directory, releaseRepository, listRepositories, type ContentSource } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { readBundledSignatures, readFolderSignatures } from '../metadata/bundledConfig.ts';
import { metadataPath, metadataSizeLimit, parseMetadata, type BundleMetadata } from '../metadata/metadata.ts';
import { readReleaseRepositories } from '../metadata/originalNames.ts';
import { openComplete } from '../open/deltaBase.ts';
import type { StoredBlob } from './contents.ts';

/** The source of a new bundle: registries, a mirror directory or another bundle. */
export interface ReleaseProvider {
  /** Signatures that are stored with the content, not verified. */
  readonly signatures: SignaturesByDigest;
  /** The repository of the release, if the content names it. */
  readonly repository?: string;
  /** Whether all content is on this machine. */
  readonly isLocal?: boolean;
  /** Gets files from signature stores. */
  readonly fetchFile: FetchFile;
  /** Returns the repository that has an image. */
  sourceOf(reference: Reference): ContentSource;
  /** Fetches a blob into a bundle, and verifies it. `onProgress` gets the number of bytes that are present. */
  fetchBlob(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Registries, with their mirrors. Separate threads fetch the blobs. */
export class RegistryProvider implements ReleaseProvider {
  readonly signatures: SignaturesByDigest = new Map();
  readonly #registries: Registries;

  constructor(access: RegistryAccess, context: Context) {
    this.#registries = new Registries(access, context);
  }

  get fetchFile(): FetchFile {
    return this.#registries.fetchFile;
  }

  sourceOf(reference: Reference): ContentSource {
    return this.#registries.sourceOf(reference);
  }

  async fetchBlob(
    { descriptor, images }: StoredBlob,
    writer: ArchiveWriter,
    onProgress: (present: number) => void,
  ): Promise<void> {
    const place = writer.place(descriptor.digest);
    if (!place) throw new PluginError('internal', `the tar has no place for ${descriptor.digest}`);
    const references = [...images].map(({ reference }) => reference);
    await this.#registries.download(descriptor, references, place, onProgress);
    writer.noteFinished(descriptor.digest);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#registries[Symbol.asyncDispose]();
  }
}

/**
 * Opens a mirror directory or a bundle as the source of a new bundle, for every repository. Throws `not-readable`,
 * `not-found`, `incomplete` and `invalid-bundle`.
 */
export async function openLocalProvider(
  path: string,
  access: RegistryAccess,
  context: Context,
): Promise<ReleaseProvider> {
  // A mirror directory may have several releases, and is then not a bundle.
  const isDirectory = (await listRepositories(path)).includes(releaseRepository);
  const stored = isDirectory ? await openDirectory(path, context) : await openBundleContent(path, context);
  return new LocalProvider(stored, access, context);
}

/** The content of a mirror directory or of a bundle. */
interface StoredRelease extends Pick<ReleaseProvider, 'signatures' | 'repository'>, AsyncDisposable {
  readonly content: ContentSource;
}

class LocalProvider implements ReleaseProvider {
  readonly signatures: ReleaseProvider['signatures'];
  readonly repository: string | undefined;
  readonly isLocal = true;
  readonly #stored: StoredRelease;
  readonly #registries: RegistryProvider;
  readonly #limiter: RequestLimiter;
  readonly #signal: AbortSignal;

  constructor(stored: StoredRelease, access: RegistryAccess, context: Context) {
    this.signatures = stored.signatures;
    this.repository = stored.repository;
    this.#stored = stored;
    this.#registries = new RegistryProvider(access, context);
    this.#limiter = new RequestLimiter(access.settings.maxPerRegistry);
    this.#signal = context.signal;
  }

  get fetchFile(): FetchFile {
    return this.#registries.fetchFile;
  }

  sourceOf(): ContentSource {
    return this.#stored.content;
  }

  async fetchBlob({ descriptor }: StoredBlob, writer: ArchiveWriter): Promise<void> {
    const release = await this.#limiter.take('plain', this.#signal);
    try {
      await writer.push(descriptor, () => this.#stored.content.fetch(descriptor));
    } finally {
      release();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stored[Symbol.asyncDispose]();
    await this.#registries[Symbol.asyncDispose]();
  }
}

async function openDirectory(path: string, context: Context): Promise<StoredRelease> {
  const folder = new RootFolder(path);
  const content = new Directory(path, releaseRepository, {}, context);
  return {
    content,
    signatures: await readFolderSignatures(folder, context),
    repository: await readRepository(folder, context),
    [Symbol.asyncDispose]: () => content.close(),
  };
}

async function openBundleContent(path: string, context: Context): Promise<StoredRelease> {
  const bundle = await openComplete(path, { bases: [] }, context);
  try {
    return {
      content: bundle.content,
      signatures: await readBundledSignatures(bundle, context),
      repository: repositoryOf(bundle.metadata),
      [Symbol.asyncDispose]: () => bundle[Symbol.asyncDispose](),
    };
  } catch (error) {
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/** Reads the repository of the release, if metadata.json or the mirror directory names one. */
async function readRepository(folder: RootFolder, context: Context): Promise<string | undefined> {
  try {
    const bytes = await folder.read(metadataPath, metadataSizeLimit);
    return repositoryOf(parseMetadata(bytes, folder.path));
  } catch (error) {
    if (!isPluginError(error)) throw error;
    if (error.code !== 'not-found') context.log('warn', `${error.message}: the repository of the release is not known`);
    const [repository, ...others] = new Set((await readReleaseRepositories(folder)).values());
    return others.length === 0 ? repository : undefined;
  }
}

// The pullspec may have a tag in addition to the digest.
function repositoryOf({ release }: BundleMetadata): string {
  const { registry, repository } = parseReference(release);
  return formatReference({ registry, repository });
}
