import {
  attachedTo,
  isIndex,
  type Descriptor,
  type Manifest,
  isDigest,
  type Digest,
  parseReference,
} from '#content/oci';
import {
  serveContent,
  type ContentServer,
  type ServedFile,
  type ServeOptions,
  type SizedContent,
} from '#content/server';
import {
  releaseRepository,
  isAttachment,
  readImageManifest,
  type ContentSource,
  type LocalContent,
} from '#content/store';
import type { Context } from '#context';
import { asFailure, PluginError } from '#errors';
import { warnOfImages } from './create/contents.ts';
import { entryKindOf, type Bundle } from './open/bundle.ts';

/** The path of the whole tar on the server. */
export const servedTar = '/bundle.tar';

/** Options of serveBundle. */
export interface ServeBundleOptions extends Omit<ServeOptions, 'repositories' | 'files'> {
  /** The tags of the images, by the signed payload. Without tags, images are served by digest only. */
  readonly tags?: ReadonlyMap<string, Digest>;
}

/** A running server for the images of a bundle. */
export interface BundleServer extends ContentServer {
  /** The names of the served repositories, sorted. */
  readonly repositories: readonly string[];
}

/**
 * Serves a bundle as a read-only registry. `openshift/release` has the given tags and the tags of attachments; the
 * original repositories have the tags of their images. Every repository has all content by digest, and `/bundle.tar` is
 * the whole tar. Skips missing or unreadable content with a warning. Ends if the signal of the context is aborted.
 * Throws the errors of serveContent.
 */
export async function serveBundle(
  bundle: Bundle,
  { tags = new Map(), ...listen }: ServeBundleOptions,
  context: Context,
): Promise<BundleServer> {
  const { content } = bundle;
  const attached = await listAttachments(content, context);
  const sizes = readSizes(bundle);
  const views = new Map<string, ContentSource & LocalContent & SizedContent>();
  const serve = (repository: string, names: readonly string[]): void => {
    const visible = new Set(names.toSorted());
    views.set(repository, {
      name: content.name,
      resolve: async (tagOrDigest) => {
        if (isDigest(tagOrDigest) || visible.has(tagOrDigest))
          return content.resolve(tags.get(tagOrDigest) ?? tagOrDigest);
        throw new PluginError('not-found', `${repository} has no tag ${tagOrDigest}`);
      },
      fetch: (descriptor, start) => content.fetch(descriptor, start),
      chunks: (descriptor, start, end) => content.chunks(descriptor, start, end),
      exists: (descriptor) => content.exists(descriptor),
      tags: () => Promise.resolve([...visible]),
      sizeOf: (digest) => Promise.resolve(sizes.get(digest)),
    });
  };
  for (const [repository, digests] of await readRepositories(bundle, context)) {
    const own = [...tags].flatMap(([tag, digest]) => (digests.has(digest) ? [tag] : []));
    const attachments = attached.filter((tag) => {
      const subject = attachedTo(tag);
      return subject !== undefined && digests.has(subject);
    });
    serve(repository, [...own, ...attachments]);
  }
  serve(releaseRepository, [...tags.keys(), ...attached]);
  const repositories = [...views.keys()].sort();
  const { chunks, size } = bundle;
  const files = new Map<string, ServedFile>(chunks ? [[servedTar, { size, chunks }]] : []);
  const options = { ...listen, repositories: () => repositories, files };
  return { ...(await serveContent((name) => views.get(name), options, context)), repositories };
}

/** Lists the tags of attachments. Leaves out tags that lead to images. */
async function listAttachments(content: ContentSource, context: Context): Promise<string[]> {
  const manifests = new Map<Digest, Manifest>();
  const read = async (descriptor: Descriptor): Promise<void> => {
    if (manifests.has(descriptor.digest)) return;
    const manifest = await readImageManifest(content, descriptor);
    manifests.set(descriptor.digest, manifest);
    for (const child of manifest.manifests) await read(child);
  };
  const attachments: string[] = [];
  for (const tag of (await content.tags()).filter(attachedTo)) {
    try {
      const root = await content.resolve(tag);
      await read(root);
      if (isAttachment(tag, root.digest, (digest) => manifests.get(digest))) attachments.push(tag);
      else warnOfImages([tag], context);
    } catch (error) {
      context.log('warn', `${tag} cannot be served: ${asFailure(error).message}`);
    }
  }
  return attachments;
}

/** Returns the original repositories with the digests of their images, also of images in manifest lists. */
async function readRepositories({ metadata, content }: Bundle, context: Context): Promise<Map<string, Set<Digest>>> {
  const repositories = new Map<string, Set<Digest>>();
  const visit = async (digest: Digest, digests: Set<Digest>): Promise<void> => {
    digests.add(digest);
    const descriptor = await content.resolve(digest);
    if (!isIndex(descriptor)) return;
    const { manifests } = await readImageManifest(content, descriptor);
    for (const child of manifests) if (!digests.has(child.digest)) await visit(child.digest, digests);
  };
  for (const pullspec of new Set([metadata.release, ...metadata.images])) {
    const { repository, digest } = parseReference(pullspec);
    const digests = repositories.get(repository) ?? new Set();
    repositories.set(repository, digests);
    try {
      if (digest) await visit(digest, digests);
    } catch (error) {
      context.log('warn', `${pullspec} cannot be served: ${asFailure(error).message}`);
    }
  }
  return repositories;
}

function readSizes({ files, metadata }: Bundle): ReadonlyMap<Digest, number> {
  const sizes = new Map(metadata.base?.blobs.map(({ digest, size }) => [digest, size]));
  for (const file of files) {
    const place = entryKindOf(file);
    if ('digest' in place) sizes.set(place.digest, file.size);
  }
  return sizes;
}
