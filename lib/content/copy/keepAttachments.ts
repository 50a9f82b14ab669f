import { isPluginError } from '#errors';
import { fieldsOf, listOf, type Fields } from '#fields';
import { parseAttachmentTag } from '../oci/attachment.ts';
import { isIndex, isManifest, parseManifest, type Descriptor } from '../oci/descriptor.ts';
import { parseJson } from '../oci/syntax.ts';
import { Overlay } from '../store/derivedImage.ts';
import type { StoredManifest } from '../store/imageGraph.ts';
import { readContent, type ContentStore } from '../store/store.ts';
import type { Image } from './copy.ts';

/**
 * Joins attachments with the attachments that a destination has under the same tags, so that no signature there is
 * lost. Leaves out attachments that the destination has already. The signatures of the destination come first. Throws
 * the errors of the destination.
 */
export async function keepAttachments<Copied extends Image>(
  images: readonly Copied[],
  destination: ContentStore,
): Promise<Copied[]> {
  const [first] = images.filter(isTaggedAttachment);
  if (!first) return [...images];
  // In Quay, the login for a first write creates a repository, and before that reads of it are denied.
  await destination.exists(first.root);
  // One request instead of one for each attachment.
  const present = await destination.tags().then(
    (tags) => new Set(tags),
    () => undefined,
  );
  const kept = await Promise.all(
    images.map(async (image) => {
      const [tag = ''] = image.tags ?? [];
      if (!isTaggedAttachment(image) || present?.has(tag) === false) return image;
      return joinAttachment(image, tag, destination);
    }),
  );
  return kept.filter((image) => image !== undefined);
}

function isTaggedAttachment({ isAttachment, tags = [] }: Image): boolean {
  return isAttachment === true && tags.length === 1 && parseAttachmentTag(tags[0] ?? '') !== undefined;
}

/** Joins one attachment with what the destination has; undefined if the destination has all of it. */
async function joinAttachment<Copied extends Image>(
  image: Copied,
  tag: string,
  destination: ContentStore,
): Promise<Copied | undefined> {
  const own = image.manifests.get(image.root.digest);
  const stored = own && (await readStored(tag, destination));
  if (!stored) return image;
  if (stored.descriptor.digest === image.root.digest) return { ...image, tags: [] };
  const field = isIndex(image.root) ? 'manifests' : 'layers';
  const [theirs, ours] = [stored, own].map(({ bytes }) => listOf(fieldsOf(parseJson(bytes.toString()))[field]));
  const there = await Promise.all((theirs ?? []).map((entry) => destination.exists(readDescriptor(entry))));
  const kept = (theirs ?? []).filter((_, index) => there[index]);
  const keptKeys = new Set(kept.map(keyOf));
  const added = (ours ?? []).filter((entry) => !keptKeys.has(keyOf(entry)));
  if (added.length === 0) return undefined;
  // A list has no layers, so it is not joined with a manifest.
  if (kept.length === 0) return image;
  const source = new Overlay(image.source.name, image.source);
  const entries = [...kept, ...added];
  const value = fieldsOf(parseJson(stored.bytes.toString()));
  const joined =
    field === 'manifests' ? { ...value, manifests: entries } : { ...value, ...describeLayers(entries, source) };
  const bytes = Buffer.from(JSON.stringify(joined));
  const root = source.add(stored.descriptor.mediaType, bytes);
  const manifest = parseManifest(bytes, `${tag} in ${destination.name}`);
  return {
    ...image,
    source,
    root,
    manifests: new Map([...image.manifests, [root.digest, { descriptor: root, bytes, manifest }]]),
  };
}

/** Reads what has a tag; undefined if there is nothing that can be read. */
async function readStored(tag: string, destination: ContentStore): Promise<StoredManifest | undefined> {
  try {
    const descriptor = await destination.resolve(tag);
    const bytes = await readContent(destination, descriptor);
    return { descriptor, bytes, manifest: parseManifest(bytes, `${tag} in ${destination.name}`) };
  } catch (error) {
    if (isPluginError(error, 'not-found') || isPluginError(error, 'invalid-manifest')) return undefined;
    throw error;
  }
}

/** Makes the layers of a manifest, with a configuration for them as cosign writes it. */
function describeLayers(layers: readonly Fields[], source: Overlay): Fields {
  const diffIds = layers.map(({ digest }) => digest);
  const config = { architecture: '', os: '', config: {}, rootfs: { type: 'layers', diff_ids: diffIds } };
  return {
    layers,
    config: source.add('application/vnd.oci.image.config.v1+json', Buffer.from(JSON.stringify(config))),
  };
}

/** One payload may have several signatures, each in the annotations of a layer. */
function keyOf({ digest, annotations }: Fields): string {
  return `${String(digest)} ${JSON.stringify(Object.entries(fieldsOf(annotations)).sort())}`;
}

function readDescriptor({ mediaType, digest, size }: Fields): Descriptor {
  const descriptor = {
    mediaType: String(mediaType),
    digest: String(digest) as Descriptor['digest'],
    size: Number(size),
  };
  return isManifest(descriptor) ? descriptor : { ...descriptor, mediaType: 'application/octet-stream' };
}
