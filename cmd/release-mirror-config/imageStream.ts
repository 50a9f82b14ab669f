import type { ReleaseSource } from '../../lib/bundle/create/releaseSource.ts';
import { importImages } from '../../lib/kubernetes/imageStream.ts';
import { PluginError } from '../../lib/errors.ts';
import { formatReference } from '../../lib/oci/reference.ts';
import type { SignedRelease } from '../../lib/release/load.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import type { CommandSession } from '../cli/command.ts';
import { namedImages } from './images.ts';
import type { MirrorArguments } from './request.ts';

/** Has the cluster import the images of a release into an image stream, and tells how many those were. */
export async function importRelease(
  stream: string,
  { release }: SignedRelease,
  { isLocal }: ReleaseSource,
  args: MirrorArguments,
  { context, environment }: CommandSession,
): Promise<number> {
  if (isLocal) {
    throw new PluginError('usage', '--to-image-stream needs a release in a registry: the cluster fetches it itself');
  }
  const images = namedImages(release, args.skipReleaseImage).map(([tag, reference]) => ({
    tag,
    pullspec: formatReference(reference),
  }));
  // As oc has it: the cluster reads manifests before it answers.
  const requestTimeout = args.requestTimeout ?? '3m';
  const options = { ...args, certificateAuthority: undefined, requestTimeout };
  const cluster = await openCluster(options, environment, context);
  try {
    const { insecure, dryRun } = args;
    await importImages(cluster, { stream, images, insecure, dryRun: dryRun !== 'none' }, context);
    return images.length;
  } finally {
    cluster.close();
  }
}
