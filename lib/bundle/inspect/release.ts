import { type Digest, digestIn, repositoryIn, isIndex, parseJson } from '#content/oci';
import { readContent, readImageManifest, type ContentSource } from '#content/store';
import type { Context } from '#context';
import { asFailure, isPluginError } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { readStreamsOf, type OSImageStreams, type OSImageStreamSet } from '#release/payload';
import { readPayload, type Release, type SourceCommit, type Provenance } from '#release/release';
import { splitReleases } from '../metadata/metadata.ts';
import type { Bundle } from '../open/bundle.ts';
import { inspectBundle, type InspectedImage, type Inspection } from './inspect.ts';

/** An image, with the commit that its release names as its source, not verified. */
export interface SourcedImage extends InspectedImage {
  readonly source?: SourceCommit;
}

/** The contents of a bundle, and the origin of its releases according to their payloads. Nothing is verified. */
export interface ReleaseInspection extends Inspection, Pick<Provenance, 'versions' | 'created'> {
  /** The URLs of the advisories of the releases. */
  readonly errata: readonly string[];
  readonly images: readonly SourcedImage[];
  /** The operating system streams of the releases that need them described in the cluster; absent if none does. */
  readonly osImageStreams?: readonly InspectedStreams[];
}

/**
 * Lists the contents of a bundle as inspectBundle does, with the origin of its releases: versions and time are those of
 * the last one. Reads the payloads too. A payload that is missing or corrupt has no origin.
 */
export async function inspectRelease(bundle: Bundle, context: Context): Promise<ReleaseInspection> {
  const inspection = await inspectBundle(bundle, context);
  const sources = new Map<Digest, SourceCommit>();
  const errata = new Set<string>();
  const needed: OSImageStreams[] = [];
  let last: Provenance | undefined;
  for (const { release: pullspec } of splitReleases(bundle.metadata)) {
    const release = await readRelease(bundle, pullspec, context);
    const streams = release && (await readStreamsOf(release, () => bundle.content, context));
    if (streams) needed.push(streams);
    last = release?.provenance;
    if (last?.errata !== undefined) errata.add(last.errata);
    for (const [name, { digest }] of release?.images ?? []) {
      const source = last?.sources.get(name);
      if (source) sources.set(digest, source);
    }
  }
  const images = inspection.images.map((image) => {
    const source = sources.get(image.digest);
    return source ? { ...image, source } : image;
  });
  const created = last?.created;
  const osImageStreams = needed.map((streams) => measureStreams(streams, images));
  return {
    ...inspection,
    created,
    versions: last?.versions ?? {},
    errata: [...errata],
    images,
    ...(osImageStreams.length > 0 && { osImageStreams }),
  };
}

async function readRelease({ content }: Bundle, pullspec: string, context: Context): Promise<Release | undefined> {
  try {
    const descriptor = await content.resolve(digestIn(pullspec));
    return await readPayload(content, descriptor, { repository: repositoryIn(pullspec) }, context);
  } catch (error) {
    context.log('debug', `${pullspec}: ${asFailure(error).message}`);
    return undefined;
  }
}

/** The operating system streams of a release, with their sizes. */
interface InspectedStreams extends OSImageStreams {
  readonly availableStreams: readonly (OSImageStreamSet & {
    /** The size in bytes of the content that only its images need, each by itself. */
    readonly unique: number;
  })[];
}

/** Adds the sizes of the images in a bundle to the streams of a release. */
function measureStreams(streams: OSImageStreams, images: readonly InspectedImage[]): InspectedStreams {
  const sizeOf = (pullspec: string): number => images.find(({ digest }) => pullspec.endsWith(digest))?.unique ?? 0;
  const availableStreams = streams.availableStreams.map((each) => {
    return { ...each, unique: sizeOf(each.osImage) + sizeOf(each.osExtensionsImage) };
  });
  return { ...streams, availableStreams };
}

/** An image of a bundle with its license. */
export interface InventoryImage extends SourcedImage {
  /** The license that the labels of the image name, not verified. */
  readonly license?: string;
}

/** The content of a bundle for a bill of materials. */
export interface BundleInventory extends ReleaseInspection {
  readonly images: readonly InventoryImage[];
}

/** The labels that name a license, and the largest configuration of an image in bytes. */
const licenseLabels = ['org.opencontainers.image.licenses', 'License', 'license'];
const configLimit = 1024 * 1024;

/** Lists the images of a bundle with their sources and licenses. Reads manifests, configurations and the payloads. */
export async function readBundleInventory(bundle: Bundle, context: Context): Promise<BundleInventory> {
  const inspection = await inspectRelease(bundle, context);
  const listed = inspection.images.map(async (image): Promise<InventoryImage> => {
    const license = await readLicense(bundle.content, image.digest);
    return license ? { ...image, license } : image;
  });
  return { ...inspection, images: await Promise.all(listed) };
}

/** Reads the license in the labels of an image; of a manifest list, those of its first image. */
async function readLicense(content: ContentSource, digest: Digest): Promise<string | undefined> {
  try {
    const manifest = await readImageManifest(content, await content.resolve(digest));
    const [first] = manifest.manifests;
    const { config } = isIndex(manifest) && first ? await readImageManifest(content, first) : manifest;
    if (!config || !(await content.exists(config))) return undefined;
    const labels = fieldsAt(
      parseJson((await readContent(content, config, configLimit)).toString()),
      'config',
      'Labels',
    );
    const license = licenseLabels.map((label) => textOf(labels[label])).find((text) => text !== undefined);
    return license?.replace(/\p{C}/gu, ' ').trim().slice(0, 200);
  } catch (error) {
    // Verification reports missing and corrupt content.
    if (!(error instanceof SyntaxError) && (!isPluginError(error) || error.code === 'interrupted')) throw error;
    return undefined;
  }
}
