import { CopyFailure, describeFailures } from '../../copy/copyFailure.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { attachmentTag } from '../../oci/attachment.ts';
import { childrenOf, isManifest, parseManifest, type Descriptor, type Manifest } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import { formatReference, type Reference } from '../../oci/reference.ts';
import { readContent, type ContentSource } from '../../store/store.ts';
import type { BundleImage } from '../images.ts';

/** A manifest with its bytes. */
export interface StoredManifest {
  readonly descriptor: Descriptor;
  readonly bytes: Buffer;
  readonly manifest: Manifest;
}

/** A configuration or layer, with the images that need it and the repositories that have it. */
export interface StoredBlob {
  readonly descriptor: Descriptor;
  readonly images: Set<BundleImage>;
}

/** Everything that some images consist of, each thing once, in an order that depends on the images alone. */
export interface Contents {
  readonly images: readonly BundleImage[];
  readonly manifests: ReadonlyMap<Digest, StoredManifest>;
  readonly blobs: ReadonlyMap<Digest, StoredBlob>;
  /** The tags of the bundle’s repository, those of sigstore attachments included. */
  readonly tags: ReadonlyMap<string, Digest>;
}

/**
 * Fetches every manifest of some images, those of their sigstore attachments included, and lists what they point to.
 * All images are tried; those that failed are named in one error.
 */
export async function gatherContents(
  images: readonly BundleImage[],
  sourceOf: (reference: Reference) => ContentSource,
): Promise<Contents> {
  const fetched = new Map<Digest, Promise<StoredManifest>>();

  const fetchTree = async (source: ContentSource, descriptor: Descriptor): Promise<void> => {
    if (fetched.has(descriptor.digest)) return;
    const stored = fetchManifest(source, descriptor);
    fetched.set(descriptor.digest, stored);
    const { manifest } = await stored;
    await Promise.all(manifest.manifests.map((child) => fetchTree(source, child)));
  };

  const fetchImage = async (reference: BundleImage['reference']): Promise<ReadonlyMap<string, Digest>> => {
    const source = sourceOf(reference);
    await fetchTree(source, await source.resolve(reference.digest));
    const own = await listManifests(reference.digest, fetched);
    const found = (await Promise.all(own.map((digest) => resolveAttachment(source, digest)))).flatMap(
      (entry) => entry ?? [],
    );
    await Promise.all(found.map(({ descriptor }) => fetchTree(source, descriptor)));
    return new Map(found.map(({ tag, descriptor }) => [tag, descriptor.digest]));
  };
  // Several components may be the same image.
  const attachments = new Map<string, Promise<ReadonlyMap<string, Digest>>>();
  const tasks = images.map(({ name, reference }) => {
    const key = formatReference(reference);
    const task = attachments.get(key) ?? fetchImage(reference);
    attachments.set(key, task);
    return { names: [name], digest: reference.digest, source: sourceOf(reference).name, task };
  });
  await allOrReport(tasks, images.length);

  const manifests = new Map<Digest, StoredManifest>();
  for (const [digest, stored] of fetched) manifests.set(digest, await stored);
  const attached = await Promise.all(tasks.map(({ task }) => task));
  return orderContents(images, attached, manifests);
}

/** Something that is being brought from a source. */
export interface Bringing {
  /** The images that need it. */
  readonly names: readonly string[];
  readonly digest: Digest;
  /** The name of the source. */
  readonly source: string;
  readonly task: Promise<unknown>;
}

/**
 * Waits for all; then throws one error that says of everything that failed which images need it, what it is and what the source
 * said (once where that is the same), `partial` where that is more than one thing. `total` is how many images there are.
 */
export async function allOrReport(all: readonly Bringing[], total: number): Promise<void> {
  const results = await Promise.allSettled(all.map(({ task }) => task));
  const failures = new Map<string, { failure: CopyFailure; names: Set<string> }>();
  for (const [index, { names, digest, source }] of all.entries()) {
    const result = results[index];
    if (result?.status !== 'rejected') continue;
    const error: unknown = result.reason;
    if (!isPluginError(error) || ['interrupted', 'disk-full', 'not-writable'].includes(error.code)) throw error;
    // A registry that went down says the same of everything that is left.
    const key = `${source} ${error.code} ${error.message}`;
    const known = failures.get(key);
    if (known) for (const name of names) known.names.add(name);
    else failures.set(key, { failure: new CopyFailure('source', source, digest, error), names: new Set(names) });
  }
  if (failures.size === 0) return;
  throw describeFailures(new Map([...failures.values()].map(({ failure, names }) => [failure, [...names]])), total);
}

async function fetchManifest(source: ContentSource, descriptor: Descriptor): Promise<StoredManifest> {
  const bytes = await readContent(source, descriptor);
  const manifest = parseManifest(bytes, `${descriptor.digest} in ${source.name}`);
  return { descriptor: { ...descriptor, mediaType: manifest.mediaType }, bytes, manifest };
}

async function listManifests(root: Digest, fetched: ReadonlyMap<Digest, Promise<StoredManifest>>): Promise<Digest[]> {
  const stored = await fetched.get(root);
  const below = await Promise.all(
    (stored?.manifest.manifests ?? []).map(({ digest }) => listManifests(digest, fetched)),
  );
  return [root, ...below.flat()];
}

async function resolveAttachment(
  source: ContentSource,
  digest: Digest,
): Promise<{ tag: string; descriptor: Descriptor } | undefined> {
  const tag = attachmentTag(digest);
  try {
    return { tag, descriptor: await source.resolve(tag) };
  } catch (error) {
    if (isPluginError(error, 'not-found')) return undefined;
    throw error;
  }
}

function orderContents(
  images: readonly BundleImage[],
  attachments: readonly ReadonlyMap<string, Digest>[],
  fetched: ReadonlyMap<Digest, StoredManifest>,
): Contents {
  const manifests = new Map<Digest, StoredManifest>();
  const blobs = new Map<Digest, StoredBlob>();
  const tags = new Map<string, Digest>();
  const visit = (image: BundleImage, digest: Digest): void => {
    const stored = fetched.get(digest);
    if (!stored) return;
    manifests.set(digest, stored);
    for (const child of childrenOf(stored.manifest)) {
      if (isManifest(child) && fetched.has(child.digest)) {
        visit(image, child.digest);
        continue;
      }
      const blob = blobs.get(child.digest) ?? { descriptor: child, images: new Set() };
      if (blob.descriptor.size !== child.size) {
        throw new PluginError(
          'invalid-manifest',
          `${image.name} (${formatReference(image.reference)}) gives ${child.digest} a size of ${child.size} bytes, another image ${blob.descriptor.size}`,
        );
      }
      blobs.set(child.digest, blob);
      blob.images.add(image);
    }
  };
  for (const [index, image] of images.entries()) {
    tags.set(image.tag, image.reference.digest);
    visit(image, image.reference.digest);
    for (const [tag, digest] of attachments[index] ?? []) {
      tags.set(tag, digest);
      visit(image, digest);
    }
  }
  return { images, manifests, blobs, tags };
}
