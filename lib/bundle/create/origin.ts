import { join } from 'node:path';
import { readAllSignatures, type SignaturesByDigest } from '../../config/signatures.ts';
import type { Context } from '../../context.ts';
import { formatReference, parseReference, type Reference } from '../../oci/reference.ts';
import { fetchFile, type FetchFile } from '../../http/fetchFile.ts';
import type { ArchiveWriter } from '../../archive/archiveWriter.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { Directory, releaseRepository } from '../../store/directory.ts';
import { Registries, type RegistryAccess } from '../../registry/registries.ts';
import { listRepositories } from '../../store/repositories.ts';
import { RootFolder } from '../../files/rootFolder.ts';
import { RequestLimiter } from '../../http/requestLimiter.ts';
import type { ContentSource } from '../../store/store.ts';
import type { StoredBlob } from './contents.ts';
import { openComplete } from '../complete.ts';
import { metadataPath, metadataSizeLimit, parseMetadata, type BundleMetadata } from '../metadata.ts';
import type { Bundle } from '../bundle.ts';
import { configLimits, findExcess, readBundledSignatures } from '../bundledConfig.ts';

/** Where the content of a bundle comes from. */
export interface Origin {
  /** The repository of an image. */
  sourceOf(reference: Reference): ContentSource;
  /** Gets ready to bring blobs, while something else is being done. */
  prepare(): void;
  /** Brings a blob into its place in a bundle; `onProgress` is told how many of its bytes are there. */
  bring(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void>;
  /** Signatures that came with the content. */
  readonly signatures: SignaturesByDigest;
  /** The repository that the release is said to come from, where the content itself says so. */
  readonly repository?: string | undefined;
  readonly fetchFile: FetchFile;
  close(): Promise<void>;
}

/** Content from registries. Blobs come over threads of their own. */
export function openRegistryOrigin(access: RegistryAccess, context: Context): Origin {
  const registries = new Registries(access, context);
  return {
    sourceOf: (reference) => registries.sourceOf(reference),
    prepare: () => void registries.startThreads(),
    bring: async ({ descriptor, images }, writer, onProgress) => {
      const place = writer.place(descriptor.digest);
      if (!place) throw new PluginError('internal', `there is no place for ${descriptor.digest}`);
      const references = [...images].map(({ reference }) => reference);
      await registries.download(descriptor, references, place, onProgress);
      writer.noteFinished(descriptor.digest);
    },
    signatures: new Map(),
    fetchFile: (url, limit) => fetchFile(registries.connections, url, limit, context),
    close: () => registries.close(),
  };
}

/**
 * Content from a mirror directory or a bundle, whatever repositories its images had before; signatures from its `config` folder.
 * Throws `not-found` for a folder that is none, and what openComplete does.
 */
export async function openLocalOrigin(path: string, access: RegistryAccess, context: Context): Promise<Origin> {
  const local = await openLocal(path, context);
  const registries = openRegistryOrigin(access, context);
  const slots = new RequestLimiter(access.settings.maxPerRegistry);
  return {
    sourceOf: () => local.content,
    prepare: () => undefined,
    bring: async ({ descriptor }, writer) => {
      const free = await slots.take('plain', context.signal);
      try {
        await writer.push(descriptor, () => local.content.fetch(descriptor));
      } finally {
        free();
      }
    },
    signatures: local.signatures,
    repository: local.repository,
    fetchFile: registries.fetchFile,
    close: async () => {
      await local.close();
      await registries.close();
    },
  };
}

async function openLocal(
  path: string,
  context: Context,
): Promise<Pick<Bundle, 'content' | 'close'> & Pick<Origin, 'signatures' | 'repository'>> {
  // A mirror directory may hold several releases, and then it is no bundle.
  if ((await listRepositories(path)).includes(releaseRepository)) {
    const folder = new RootFolder(path);
    const content = new Directory(path, releaseRepository, {}, context);
    const signatures = readAllSignatures(await readConfigFolder(folder, 'config', context.signal));
    const repository = await readRepository(folder, context);
    return { content, signatures, repository, close: () => content.close() };
  }
  const bundle = await openComplete(path, { bases: [] }, context);
  try {
    const { content, metadata } = bundle;
    const signatures = await readBundledSignatures(bundle, context);
    return { content, signatures, repository: repositoryOf(metadata), close: () => bundle.close() };
  } catch (error) {
    await bundle.close();
    throw error;
  }
}

/** The repository of the release that an unpacked bundle is of, as its metadata.json says; undefined for any other folder. */
async function readRepository(folder: RootFolder, context: Context): Promise<string | undefined> {
  try {
    const bytes = await folder.read(metadataPath, metadataSizeLimit);
    return repositoryOf(parseMetadata(bytes, folder.path));
  } catch (error) {
    if (!isPluginError(error)) throw error;
    if (error.code !== 'not-found') context.log('warn', `${error.message}: the repository of the release is not known`);
    return undefined;
  }
}

// It may have a tag besides the digest.
function repositoryOf({ release }: BundleMetadata): string {
  const { registry, repository } = parseReference(release);
  return formatReference({ registry, repository });
}

/**
 * Reads the manifests in a folder below a root as texts; none where there is no folder. Throws what RootFolder does, and `too-large` for
 * more of them than a bundle may have.
 */
export async function readConfigFolder(
  root: RootFolder,
  folder: string,
  signal: AbortSignal,
): Promise<{ path: string; text: string }[]> {
  const files = (await root.tree(signal, folder)).filter(({ path }) => /\.(?:ya?ml|json)$/.test(path));
  const excess = findExcess(files.map(({ path, stats }) => ({ path, size: stats.size })));
  if (excess) throw new PluginError('too-large', `${root.path}: ${excess.message}`);
  const texts: { path: string; text: string }[] = [];
  for (const { path } of files) {
    texts.push({ path: join(root.path, path), text: String(await root.read(path, configLimits.fileBytes)) });
  }
  return texts;
}
