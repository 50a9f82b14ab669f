import type { ReleaseSource } from '../bundle/create/releaseSource.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { importImages } from '../cluster/imageStream.ts';
import { formatReference } from '../content/oci/reference.ts';
import type { SignedRelease } from '../release/load.ts';
import { namedImages } from './images.ts';
import type { MirroringAccess, MirroringRequest } from './request.ts';

/** Has the cluster import the images of a release into an image stream, and returns their number. */
export async function importRelease(
  stream: string,
  { skipReleaseImage, insecure, dryRun }: Pick<MirroringRequest, 'skipReleaseImage' | 'insecure' | 'dryRun'>,
  { release }: Pick<SignedRelease, 'release'>,
  { isLocal }: Pick<ReleaseSource, 'isLocal'>,
  { openCluster }: Pick<MirroringAccess, 'openCluster'>,
  context: Context,
): Promise<number> {
  if (isLocal) {
    throw new PluginError('usage', 'an image stream needs a release in a registry: the cluster fetches the images');
  }
  const images = namedImages(release, skipReleaseImage).map(([tag, reference]) => ({
    tag,
    pullspec: formatReference(reference),
  }));
  // The default of oc for this request, because the cluster reads manifests before it responds.
  using cluster = await openCluster('3m');
  await importImages(cluster, { stream, images, insecure, dryRun: dryRun !== undefined }, context);
  return images.length;
}
