import type { Context } from '../context.ts';
import { fetchFile } from '../http/fetchFile.ts';
import { Registries } from '../registry/registries.ts';
import { requirePatch } from '../release/graph/channels.ts';
import { resolveChannelRange, resolveUpdatePath } from '../release/graph/updatePath.ts';
import { readClusterUpdates } from './clusterUpdates.ts';
import { listBundledVersions } from '../bundle/create/releaseSource.ts';
import type { MirroringAccess, MirroringRequest, NamedRelease, ReleaseChoice } from './request.ts';

/**
 * Lists the releases of a choice in the order in which to mirror them. Of a path of updates these are all releases on the
 * shortest supported path, both ends included, and of a bundle all of its releases. Throws the errors of resolveUpdatePath, resolveChannelRange and
 * requirePatch.
 */
export async function listReleases(
  { releases, path, range }: ReleaseChoice,
  { arch, graphUrl, fromDir }: Pick<MirroringRequest, 'arch' | 'graphUrl' | 'fromDir'>,
  access: MirroringAccess,
  context: Context,
): Promise<readonly NamedRelease[]> {
  const minor = fromDir === undefined ? releases.find((release) => /^v?\d+\.\d+$/.test(release)) : undefined;
  if (!path && !range && minor === undefined) return expandBundles(releases, context);
  const registries = new Registries(access.registries, context);
  try {
    const cluster = graphUrl === undefined ? await readClusterUpdates(access, context) : undefined;
    const options = {
      ...{ graphUrl, cluster },
      fetchFile: (url: URL, limit: number) => fetchFile(registries.connections, url, limit, context),
    };
    if (minor !== undefined) await requirePatch(minor, arch ?? cluster?.arch ?? 'x86_64', options, context);
    const found = path
      ? await resolveUpdatePath(path, arch, options, context)
      : range && (await resolveChannelRange(range, arch, options, context));
    if (!found) return await expandBundles(releases, context);
    const { steps, channels } = found;
    const isPath = path !== undefined || range?.shortestPath === true;
    const versions = steps.map(({ version }) => version).join(isPath ? ' → ' : ', ');
    context.log(
      'info',
      `${isPath ? 'the shortest path of updates' : 'the releases'} in ${channels.join(', ')}: ${versions}`,
    );
    return steps.map(({ pullspec }) => ({ release: pullspec }));
  } finally {
    await registries.close();
  }
}

async function expandBundles(releases: readonly string[], context: Context): Promise<NamedRelease[]> {
  const named: NamedRelease[] = [];
  for (const release of releases) {
    const versions = (await listBundledVersions(release, context)) ?? [undefined];
    for (const bundledVersion of versions) named.push({ release, bundledVersion });
  }
  return named;
}
