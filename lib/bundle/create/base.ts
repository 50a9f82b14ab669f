import { parseAttachmentTag, type Digest, formatReference, parseReference, type Reference } from '#content/oci';
import type { Context } from '#context';
import { asFailure, PluginError } from '#errors';
import { findRelease } from '#release/load';
import { isReadForStreams } from '#release/payload';
import { readPayload } from '#release/release';
import type { Architecture } from '#release/version';
import { listImages } from '../metadata/images.ts';
import type { BlobRecord, BundleBase } from '../metadata/metadata.ts';
import { type Bundle, entryKindOf } from '../open/bundle.ts';
import { openBundle } from '../open/open.ts';
import { gatherContents, type Contents } from './contents.ts';
import type { ReleaseProvider } from './releaseProvider.ts';

/** The base of a delta bundle: a bundle or mirror directory, or a release whose manifests list its blobs. */
export type BaseRequest =
  | { readonly path: string }
  | { readonly version: string; readonly arch: Architecture; readonly repository: string }
  | HeldImages;

/** The images that all nodes of a site have, by digest, with the release that it runs. */
export interface HeldImages {
  readonly version: string;
  readonly arch: string;
  readonly release: string;
  readonly images: readonly string[];
}

/**
 * The content that a delta bundle leaves out: all blobs of a base release, or the blobs that the nodes of a site have.
 */
export interface Base extends Omit<BundleBase, 'blobs' | 'images'> {
  readonly blobs: ReadonlySet<Digest>;
  /** The images of a site, with the blobs of each. */
  readonly images?: ReadonlyMap<string, ReadonlySet<Digest>>;
}

/**
 * Finds the blobs of a base: all blobs of a bundle (for a delta bundle, also those of its own base), or all blobs of
 * the images of a release. Throws `usage` if the base is a requested release itself, and the errors of the stores.
 */
export async function readBase(
  request: BaseRequest,
  references: readonly Reference[],
  provider: ReleaseProvider,
  context: Context,
): Promise<Base> {
  const base = await readAny(request, provider, context);
  if (references.some(({ digest = '' }) => base.release.endsWith(`@${digest}`))) {
    throw new PluginError('usage', `the base is ${base.version}, a release of the delta bundle itself`, {
      hint: 'Give the version that the cluster runs now, or a bundle of it.',
      settings: ['base'],
    });
  }
  return base;
}

/**
 * Removes the blobs that a base has from some contents, and returns both. Keeps two small kinds, so that a delta bundle
 * can be checked without its base: the payloads of sigstore signatures, and the configurations of operating system
 * images. Returns no base if a site has none of the blobs.
 */
export function subtractBase(contents: Contents, base: Base | undefined): { contents: Contents; leftOut?: BundleBase } {
  if (!base) return { contents };
  const payloads = new Set(
    [...contents.tags].flatMap(([tag, digest]) =>
      parseAttachmentTag(tag)?.kind === 'signature'
        ? (contents.manifests.get(digest)?.manifest.layers ?? []).map((layer) => layer.digest)
        : [],
    ),
  );
  const configs = new Set([...contents.manifests.values()].map(({ manifest }) => manifest.config?.digest));
  const { same = [], other = [] } = Object.groupBy(contents.blobs, ([digest, { images }]) => {
    const isConfig = configs.has(digest) && [...images].some(({ name }) => isReadForStreams(name));
    return base.blobs.has(digest) && !payloads.has(digest) && !isConfig ? 'same' : 'other';
  });
  const blobs = same.map(([, { descriptor }]) => ({ digest: descriptor.digest, size: descriptor.size }));
  const { images, ...about } = base;
  if (images && blobs.length === 0) return { contents };
  const held = images && { images: chooseImages(images, blobs) };
  return { contents: { ...contents, blobs: new Map(other) }, leftOut: { ...about, blobs, ...held } };
}

/** Returns the images with some of the blobs, in the order of their names. */
function chooseImages(
  images: ReadonlyMap<string, ReadonlySet<Digest>>,
  blobs: readonly BlobRecord[],
): Record<string, Digest[]> {
  const chosen = [...images].map(([image, own]): [string, Digest[]] => [
    image,
    blobs.flatMap(({ digest }) => (own.has(digest) ? [digest] : [])),
  ]);
  return Object.fromEntries(chosen.filter(([, own]) => own.length > 0).sort());
}

function readAny(request: BaseRequest, provider: ReleaseProvider, context: Context): Promise<Base> {
  if ('path' in request) return readBundle(request.path, context);
  return 'images' in request ? readHeld(request, provider, context) : readRelease(request, provider, context);
}

/** Reads the manifests of images at a site. Skips unreadable images, such as images of the site itself. */
async function readHeld({ images, ...base }: HeldImages, provider: ReleaseProvider, context: Context): Promise<Base> {
  context.log('info', `reading the manifests of ${images.length} images that the site has`);
  const blobsByImage = new Map<string, ReadonlySet<Digest>>();
  const read = async (image: string): Promise<void> => {
    const { digest, ...reference } = parseReference(image);
    const references = digest ? [{ name: image, tag: '', reference: { ...reference, digest } }] : [];
    try {
      const contents = await gatherContents(references, (each) => provider.sourceOf(each), {
        onEvent: () => undefined,
      });
      blobsByImage.set(image, new Set(contents.blobs.keys()));
    } catch (error) {
      context.log('debug', `${image} of the site is not compared: ${asFailure(error).message}`);
    }
  };
  await Promise.all(images.map(read));
  return { ...base, images: blobsByImage, blobs: new Set([...blobsByImage.values()].flatMap((blobs) => [...blobs])) };
}

async function readBundle(path: string, context: Context): Promise<Base> {
  await using bundle = await openBundle(path, context);
  const { version, arch, release, base } = bundle.metadata;
  const others = base?.blobs.map(({ digest }) => digest) ?? [];
  return { version, arch, release, blobs: new Set([...listBlobs(bundle), ...others]) };
}

/** Returns the digests of the blobs in the file of a bundle. */
export function listBlobs({ files }: Pick<Bundle, 'files'>): Digest[] {
  return files.flatMap((file) => {
    const place = entryKindOf(file);
    return place.kind === 'blob' ? [place.digest] : [];
  });
}

async function readRelease(
  request: Exclude<BaseRequest, { path: string } | HeldImages>,
  provider: ReleaseProvider,
  context: Context,
): Promise<Base> {
  const sourceOf = (reference: Reference): ReturnType<ReleaseProvider['sourceOf']> => provider.sourceOf(reference);
  const { reference, descriptor, source } = await findRelease(request, sourceOf);
  context.log('info', `reading the manifests of the base ${formatReference(reference)}`);
  const release = await readPayload(source, descriptor, request, context);
  const { blobs } = await gatherContents(listImages([{ release }], []).flat(), sourceOf, context);
  const { version, arch, pullspec } = release;
  return { version, arch, release: pullspec, blobs: new Set(blobs.keys()) };
}
