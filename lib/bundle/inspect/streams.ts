import type { OSImageStreams, OSImageStreamSet } from '../../release/osImageStreams.ts';
import type { InspectedImage } from './inspect.ts';

/** The operating system streams of a release, with their sizes. */
export interface InspectedStreams extends OSImageStreams {
  readonly availableStreams: readonly (OSImageStreamSet & {
    /** The size in bytes of the content that only its images need, each by itself. */
    readonly unique: number;
  })[];
}

/** Adds the sizes of the images in a bundle to the streams of a release. */
export function measureStreams(streams: OSImageStreams, images: readonly InspectedImage[]): InspectedStreams {
  const sizeOf = (pullspec: string): number => images.find(({ digest }) => pullspec.endsWith(digest))?.unique ?? 0;
  const availableStreams = streams.availableStreams.map((each) => {
    return { ...each, unique: sizeOf(each.osImage) + sizeOf(each.osExtensionsImage) };
  });
  return { ...streams, availableStreams };
}
