import type { Context } from '../context.ts';
import { fetchFile } from '../http/fetchFile.ts';
import { Registries } from '../registry/registries.ts';
import { resolveUpdatePath } from '../release/graph/updatePath.ts';
import { readClusterUpdates } from './clusterUpdates.ts';
import type { MirroringAccess, MirroringRequest, ReleaseChoice } from './request.ts';

/**
 * Lists the releases of a choice in the order in which to mirror them. Of a path of updates these are all releases on the
 * shortest supported path, both ends included. Throws the errors of resolveUpdatePath.
 */
export async function listReleases(
  { releases, path }: ReleaseChoice,
  { arch, graphUrl }: Pick<MirroringRequest, 'arch' | 'graphUrl'>,
  access: MirroringAccess,
  context: Context,
): Promise<readonly string[]> {
  if (!path) return releases;
  const registries = new Registries(access.registries, context);
  try {
    const cluster = graphUrl === undefined ? await readClusterUpdates(access, context) : undefined;
    const options = {
      ...{ graphUrl, cluster },
      fetchFile: (url: URL, limit: number) => fetchFile(registries.connections, url, limit, context),
    };
    const { steps, channels } = await resolveUpdatePath(path, arch, options, context);
    const versions = steps.map(({ version }) => version).join(' → ');
    context.log('info', `the shortest path of updates in ${channels.join(', ')}: ${versions}`);
    return steps.map(({ pullspec }) => pullspec);
  } finally {
    await registries.close();
  }
}
