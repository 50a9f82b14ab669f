import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import type { Release } from '../release.ts';
import { channelSeries, goArchitecture, parseVersion } from '../version.ts';
import { channelsIn, openGraphData, parseGraphFile } from './channels.ts';
import type { ResolveOptions } from './graph.ts';
import type { GraphData } from './graphArchive.ts';
import { mergeGraphs, readRisk, type UpdateGraph, type UpdateRisk } from './updateGraph.ts';
import { pathThrough, type UpdatePath } from './updatePath.ts';

/** A release, and the versions that can update to it. */
export type ReachableRelease = Pick<Release, 'version' | 'arch' | 'pullspec' | 'previous'>;

/** The updates from the versions that match, which are not recommended; with a risk, only to some clusters. */
interface BlockedEdges {
  readonly to: string;
  readonly from: RegExp;
  readonly risk: UpdateRisk | undefined;
}

/**
 * Finds the shortest path as resolveUpdatePath does, by the updates that the given releases name, and by the channels
 * and blocked edges of a graph-data archive. The first version need not be one of the releases, and is then no step. An
 * archive on this machine needs no network. Throws `unknown-version` without a path, `invalid-file`, and the errors of
 * openGraphData.
 */
export async function resolveArchivedPath(
  { from, to }: { readonly from: string; readonly to: string },
  archive: string,
  releases: readonly ReachableRelease[],
  options: Pick<ResolveOptions, 'fetchFile'>,
  context: Context,
): Promise<UpdatePath> {
  const ends = [parseVersion(from), parseVersion(to)] as const;
  const { data, where } = await openGraphData(archive, options, context);
  const versions = channelsIn(data, where);
  const blocked = readBlockedEdges(data, where, releases);
  for (const channels of channelSeries(...ends)) {
    const graphs = channels.map((name) => graphOf(new Set(versions.get(name)), releases, blocked));
    const path = pathThrough(mergeGraphs(graphs), ends, channels, where, context);
    if (path && path.steps.length > 0) return path;
  }
  throw new PluginError('unknown-version', `no path of updates leads from ${from} to ${to} by the stored releases`, {
    hint:
      `The stored releases: ${releases.map(({ version }) => version).join(', ')}. A path needs releases that are ` +
      'stored, in a channel and not blocked.',
  });
}

function graphOf(
  channel: ReadonlySet<string>,
  releases: readonly ReachableRelease[],
  blocked: readonly BlockedEdges[],
): UpdateGraph {
  const members = releases.filter(({ version }) => channel.has(version));
  return {
    nodes: new Map(members.map(({ version, pullspec }) => [version, { version, payload: pullspec }])),
    edges: members.flatMap(({ version: to, arch, previous }) =>
      previous.flatMap((from) => {
        const own = blocked.filter(
          (each) => [to, builtName(to, arch)].includes(each.to) && each.from.test(builtName(from, arch)),
        );
        const risks = own.flatMap(({ risk }) => risk ?? []);
        return channel.has(from) && risks.length === own.length ? [{ from, to, risks }] : [];
      }),
    ),
  };
}

/** Returns the name of a version for one architecture, as graph data has it. */
function builtName(version: string, arch: Release['arch']): string {
  return `${version}+${goArchitecture(arch) ?? arch}`;
}

function readBlockedEdges(data: GraphData, where: string, releases: readonly ReachableRelease[]): BlockedEdges[] {
  return [...data].flatMap(([path, content]) => {
    const text = content.toString('utf8');
    // There are thousands of files, and YAML is slow.
    if (!/^blocked-edges\/[^/]+\.yaml$/.test(path) || !releases.some(({ version }) => text.includes(version)))
      return [];
    const name = `${path} in ${where}`;
    const document = fieldsOf(parseGraphFile(text, name));
    const [to, from] = [textOf(document['to']), textOf(document['from'])];
    if (to === undefined || from === undefined) throw new PluginError('invalid-file', `${name} has no “to” or “from”`);
    const rules = document['matchingRules'];
    const risk = Array.isArray(rules) && rules.length > 0 ? readRisk(document) : undefined;
    return [{ to, from: parsePattern(from, name), risk }];
  });
}

/** Patterns that mean the same here and in the update service: no look-around, no flags, no named groups or classes. */
const sharedSyntax =
  /^(?:[^\\()[{}]|\((?:\?:|(?!\?))|\)|\{\d+(?:,\d*)?\}|\\[dDwWsSbB]|\\[^\w<>]|\[\^?(?:[^\\[\]&~^-]|-(?!-)|\\[dDwWsS]|\\[^\w<>])+\])*$/;

/**
 * Reads the `from` of a blocked edge as the update service does. It searches for the pattern anywhere in the version
 * with its architecture (`4.20.3+amd64`). Sources: “Block Edges” in the README of openshift/cincinnati-graph-data
 * (731d04247), and `Regex::is_match` of the Rust crate regex 1.11 in openshift/cincinnati (49c914f8),
 * openshift_secondary_metadata_parser and edge_add_remove.
 */
function parsePattern(text: string, where: string): RegExp {
  const fail = (why: string, cause?: unknown): never => {
    throw new PluginError('invalid-file', `${where} has a “from” that is not a pattern: ${why}`, { cause });
  };
  try {
    const pattern = new RegExp(text);
    return sharedSyntax.test(text)
      ? pattern
      : fail(`/${text}/ has syntax that this program and the update service may read differently`);
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    return fail(messageOf(cause), cause);
  }
}
