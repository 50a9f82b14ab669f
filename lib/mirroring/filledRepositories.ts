import type { Image } from '../content/copy/copy.ts';
import type { Descriptor } from '../content/oci/descriptor.ts';
import type { Digest } from '../content/oci/digest.ts';
import { blobsOf } from '../content/store/imageGraph.ts';
import type { Place } from './destination.ts';

/** The repositories that a command filled with images, and their blobs: other repositories mount these. */
export class FilledRepositories {
  readonly #repositories: { readonly place: Place; readonly blobs: ReadonlySet<Digest> }[] = [];

  /** Notes that a repository has images with all their blobs. */
  add(place: Place, images: readonly Pick<Image, 'manifests'>[]): void {
    const blobs = images.flatMap(({ manifests }) => blobsOf(manifests.values()));
    this.#repositories.push({ place, blobs: new Set(blobs.map(({ digest }) => digest)) });
  }

  /** Returns the other repositories with a blob in the same registry or directory. */
  having({ digest }: Pick<Descriptor, 'digest'>, place: Place): string[] {
    return this.#repositories
      .filter((each) => each.blobs.has(digest) && hostOf(each.place) === hostOf(place))
      .map((each) => each.place.repository)
      .filter((repository) => repository !== place.repository);
  }
}

function hostOf(place: Place): string {
  return place.kind === 'registry' ? `registry ${place.registry}` : `directory ${place.root}`;
}
