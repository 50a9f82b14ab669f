import { looksPacked } from '#content/archive';
import {
  copyImages,
  type Image,
  keepAttachments,
  copyReleasesLast,
  type CopyGuard,
  type OrderedImage,
  CopyTally,
} from '#content/copy';
import { attachedTo, attachmentName, isContainerImage, type Descriptor, type Digest } from '#content/oci';
import { blobsOf, walkManifests, type ContentSource, type ContentStore } from '#content/store';
import type { Context } from '#context';
import { isPluginError, PluginError, withHint, nameSome } from '#errors';
import { gatherContents, warnOfImages, type Contents } from './create/contents.ts';
import type { BundleImage } from './metadata/images.ts';
import { listSignedImages } from './metadata/originalNames.ts';
import type { Bundle } from './open/bundle.ts';
import type { SignedBundle } from './open/signedBundle.ts';

/** Options of pushBundle. */
export interface PushOptions {
  /** The number of parallel transfers. */
  readonly concurrency: number;
  /** Other repositories of the registry that may already have blobs. Such blobs are mounted. */
  readonly mountFrom: readonly string[];
  readonly guard?: CopyGuard;
  /** Only find what the destination lacks: nothing is uploaded, mounted or tagged. */
  readonly dryRun?: boolean;
}

/** The result of pushBundle. That of a dry run has the blobs and bytes to upload. */
export interface PushResult {
  /** The release image at the destination, by digest; of several releases, the last one. */
  readonly release: string;
  /** All release images at the destination in the order of the updates, if there are several. */
  readonly releases?: readonly string[];
  readonly images: number;
  readonly attachments: number;
  readonly tags: number;
  readonly blobs: { readonly uploaded: number; readonly mounted: number; readonly skipped: number };
  /** The size of the uploaded blobs in bytes. */
  readonly bytes: number;
  /** The images by digest that the release signature does not cover. */
  readonly extraImages: readonly string[];
}

/**
 * Pushes all images of a bundle into one repository: the releases, their components, the extra images and the sigstore
 * attachments, with the tags of the signed payloads. Skips existing content. Reads and checks all manifests first. A
 * corrupt blob fails only the images that need it, and the releases, which are tagged last. At the end resolves every
 * tag, because some registries lose content. Throws `incomplete` for missing tags, and the errors of copyImages.
 */
export async function pushBundle(
  bundle: Bundle,
  signed: SignedBundle,
  destination: ContentStore,
  options: PushOptions,
  context: Context,
): Promise<PushResult> {
  const images = listSignedImages(bundle, signed.releases).flat();
  const gathered = await advise(
    bundle,
    gatherContents(images, () => bundle.content, context),
  );
  const hidden = await advise(bundle, findPackedAttachments(gathered, bundle.content));
  warnOfImages([...(gathered.notAttached ?? []), ...hidden], context);
  const contents = { ...gathered, tags: new Map([...gathered.tags].filter(([tag]) => !hidden.includes(tag))) };
  const listed = listCopies(images, contents, signed, bundle);
  // A registry that is unreachable or denies access fails here once, instead of for every image.
  for (const { root } of listed.slice(0, 1)) await destination.exists(root);
  const copies = await keepAttachments(listed, destination);
  const result = describeCopies(listed, signed, destination.name);
  if (options.dryRun) return { ...result, ...(await findMissing(copies, destination)) };
  const tally = new CopyTally([copies], context.onEvent);
  const { concurrency, mountFrom, guard } = options;
  const counting = { ...context, onEvent: tally.listenTo(0) };
  const copy = (batch: readonly Image[], isEmpty: boolean): Promise<void> =>
    copyImages(batch, destination, { concurrency, isEmpty, mountFrom: () => mountFrom }, counting);
  await advise(bundle, copyReleasesLast([{ store: destination, images: copies, copy }], guard));
  await confirmTags(copies, destination, context);
  await destination.close();
  const { blobs, bytes } = tally.counts();
  return { ...result, blobs: { uploaded: blobs.copied, mounted: blobs.mounted, skipped: blobs.skipped }, bytes };
}

function describeCopies(
  copies: readonly OrderedImage[],
  signed: SignedBundle,
  destination: string,
): Omit<PushResult, 'blobs' | 'bytes'> {
  const distinct = copies.filter(({ isAttachment }) => isAttachment !== true).length;
  const releases = signed.releases.map(({ release }) => `${destination}@${release.digest}`);
  return {
    release: `${destination}@${signed.release.digest}`,
    ...(releases.length > 1 && { releases }),
    images: distinct,
    attachments: copies.length - distinct,
    tags: new Set(copies.flatMap(({ tags = [] }) => tags)).size,
    extraImages: signed.extraImages,
  };
}

