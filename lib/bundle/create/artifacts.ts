import { isContainerImage } from '../../content/oci/descriptor.ts';
import { walkManifests, type StoredManifests } from '../../content/store/imageGraph.ts';
import type { ExtraImage } from '../images.ts';

/**
 * Returns the names of the extra images that are OCI artifacts, such as charts or models. No image store takes them: a
 * bundle only carries them to a registry.
 */
export function listArtifacts(images: readonly ExtraImage[], manifests: StoredManifests): string[] {
  const manifestOf = (digest: ExtraImage['reference']['digest']) => manifests.get(digest)?.manifest;
  const isImage = ({ reference }: ExtraImage): boolean =>
    [...walkManifests(reference.digest, manifestOf)].some(({ manifest }) => manifest && isContainerImage(manifest));
  return images.filter((image) => !isImage(image)).map(({ name }) => name);
}
