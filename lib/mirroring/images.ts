import type { ReleaseSource } from '../bundle/create/releaseSource.ts';
import type { MirroredSource } from '../config/mirrorSets.ts';
import type { UpdateServiceOptions } from '../config/updateService.ts';
import { checkInterrupted, type Context } from '../context.ts';
import { collectFailures } from '../failures.ts';
import { ignoring, isPluginError, PluginError } from '../errors.ts';
import { readPem } from '../content/files/smallFile.ts';
import { formatReference, type Reference } from '../content/oci/reference.ts';
import { formatPlace, formatTarget, releaseName, type Destination } from './destination.ts';
import { buildGraphDataImage } from '../release/graph/graphData.ts';
import type { SignedRelease } from '../release/load.ts';
import type { MirrorImage } from './mirrorGroup.ts';
import type { Release } from '../release/release.ts';
import type { FetchFile } from '../content/http/fetchFile.ts';
import { componentTag } from '../release/version.ts';

const graphDataName = 'graph-data';

/**
 * Returns the images of a release by name, with their sources by digest. The release image is first, unless it is
 * skipped.
 */
export function namedImages(release: Release, skipReleaseImage: boolean): (readonly [string, Reference])[] {
  const own = [releaseName, release.reference] as const;
  const components = [...release.images].map(([name, { reference }]) => [name, reference] as const);
  return skipReleaseImage ? components : [own, ...components];
}

/** Lists the images of a release to mirror. */
export async function listMirrorImages(
  { release }: SignedRelease,
  source: ReleaseSource,
  destination: Destination,
  skipReleaseImage: boolean,
  context: Context,
): Promise<MirrorImage[]> {
  const images = namedImages(release, skipReleaseImage).map(async ([name, reference]) => ({
    name,
    digest: reference.digest ?? release.digest,
    target: destination(name, release),
    isRelease: name === releaseName,
    ...(await source.sourceOf(name, reference)),
  }));
  const results = await Promise.allSettled(images);
  checkInterrupted(context.signal);
  const failures = results.flatMap((each) => {
    if (each.status === 'fulfilled') return [];
    if (!isPluginError(each.reason)) throw each.reason as Error;
    return [each.reason];
  });
  if (failures.length > 0) {
    throw collectFailures(failures, {
      title: `${failures.length} of ${images.length} images are not complete`,
      hint: 'Mirror the release to the directory again: only what is missing is fetched.',
    });
  }
  return results.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
}

/** Lists the repositories of a release with their mirrors in registries. Warns if components have repositories of their own. */
export function listMirrors(release: Release, destination: Destination, context: Context): MirroredSource[] {
  const mirrored = namedImages(release, false).flatMap(([name, { registry, repository }]) => {
    const source = formatReference({ registry, repository });
    const { place } = destination(name, release);
    const mirror = formatPlace(place);
    return place.kind === 'registry' && mirror !== source ? [{ source, mirrors: [mirror] }] : [];
  });
  for (const [source, entries] of Map.groupBy(mirrored, (entry) => entry.source)) {
    const count = new Set(entries.flatMap(({ mirrors }) => mirrors)).size;
    // The release image may have a repository of its own. Its source then has one mirror more.
    if (count <= 2) continue;
    context.log(
      'warn',
      `each component has a repository of its own, so that ${source} gets ${count} mirrors: for each image, nodes try them one by ` +
        'one. A destination without ${component} puts all images into one repository.',
    );
  }
  return mirrored;
}

/**
 * Returns the graph-data image: built from an archive (path or URL) on the release’s `cli` image, or copied beside the
 * release by an earlier run. Undefined if there is neither.
 */
export async function findGraphData(
  archive: string | undefined,
  { release, signatures }: SignedRelease,
  source: ReleaseSource,
  destination: Destination,
  fetchFile: FetchFile,
  context: Context,
): Promise<MirrorImage | undefined> {
  const target = destination(graphDataName, release);
  if (archive === undefined) {
    if (!source.isLocal) return undefined;
    const content = source.found.source;
    const tag = componentTag(release.version, release.arch, graphDataName);
    const root = await content.resolve(tag).catch(ignoring('not-found'));
    if (!root) return undefined;
    const message = `the graph-data image ${root.digest} in ${content.name} is not covered by the release signature`;
    context.log('warn', message);
    return { name: graphDataName, digest: root.digest, source: content, target };
  }
  const cli = release.images.get('cli');
  if (!cli) {
    throw new PluginError('invalid-release', `${release.pullspec} has no image “cli” to build the graph-data image on`);
  }
  const { source: content } = await source.sourceOf('cli', cli.reference);
  const base = { source: content, root: await content.resolve(cli.digest) };
  const good = new Map([...signatures].map(([digest, all]) => [digest, all.map(({ bytes }) => bytes)] as const));
  const image = await buildGraphDataImage({ archive, signatures: good, base, fetchFile }, context);
  return { name: graphDataName, digest: image.root.digest, source: image.source, target };
}

/**
 * Returns the settings of an update service; undefined if the images are not copied to a registry, or to one by its IPv6
 * address, which no pullspec has (Bug 1780376).
 */
export async function describeUpdateService(
  graphData: MirrorImage,
  release: Release,
  destination: Destination,
  authorityFile: string | undefined,
  context: Context,
): Promise<UpdateServiceOptions | undefined> {
  const { place } = destination(releaseName, release);
  if (place.kind !== 'registry' || graphData.target.place.kind !== 'registry') return undefined;
  const releases = formatPlace(place);
  if (releases.startsWith('[')) {
    const what = `an update service cannot name the IPv6 address in ${releases}, so none is written`;
    context.log('warn', `${what}: name the registry by a host name that the cluster resolves, and mirror again`);
    return undefined;
  }
  if (formatPlace(destination('cli', release).place) === releases) {
    const message = `the update service reads every image in ${releases}; a separate repository for the release image avoids that`;
    context.log('warn', message);
  }
  return {
    releases,
    graphDataImage: formatTarget(graphData.target, graphData.digest),
    certificateAuthority: authorityFile === undefined ? undefined : await readPem(authorityFile),
  };
}
