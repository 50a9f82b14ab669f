import type { Digest } from '../../oci/digest.ts';
import type { Reference } from '../../oci/reference.ts';
import type { ContentSource } from '../../store/store.ts';
import type { Place, Target } from './destination.ts';
import type { ImageGraph } from '../../store/imageGraph.ts';

/** An image to mirror. */
export interface MirrorImage {
  readonly name: string;
  readonly digest: Digest;
  readonly source: ContentSource;
  /** Where in a registry the source is; undefined for one that is somewhere else. */
  readonly reference?: Reference | undefined;
  readonly target: Target;
  /** Whether it is the image of a release: it is copied after all others. */
  readonly isRelease?: boolean;
}

/** The images for one repository, read but for their blobs. */
export interface MirrorGroup {
  readonly place: Place;
  readonly images: readonly { readonly image: MirrorImage; readonly graph: ImageGraph }[];
}
