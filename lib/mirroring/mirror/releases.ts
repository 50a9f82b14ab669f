import { resolve } from 'node:path';
import { listBundledVersions } from '#bundle/create';
import { splitReleases, readReleaseRepositories } from '#bundle/metadata';
import { openBundle } from '#bundle/open';
import { RootFolder } from '#content/files';
import { Registries } from '#content/registry';
import { openLocation, parseLocation, releaseRepository } from '#content/store';
import type { Context } from '#context';
import { PluginError, asFailure } from '#errors';
import {
  type ReachableRelease,
  requirePatch,
  resolveChannelRanges,
  resolveUpdatePath,
  type ClusterUpdates,
} from '#release/graph';
import { readPayload } from '#release/release';
import { parseArchitecture, parseReleaseTag, usualRepository, type Architecture } from '#release/version';
import type { MirroringAccess, NamedRelease, ReleaseChoice, ReleaseSearch } from './request.ts';

/**
 * Lists the releases of a choice in the order in which to mirror them. Of a path of updates these are all releases on
 * the shortest supported path, both ends included, and of a bundle all of its releases. Throws the errors of
 * resolveUpdatePath, resolveChannelRanges and requirePatch.
 */
export async function listReleases(
  { releases, path, ranges = [] }: ReleaseChoice,
  { arch, graphUrl, fromDir }: Pick<ReleaseSearch, 'arch' | 'graphUrl' | 'fromDir'>,
  access: MirroringAccess,
  context: Context,
): Promise<readonly NamedRelease[]> {
  const minor = fromDir === undefined ? releases.find((release) => /^v?\d+\.\d+$/.test(release)) : undefined;
  if (!path && ranges.length === 0 && minor === undefined) return expandBundles(releases, context);
  await using registries = new Registries(access.registries, context);
  const cluster = graphUrl === undefined ? await readClusterUpdates(access, context) : undefined;
  const options = { graphUrl, cluster, fetchFile: registries.fetchFile };
  if (minor !== undefined) await requirePatch(minor, arch ?? cluster?.arch ?? 'x86_64', options, context);
  const updatePath = path
    ? await resolveUpdatePath(path, arch, options, context)
    : ranges.length > 0 && (await resolveChannelRanges(ranges, arch, options, context));
  if (!updatePath) return await expandBundles(releases, context);
  const { steps, channels } = updatePath;
  const isPath = path !== undefined || ranges.every(({ shortestPath }) => shortestPath);
  const versions = steps.map(({ version }) => version).join(isPath ? ' → ' : ', ');
  const message = `${isPath ? 'the shortest path of updates' : 'the releases'} in ${channels.join(', ')}: ${versions}`;
  context.log('info', message);
  return steps.map(({ pullspec }) => ({ release: pullspec }));
}

async function expandBundles(releases: readonly string[], context: Context): Promise<NamedRelease[]> {
  const named: NamedRelease[] = [];
  for (const release of releases) {
    const versions = (await listBundledVersions(release, context)) ?? [undefined];
    for (const bundledVersion of versions) named.push({ release, bundledVersion });
  }
  return named;
}

/**
 * Reads the releases of an architecture in a mirror directory or bundle. Throws `not-found` without one, and the errors
 * of openBundle, openLocation and readPayload.
 */
export async function readStoredReleases(
  text: string,
  arch: Architecture,
  context: Context,
): Promise<ReachableRelease[]> {
  const path = resolve(text);
  const location = await parseLocation(path);
  const all =
    location.kind === 'directory' ? await readDirectory(path, arch, context) : await readBundle(path, context);
  const releases = all.filter((release) => release.arch === arch);
  if (releases.length > 0) return releases;
  throw new PluginError('not-found', `${path} has no release for ${arch}`, { settings: ['arch'] });
}

async function readBundle(path: string, context: Context): Promise<ReachableRelease[]> {
  await using bundle = await openBundle(path, context);
  return splitReleases(bundle.metadata).map(({ version, arch, previous, release: pullspec }) => {
    return { version, arch: parseArchitecture(arch), previous, pullspec };
  });
}

async function readDirectory(path: string, arch: Architecture, context: Context): Promise<ReachableRelease[]> {
  const repositories = await readReleaseRepositories(new RootFolder(path));
  await using opened = await openLocation({ kind: 'directory', path }, context);
  const content = opened.repository(releaseRepository);
  const releases: ReachableRelease[] = [];
  for (const tag of (await content?.tags()) ?? []) {
    const taggedRelease = parseReleaseTag(tag);
    if (!content || taggedRelease?.arch !== arch) continue;
    const descriptor = await content.resolve(tag);
    const repository = repositories.get(descriptor.digest) ?? usualRepository;
    releases.push(await readPayload(content, descriptor, { ...taggedRelease, repository }, context));
  }
  return releases;
}

/** Reads the known updates of the cluster; undefined without a cluster, and if the cluster does not answer. */
export async function readClusterUpdates(
  { openCluster }: MirroringAccess,
  context: Context,
): Promise<ClusterUpdates | undefined> {
  try {
    using cluster = await openCluster('10s');
    const version = await cluster.clusterVersion();
    if (!version) return undefined;
    const { platform } = await cluster.version();
    const arch = version.multi ? 'multi' : parseArchitecture(platform.replace(/^linux\//, ''));
    const { upstream, channel, releases } = version;
    return { upstream, channel, arch, known: releases };
  } catch (error) {
    const { code, message } = asFailure(error);
    // No warning, because most users mirror releases from a machine without a cluster.
    if (code !== 'no-cluster') context.log('warn', `the cluster is not asked for its updates: ${message}`);
    return undefined;
  }
}
