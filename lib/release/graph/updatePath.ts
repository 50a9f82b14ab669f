import { formatUrl } from '#content/http';
import { checkInterrupted, type Context } from '#context';
import { PluginError } from '#errors';
import { listBelow } from '#text';
import { channelSeries, compareVersions, isOlder, parseVersion, type Architecture } from '../version.ts';
import { listGraphs, pullspecOf, readChannel, type ResolveOptions } from './graph.ts';
import { findUpdatePath, mergeGraphs, type GraphEdge, type UpdateGraph, type UpdateRisk } from './updateGraph.ts';

/** A release on a path of updates. */
export interface PathStep {
  readonly version: string;
  /** The image by digest. */
  readonly pullspec: string;
  /** The known risks of the update to it from the step before. */
  readonly risks: readonly UpdateRisk[];
}

/** The channels that the path was found in, and its releases in the order of the updates, the first one included. */
export interface UpdatePath {
  readonly channels: readonly string[];
  readonly steps: readonly PathStep[];
}

/**
 * Finds the shortest supported path between two versions, in the most stable channels that have one. Logs the risks of
 * its updates by name, and a longer path without risks. Throws `unknown-version` without a path, and the errors of the
 * graph servers.
 */
export async function resolveUpdatePath(
  { from, to }: { readonly from: string; readonly to: string },
  arch: Architecture | undefined,
  options: ResolveOptions,
  context: Context,
): Promise<UpdatePath> {
  const ends = [parseVersion(from), parseVersion(to)] as const;
  const architecture = arch ?? options.cluster?.arch ?? 'x86_64';
  for (const url of listGraphs(options)) {
    for (const channels of channelSeries(...ends)) {
      const graphs: UpdateGraph[] = [];
      for (const channel of channels) {
        checkInterrupted(context.signal);
        graphs.push(await readChannel(url, channel, architecture, options.fetchFile, context));
      }
      const graph = mergeGraphs(graphs);
      const path = graph.nodes.has(from) ? pathThrough(graph, ends, channels, formatUrl(url), context) : undefined;
      if (path) return path;
    }
  }
  throw new PluginError('unknown-version', `no path of updates leads from ${from} to ${to} for ${architecture}`, {
    hint: 'Check both versions. An update graph has a new release some weeks after its publication.',
    settings: ['arch', 'graphUrl'],
  });
}

/** Finds the shortest path through a graph, and logs its risks as resolveUpdatePath does. `where` is for messages. */
export function pathThrough(
  graph: UpdateGraph,
  ends: readonly [from: string, to: string],
  channels: readonly string[],
  where: string,
  context: Context,
): UpdatePath | undefined {
  const path = findUpdatePath(graph, ...ends);
  if (!path) return undefined;
  warnOfRisks(path, findUpdatePath(graph, ...ends, { withRisks: false }), context);
  return { channels, steps: listSteps(graph, [{ to: ends[0], risks: [] }, ...path], where) };
}

/** The releases of a channel to choose. Without ends, the latest; with one end, all from there on, or up to there. */
export interface ChannelRange {
  readonly channel: string;
  readonly min?: string;
  readonly max?: string;
  /** All releases of the channel; excludes `min` and `max`. */
  readonly isWhole?: boolean;
  /** Only the releases on the shortest path of updates through the range. */
  readonly shortestPath: boolean;
}

/**
 * Finds the releases of channels, in ascending order. Of several channels, adds the shortest path of updates from the
 * first to the last of them, as oc-mirror does. Throws the errors of resolveChannelRange and resolveUpdatePath.
 */
export async function resolveChannelRanges(
  ranges: readonly ChannelRange[],
  arch: Architecture | undefined,
  options: ResolveOptions,
  context: Context,
): Promise<UpdatePath> {
  const paths: UpdatePath[] = [];
  for (const range of ranges) paths.push(await resolveChannelRange(range, arch, options, context));
  const sort = (steps: readonly PathStep[]): PathStep[] =>
    steps.toSorted((a, b) => compareVersions(a.version, b.version));
  const ends = sort(paths.flatMap(({ steps }) => steps));
  const [from, to] = [ends[0]?.version ?? '', ends.at(-1)?.version ?? ''];
  if (paths.length > 1 && from !== to) paths.unshift(await resolveUpdatePath({ from, to }, arch, options, context));
  // A step of the path between channels has risks, and is named first.
  const steps = new Map(paths.toReversed().flatMap((path) => path.steps.map((step) => [step.version, step] as const)));
  return { channels: [...new Set(paths.flatMap(({ channels }) => channels))], steps: sort([...steps.values()]) };
}

