import type { Context } from '../../context.ts';
import { asFailure } from '../../errors.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { readStreamsOf, type OSImageStreams, type OSImageStreamSet } from '../../release/osImageStreams.ts';
import { digestIn, repositoryIn } from '../../content/oci/reference.ts';
import { readPayload, type Release } from '../../release/release.ts';
import type { SourceCommit, Provenance } from '../../release/provenance.ts';
import type { Bundle } from '../bundle.ts';
import { splitReleases } from '../metadata.ts';
import { inspectBundle, type InspectedImage, type Inspection } from './inspect.ts';

/** An image with the source that its release names. */
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
