import { isPluginError } from '../errors.ts';
import { attachmentTag } from '../oci/attachment.ts';
import { childrenOf, isIndex, isManifest, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/digest.ts';
import { readContent, type ContentSource } from './store.ts';

/** An image, or a list of them, with what is attached to it: read, but for its blobs. */
export interface ImageTree {
  readonly root: Descriptor;
  /** What each of the manifests points to, those of attachments included. */
  readonly children: ReadonlyMap<Digest, readonly Descriptor[]>;
  /** The sigstore signatures of the image and of those in the list, by the tags that they are found by. */
  readonly attachments: ReadonlyMap<string, Descriptor>;
}

/** Reads the manifests of an image by digest, and of its sigstore attachments. Throws what the source does. */
export async function readImageTree(source: ContentSource, digest: Digest): Promise<ImageTree> {
  const children = new Map<Digest, readonly Descriptor[]>();
  const read = async (descriptor: Descriptor): Promise<void> => {
    if (children.has(descriptor.digest)) return;
    const bytes = await readContent(source, descriptor);
    const below = childrenOf(parseManifest(bytes, `${descriptor.digest} in ${source.name}`));
    children.set(descriptor.digest, below);
    await Promise.all(below.filter(isManifest).map(read));
  };
  const root = await source.resolve(digest);
  await read(root);
  const found = await Promise.all([...children.keys()].map((subject) => findAttachment(source, subject)));
  const attachments = new Map(found.flatMap((entry) => (entry ? [entry] : [])));
  await Promise.all([...attachments.values()].map(read));
  return { root, children, attachments };
}

/** The blobs of an image and of its attachments, each once. */
export function blobsOf({ children }: ImageTree): Map<Digest, Descriptor> {
  const blobs = [...children.values()].flat().filter((child) => !isManifest(child));
  return new Map(blobs.map((blob) => [blob.digest, blob]));
}

/** Tells whether an image is a list. */
export function isList({ root }: ImageTree): boolean {
  return isIndex(root);
}

async function findAttachment(source: ContentSource, subject: Digest): Promise<[string, Descriptor] | undefined> {
  const tag = attachmentTag(subject);
  try {
    return [tag, await source.resolve(tag)];
  } catch (error) {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  }
}
