import type { ReleaseSource } from '../bundle/create/releaseSource.ts';
import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import { importImages } from '../cluster/imageStream.ts';
import { formatReference } from '../content/oci/reference.ts';
import type { SignedRelease } from '../release/load.ts';
import { namedImages } from './images.ts';
import type { MirroringAccess, MirroringRequest } from './request.ts';

/** The inputs of an import. */
interface ImportRun {
  readonly request: MirroringRequest;
  readonly access: MirroringAccess;
  readonly source: ReleaseSource;
  readonly signed: SignedRelease;
  readonly context: Context;
}

/** Has the cluster import the images of a release into an image stream, and returns their number. */
export async function importRelease(
  stream: string,
  { request, access, source, signed, context }: ImportRun,
): Promise<number> {
  if (source.isLocal) {
    throw new PluginError('usage', 'an image stream needs a release in a registry: the cluster fetches the images');
  }
  const images = namedImages(signed.release, request.skipReleaseImage).map(([tag, reference]) => ({
    tag,
    pullspec: formatReference(reference),
  }));
  // The default of oc for this request, because the cluster reads manifests before it responds.
  using cluster = await access.openCluster('3m');
  const { insecure, dryRun } = request;
  await importImages(cluster, { stream, images, insecure, dryRun: dryRun !== undefined }, context);
  return images.length;
}