/**
 * Finds the releases of a channel between two versions, both included, in ascending order: all, or those of the
 * shortest path. Throws `not-found` for a channel without versions, `unknown-version` without such releases, and the
 * errors of readChannel.
 */
async function resolveChannelRange(
  { channel, min, max, isWhole = false, shortestPath }: ChannelRange,
  arch: Architecture | undefined,
  options: ResolveOptions,
  context: Context,
): Promise<UpdatePath> {
  const [lower, upper] = [min, max].map((end) => end && parseVersion(end));
  const architecture = arch ?? options.cluster?.arch ?? 'x86_64';
  const [url] = listGraphs(options);
  if (!url) throw new PluginError('internal', 'there is no update graph to ask');
  const graph = await readChannel(url, channel, architecture, options.fetchFile, context);
  const versions = [...graph.nodes.keys()].sort(compareVersions);
  const latest = versions.at(-1);
  if (latest === undefined) {
    throw new PluginError('not-found', `there is no channel “${channel}” with versions for ${architecture}`, {
      settings: ['arch', 'graphUrl'],
    });
  }
  const last = upper ?? latest;
  const first = lower ?? (upper === undefined && !isWhole ? last : (versions[0] ?? last));
  const path = shortestPath ? findUpdatePath(graph, first, last) : undefined;
  if (path) warnOfRisks(path, findUpdatePath(graph, first, last, { withRisks: false }), context);
  const inRange = versions.filter((each) => !isOlder(each, first) && !isOlder(last, each));
  const all = inRange.map((to) => ({ to, risks: [] }));
  const chosen = path ? [{ to: first, risks: [] }, ...path] : shortestPath ? [] : all;
  const steps = listSteps(graph, chosen, formatUrl(url));
  if (steps.length > 0 && steps.length === chosen.length) return { channels: [channel], steps };
  const what = shortestPath ? 'path of updates' : 'release';
  throw new PluginError('unknown-version', `${channel} has no ${what} from ${first} to ${last} for ${architecture}`, {
    hint: `It has ${String(versions[0])} to ${latest}.`,
    settings: ['arch', 'graphUrl'],
  });
}

function listSteps(
  { nodes }: UpdateGraph,
  path: readonly Pick<GraphEdge, 'to' | 'risks'>[],
  where: string,
): PathStep[] {
  return path.flatMap(({ to, risks }) => {
    const node = nodes.get(to);
    return node ? [{ version: to, pullspec: pullspecOf(node, where), risks }] : [];
  });
}

/** Returns the names of risks, separated by commas. */
export function nameRisks(risks: readonly UpdateRisk[]): string {
  return risks.map(({ name }) => name).join(', ');
}

/**
 * Throws `not-recommended` with the texts of the known risks on a path whose names are not accepted. Warns of accepted
 * names that no risk on the path has.
 */
export function requireAccepted({ steps }: UpdatePath, accepted: readonly string[], context: Context): void {
  const riskNames = new Set(steps.flatMap(({ risks }) => risks.map(({ name }) => name)));
  const strange = accepted.filter((name) => !riskNames.has(name));
  if (strange.length > 0) context.log('warn', `no update on the path has the risk ${strange.join(', ')}`);
  const others = steps.flatMap(({ version, risks }) =>
    risks.filter(({ name }) => !accepted.includes(name)).map((risk) => describeRisk(risk, version)),
  );
  if (others.length === 0) return;
  const lines = listBelow('known risks of the updates are not accepted:', others);
  throw new PluginError('not-recommended', lines, {
    hint: 'Check whether they concern the site. Then accept each by its name, or update by other versions.',
    settings: ['acceptRisk'],
  });
}

/** Describes a risk of the update to a version, with its text and page. */
export function describeRisk(risk: UpdateRisk, version: string): string {
  return `the update to ${version} has the risk ${formatRisk(risk)}`;
}

/** Formats a risk with its text and page: `SlowDisks: Disks are slow. https://example.com`. */
export function formatRisk({ name, message, url }: UpdateRisk): string {
  return `${name}: ${[message, url].join(' ').trim()}`;
}

function warnOfRisks(path: readonly GraphEdge[], safe: readonly GraphEdge[] | undefined, context: Context): void {
  for (const { from, to, risks } of path) {
    if (risks.length === 0) continue;
    context.log('warn', `the update from ${from} to ${to} has known risks for some clusters: ${nameRisks(risks)}`);
  }
  if (!safe || path.every(({ risks }) => risks.length === 0)) return;
  context.log('info', `a path without known risks: ${safe.map(({ to }) => to).join(', ')}`);
}
