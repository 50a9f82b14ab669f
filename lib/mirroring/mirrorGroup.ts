import type { Digest } from '../content/oci/digest.ts';
import type { Reference } from '../content/oci/reference.ts';
import type { ContentSource } from '../content/store/store.ts';
import type { Place, Target } from './destination.ts';
import type { ImageGraph } from '../content/store/imageGraph.ts';

/** An image to mirror. */
export interface MirrorImage {
  readonly name: string;
  readonly digest: Digest;
  readonly source: ContentSource;
  /** The source in a registry; undefined for another source. */
  readonly reference?: Reference;
  readonly target: Target;
  /** Whether it is a release image, which is copied after all others. */
  readonly isRelease?: boolean;
}

/** The images for one repository. Everything except their blobs has been read. */
export interface MirrorGroup {
  readonly place: Place;
  readonly images: readonly { readonly image: MirrorImage; readonly graph: ImageGraph }[];
}