/** Counts the blobs that a destination lacks, without those of images that it has. */
async function findMissing(
  copies: readonly Image[],
  destination: ContentStore,
): Promise<Pick<PushResult, 'blobs' | 'bytes'>> {
  const blobsIn = (images: readonly Image[]): Map<Digest, Descriptor> => {
    const manifests = images.flatMap(({ root, manifests: own }) =>
      [...walkManifests(root.digest, (digest) => own.get(digest)?.manifest)].flatMap(
        ({ digest }) => own.get(digest) ?? [],
      ),
    );
    return new Map(blobsOf(manifests).map((blob) => [blob.digest, blob]));
  };
  const presence = await Promise.all(copies.map(({ root }) => destination.exists(root)));
  const candidates = [...blobsIn(copies.filter((_, index) => !presence[index])).values()];
  const present = await Promise.all(candidates.map((blob) => destination.exists(blob)));
  const missing = candidates.filter((_, index) => !present[index]);
  const skipped = blobsIn(copies).size - missing.length;
  return {
    blobs: { uploaded: missing.length, mounted: 0, skipped },
    bytes: missing.reduce((sum, { size }) => sum + size, 0),
  };
}

function listCopies(
  images: readonly BundleImage[],
  contents: Contents,
  { tags, releases }: Pick<SignedBundle, 'tags' | 'releases'>,
  bundle: Bundle,
): OrderedImage[] {
  // Several components may be the same image. It gets the name of the first.
  const names = new Map(images.toReversed().map(({ name, reference }) => [reference.digest, name]));
  const attachments = new Map<Digest, string>();
  for (const [tag, digest] of contents.tags) {
    const subject = attachedTo(tag);
    if (subject && !names.has(digest)) attachments.set(digest, `the ${attachmentName(tag)} of ${subject}`);
  }
  const roots = new Set(releases.map(({ release }) => release.digest));
  const tagsOf = Map.groupBy(new Map([...tags, ...contents.tags]), ([, digest]) => digest);
  return [...names, ...attachments].flatMap(([digest, name]) => {
    const { manifests } = contents;
    const root = manifests.get(digest)?.descriptor;
    const own = (tagsOf.get(digest) ?? []).map(([tag]) => tag);
    const kind = { isAttachment: attachments.has(digest), isRelease: roots.has(digest) };
    return root ? [{ name, source: bundle.content, root, manifests, tags: own, ...kind }] : [];
  });
}

/** Finds attachments whose layers are packed. Some runtimes unpack such layers under any media type. */
async function findPackedAttachments({ tags, manifests }: Contents, content: ContentSource): Promise<string[]> {
  const packedTags: string[] = [];
  for (const [tag, digest] of tags) {
    if (!attachedTo(tag)) continue;
    const below = [...walkManifests(digest, (each) => manifests.get(each)?.manifest)];
    const layers = below.flatMap(({ manifest }) => (manifest && isContainerImage(manifest) ? manifest.layers : []));
    for (const layer of layers) {
      let head = Buffer.alloc(0);
      for await (const chunk of await content.fetch(layer))
        if (head.length < 512) head = Buffer.concat([head, chunk as Buffer]);
      if (!looksPacked(head.subarray(0, 512))) continue;
      packedTags.push(tag);
      break;
    }
  }
  return packedTags;
}

async function confirmTags(copies: readonly Image[], destination: ContentStore, context: Context): Promise<void> {
  const isThere = async ({ digest }: Descriptor, tag: string): Promise<boolean> => {
    try {
      return (await destination.resolve(tag)).digest === digest;
    } catch (error) {
      if (isPluginError(error, 'not-found')) return false;
      if (!isPluginError(error, 'denied') && !isPluginError(error, 'unauthorized')) throw error;
      context.log('debug', `${tag} cannot be checked: ${error.message}`);
      return true;
    }
  };
  const pushed = copies.flatMap(({ root, tags = [] }) => tags.map((tag) => ({ root, tag })));
  const presence = await Promise.all(pushed.map(({ root, tag }) => isThere(root, tag)));
  const missing = pushed.filter((_, index) => !presence[index]).map(({ tag }) => tag);
  if (missing.length === 0) return;
  throw new PluginError('incomplete', `${destination.name} accepted everything, but lacks ${nameSome(missing)}`, {
    hint: 'A cache or a proxy in front of the registry may have answered instead. Push to the registry itself.',
  });
}

/** Adds a hint to errors of a bundle with missing or corrupt content. */
function advise<T>({ path }: Bundle, action: Promise<T>): Promise<T> {
  return action.catch((error: unknown) => {
    const hint = `Copy the bundle again, and push again: existing content is skipped. 'verify' lists every problem of it.`;
    throw withHint(error, path, hint);
  });
}
