import { formatUrl, type FetchFile } from '#content/http';
import { formatReference, parseReference, parseJson } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { asFailure, messageOf, PluginError } from '#errors';
import { channelsOf, goArchitecture, parseVersion, releaseTag, unknownVersion, type Architecture } from '../version.ts';
import { parseUpdateGraph, type GraphNode, type UpdateGraph } from './updateGraph.ts';

/** The default update graph of clusters. */
export const publicGraph = 'https://api.openshift.com/api/upgrades_info/v1/graph';

/** The updates of a cluster, from its ClusterVersion. */
export interface ClusterUpdates {
  /** `spec.upstream`; undefined if the cluster asks the public graph. */
  readonly upstream?: string;
  readonly channel?: string;
  readonly arch: Architecture;
  /** Pullspecs by version: of `status.desired`, of the available and conditional updates, and of the history. */
  readonly known: ReadonlyMap<string, string>;
}

/** Options for finding a version. */
export interface ResolveOptions {
  /** The URL of the only graph to ask. */
  readonly graphUrl?: string;
  readonly cluster?: ClusterUpdates;
  readonly fetchFile: FetchFile;
}

/** The response of a graph server: the releases of the requested channels, or an error. */
interface Answer {
  readonly where: string;
  readonly nodes: readonly GraphNode[];
  readonly problem?: PluginError;
}

// The public graph of a channel has 1 to 3 MB.
const graphLimit = 64 * 1024 * 1024;

/**
 * Finds the image of a version. Asks the updates that the cluster lists, without a network, then the update graph of
 * the cluster and the public one, or only the given graph. Tries the channel of the cluster first, then the channels
 * that have the version. Returns the pullspec by digest. Throws `unknown-version` with the nearest versions, or the
 * error of the first graph if no graph can be read.
 */
export async function resolveVersion(
  version: string,
  arch: Architecture | undefined,
  { graphUrl, cluster, fetchFile }: ResolveOptions,
  context: Context,
): Promise<string> {
  const parsedVersion = parseVersion(version);
  const architecture = arch ?? cluster?.arch ?? 'x86_64';
  const listedPullspec = cluster?.arch === architecture ? cluster.known.get(parsedVersion) : undefined;
  const pullspec = listedPullspec === undefined ? undefined : byDigest(listedPullspec);
  if (pullspec !== undefined) return pullspec;

  const own = cluster?.channel ? [cluster.channel] : [];
  const channels = [...new Set([...own, ...channelsOf(parsedVersion)])];
  const answers: Answer[] = [];
  for (const graph of listGraphs({ graphUrl, cluster })) {
    const answer = await askGraph(graph, channels, parsedVersion, architecture, fetchFile, context);
    if (typeof answer === 'string') return answer;
    if (answer.problem) context.log('warn', answer.problem.message);
    answers.push(answer);
  }
  throw notFound(parsedVersion, architecture, answers);
}

async function askGraph(
  graph: URL,
  channels: readonly string[],
  version: string,
  arch: Architecture,
  fetchFile: FetchFile,
  context: Context,
): Promise<string | Answer> {
  const where = formatUrl(graph);
  const nodes: GraphNode[] = [];
  for (const channel of channels) {
    checkInterrupted(context.signal);
    try {
      const channelGraph = await readChannel(graph, channel, arch, fetchFile, context);
      const node = channelGraph.nodes.get(version);
      if (node) return pullspecOf(node, where);
      nodes.push(...channelGraph.nodes.values());
    } catch (error) {
      // A failing server would also fail for the next channel, perhaps slowly.
      return { where, nodes, problem: asFailure(error) };
    }
  }
  return { where, nodes };
}

/** Reads the releases and updates of a channel. Throws `server-error`, and the errors of `fetchFile`. */
export async function readChannel(
  graph: URL,
  channel: string,
  arch: Architecture,
  fetchFile: FetchFile,
  context: Context,
): Promise<UpdateGraph> {
  const where = formatUrl(graph);
  const url = new URL(graph);
  url.searchParams.set('channel', channel);
  url.searchParams.set('arch', goArchitecture(arch) ?? arch);
  context.log('debug', `asking ${where} for the releases of ${channel}, ${arch}`);
  const bytes = await fetchFile(url, graphLimit);
  if (!bytes) return refuse(where, 'has no update graph');
  try {
    const read = parseUpdateGraph(parseJson(bytes.toString('utf8')), (version) => {
      // Some graphs encode the architecture in the build metadata of the version.
      const [name = '', build] = version.split('+');
      return build === undefined || build === arch || build === goArchitecture(arch) ? name : undefined;
    });
    if (read) return read;
  } catch (cause) {
    return refuse(where, `did not answer with an update graph: ${messageOf(cause).slice(0, 100)}`, cause);
  }
  return refuse(where, 'did not answer with an update graph: it has no nodes');
}

/** Returns the pullspec of a release by digest. Throws `server-error` for a graph that names it by a tag. */
export function pullspecOf({ version, payload }: GraphNode, where: string): string {
  return byDigest(payload) ?? refuse(where, `names ${version} by ${payload}, not by digest`);
}

/** Returns the graphs to ask: the given one only, or that of the cluster and the public one. Throws `usage`. */
export function listGraphs({ graphUrl, cluster }: Pick<ResolveOptions, 'graphUrl' | 'cluster'>): URL[] {
  const graphs = graphUrl === undefined ? [...new Set([cluster?.upstream || publicGraph, publicGraph])] : [graphUrl];
  return graphs.map(parseGraphUrl);
}

function byDigest(pullspec: string): string | undefined {
  try {
    const { registry, repository, digest } = parseReference(pullspec);
    return digest && formatReference({ registry, repository, digest });
  } catch {
    return undefined;
  }
}

function parseGraphUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new PluginError('usage', `“${url ? formatUrl(url) : text}” cannot be the address of an update graph`, {
    hint: `Give an http or https URL such as ${publicGraph}.`,
  });
}

function notFound(version: string, arch: Architecture, answers: readonly Answer[]): PluginError {
  const nodes = answers.flatMap((answer) => answer.nodes);
  const problem = answers.find((answer) => answer.problem)?.problem;
  const answered = answers.filter((answer) => !answer.problem || answer.nodes.length > 0);
  if (answered.length === 0 && problem) {
    return new PluginError(problem.code, `${version} cannot be looked up: ${problem.message}`, {
      hint:
        // A wrong setting on this machine would also fail for the release image, so its own hint is shown.
        problem.code === 'usage'
          ? problem.hint
          : 'Without a graph, name the repository with the tags of releases, or the image: ' +
            'REGISTRY/REPOSITORY@sha256:DIGEST.',
      settings: ['releaseRepository', 'graphUrl'],
      cause: problem,
    });
  }
  const tags = nodes.map((node) => releaseTag(node.version, arch));
  return unknownVersion(version, arch, [...new Set(tags)], answered.map(({ where }) => where).join(' and '), problem);
}

function refuse(where: string, what: string, cause?: unknown): never {
  throw new PluginError('server-error', `${where} ${what}`, {
    hint: 'The URL of an update graph ends in /api/upgrades_info/v1/graph.',
    settings: ['graphUrl'],
    cause,
  });
}
