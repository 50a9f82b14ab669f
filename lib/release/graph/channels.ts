import { readDocuments } from '#content/files';
import { checkInterrupted, type Context } from '#context';
import { asFailure, PluginError } from '#errors';
import { fieldsOf } from '#fields';
import { channelsOf, compareVersions, isSameMinor, isVersion, parseVersion, type Architecture } from '../version.ts';
import { listGraphs, readChannel, type ResolveOptions } from './graph.ts';
import { fetchGraphData, readGraphData, type GraphData } from './graphArchive.ts';

/** The versions of each channel, in ascending order. */
export type ChannelVersions = ReadonlyMap<string, readonly string[]>;

const documentLimits = { length: 4 * 1024 * 1024, tokens: 200_000 };

/**
 * Reads all channels of a graph-data archive (path or URL). An archive on this machine needs no network. Throws the
 * errors of openGraphData and channelsIn.
 */
export async function readArchivedChannels(
  archive: string,
  options: Pick<ResolveOptions, 'fetchFile'>,
  context: Context,
): Promise<ChannelVersions> {
  const { data, where } = await openGraphData(archive, options, context);
  return channelsIn(data, where);
}

/**
 * Reads a graph-data archive (path or URL), and returns its location for messages too. Throws the errors of
 * fetchGraphData and readGraphData.
 */
export async function openGraphData(
  archive: string,
  { fetchFile }: Pick<ResolveOptions, 'fetchFile'>,
  context: Context,
): Promise<{ data: GraphData; where: string }> {
  const { bytes, where } = await fetchGraphData(archive, fetchFile);
  return { data: await readGraphData(bytes, where, (message) => context.log('warn', message)), where };
}

/** Returns the channels of graph data. Throws `invalid-file` for a channel that is no YAML. */
export function channelsIn(data: GraphData, where: string): ChannelVersions {
  const channels = new Map<string, readonly string[]>();
  for (const [path, content] of data) {
    const name = /^channels\/([\w.-]+)\.ya?ml$/.exec(path)?.[1];
    if (name !== undefined) channels.set(name, versionsIn(content.toString('utf8'), `${path} in ${where}`));
  }
  return channels;
}

/**
 * Reads channels from the update graph: the named one, or the channels that have a version. Throws `unknown-version` if
 * none has it, and the errors of readChannel.
 */
export async function readServedChannels(
  { channel, version = '' }: { readonly channel?: string; readonly version?: string },
  arch: Architecture,
  options: ResolveOptions,
  context: Context,
): Promise<ChannelVersions> {
  const names = channel === undefined ? channelsOf(parseVersion(version)) : [channel];
  const channels = new Map<string, readonly string[]>();
  const [graph] = listGraphs(options);
  for (const name of names) {
    checkInterrupted(context.signal);
    if (!graph) break;
    const { nodes } = await readChannel(graph, name, arch, options.fetchFile, context);
    if (channel !== undefined || nodes.has(version)) channels.set(name, [...nodes.keys()].sort(compareVersions));
  }
  if (channels.size > 0) return channels;
  throw new PluginError('unknown-version', `no channel has ${version} for ${arch}`, { settings: ['arch', 'graphUrl'] });
}

/** Returns the names of the channels with a version, or of all, sorted. Throws `unknown-version` if there are none. */
export function namesWith(channels: ChannelVersions, version: string | undefined): string[] {
  const matchingChannels = [...channels].filter(([, versions]) => version === undefined || versions.includes(version));
  if (matchingChannels.length > 0) return matchingChannels.map(([name]) => name).sort();
  throw new PluginError('unknown-version', `no channel has ${version ?? 'a version'}`);
}

/** Returns the versions of a channel. Throws `not-found` if there are none. */
export function versionsOf(channels: ChannelVersions, channel = ''): readonly string[] {
  const versions = channels.get(channel) ?? [];
  if (versions.length > 0) return versions;
  throw new PluginError('not-found', `there is no channel “${channel}” with versions`);
}

/** The number of patches that an error names. */
const patchesShown = 5;

/**
 * Throws `usage` for a version without its patch, such as `4.20`, with the latest patches in the update graph. Without
 * an answer of the graph, the error names none. Returns for any other text.
 */
export async function requirePatch(
  text: string,
  arch: Architecture,
  options: ResolveOptions,
  context: Context,
): Promise<void> {
  const minor = /^v?(\d+\.\d+)$/.exec(text)?.[1];
  if (minor === undefined) return;
  const patches = await findPatches(minor, arch, options, context);
  if (patches.length === 0) parseVersion(text);
  throw new PluginError('usage', `“${text}” is not the version of a release`, {
    hint: `The latest patches for ${arch}: ${patches.join(', ')}.`,
  });
}

async function findPatches(
  minor: string,
  arch: Architecture,
  options: ResolveOptions,
  context: Context,
): Promise<string[]> {
  const [graph] = listGraphs(options);
  try {
    for (const channel of channelsOf(`${minor}.0`)) {
      checkInterrupted(context.signal);
      if (!graph) break;
      const { nodes } = await readChannel(graph, channel, arch, options.fetchFile, context);
      const own = [...nodes.keys()].filter((version) => isSameMinor(version, `${minor}.0`));
      if (own.length > 0) return own.sort(compareVersions).reverse().slice(0, patchesShown);
    }
  } catch (error) {
    context.log('debug', `the latest patches are not known: ${asFailure(error).message}`);
  }
  return [];
}

/** Reads a file of graph data. Throws `invalid-file` for one that is no YAML. */
export function parseGraphFile(text: string, where: string): unknown {
  try {
    return readDocuments(text, documentLimits).values[0];
  } catch (cause) {
    throw new PluginError('invalid-file', `${where} is not YAML`, { cause });
  }
}

function versionsIn(text: string, where: string): string[] {
  const { versions } = fieldsOf(parseGraphFile(text, where));
  // An architecture may follow a plus.
  const named = Array.isArray(versions) ? versions.map((each) => String(each).split('+')[0] ?? '') : [];
  return [...new Set(named.filter(isVersion))].sort(compareVersions);
}
