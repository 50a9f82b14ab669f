import { checkInterrupted, type Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { readDocuments } from '../documents.ts';
import { channelsOf, compareVersions, isVersion, parseVersion, type Architecture } from '../version.ts';
import { graphsToAsk, readChannel, type ResolveOptions } from './graph.ts';
import { fetchGraphData, readGraphData } from './graphArchive.ts';

/** The versions of each channel, in ascending order. */
export type ChannelVersions = ReadonlyMap<string, readonly string[]>;

const documentLimits = { length: 4 * 1024 * 1024, tokens: 200_000 };

/**
 * Reads all channels of a graph-data archive (path or URL). An archive on this machine needs no network. Throws the errors
 * of fetchGraphData and readGraphData, and `invalid-file` for a channel that is no YAML.
 */
export async function readArchivedChannels(
  archive: string,
  { fetchFile }: Pick<ResolveOptions, 'fetchFile'>,
  context: Context,
): Promise<ChannelVersions> {
  const { bytes, where } = await fetchGraphData(archive, fetchFile);
  const data = await readGraphData(bytes, where, (message) => context.log('warn', message));
  const channels = new Map<string, readonly string[]>();
  for (const [path, content] of data) {
    const name = /^channels\/(.+)\.ya?ml$/.exec(path)?.[1];
    if (name !== undefined) channels.set(name, versionsIn(content.toString('utf8'), `${path} in ${where}`));
  }
  return channels;
}

/**
 * Reads channels from the update graph: the named one, or the channels that have a version. Throws `unknown-version` if none has
 * it, and the errors of readChannel.
 */
export async function readServedChannels(
  { channel, version = '' }: { readonly channel?: string | undefined; readonly version?: string | undefined },
  arch: Architecture,
  options: ResolveOptions,
  context: Context,
): Promise<ChannelVersions> {
  const names = channel === undefined ? channelsOf(parseVersion(version)) : [channel];
  const channels = new Map<string, readonly string[]>();
  const [graph] = graphsToAsk(options);
  for (const name of names) {
    checkInterrupted(context.signal);
    if (!graph) break;
    const { nodes } = await readChannel(graph, name, arch, options.fetchFile, context);
    if (channel !== undefined || nodes.has(version)) channels.set(name, [...nodes.keys()].sort(compareVersions));
  }
  if (channels.size > 0) return channels;
  throw new PluginError('unknown-version', `no channel has ${version} for ${arch}`, { settings: ['arch', 'graphUrl'] });
}

function versionsIn(text: string, where: string): string[] {
  let document: unknown;
  try {
    [document] = readDocuments(text, documentLimits).values;
  } catch (cause) {
    throw new PluginError('invalid-file', `${where} is not YAML`, { cause });
  }
  const { versions } = (document ?? {}) as { versions?: unknown };
  // An architecture may follow a plus.
  const named = Array.isArray(versions) ? versions.map((each) => String(each).split('+')[0] ?? '') : [];
  return [...new Set(named.filter(isVersion))].sort(compareVersions);
}
