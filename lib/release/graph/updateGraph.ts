import { fieldsOf } from '#fields';
import { compareVersions, isVersion } from '../version.ts';

/** A release in an update graph. `payload` is its pullspec. */
export interface GraphNode {
  readonly version: string;
  readonly payload: string;
}

/** A known risk of an update for some clusters. */
export interface UpdateRisk {
  readonly name: string;
  /** One line of text. */
  readonly message: string;
  /** The page about the risk; empty if the graph names none. */
  readonly url: string;
}

/** An update from one version to another. */
export interface GraphEdge {
  readonly from: string;
  readonly to: string;
  /** The known risks: the update is recommended only to clusters that they do not concern. */
  readonly risks: readonly UpdateRisk[];
}

/** The releases of some channels, and the updates between them. */
export interface UpdateGraph {
  readonly nodes: ReadonlyMap<string, GraphNode>;
  readonly edges: readonly GraphEdge[];
}

/**
 * Reads what a graph server answers (Cincinnati, version 1). `versionOf` names a version, or leaves it out: some graphs
 * have the architecture in it. Returns undefined for another document. Ignores malformed parts.
 */
export function parseUpdateGraph(
  document: unknown,
  versionOf: (version: string) => string | undefined,
): UpdateGraph | undefined {
  const { nodes, edges, conditionalEdges } = fieldsOf(document);
  if (!Array.isArray(nodes)) return undefined;
  const nameOf = (version: unknown): string | undefined => {
    const name = typeof version === 'string' ? versionOf(version) : undefined;
    return name !== undefined && isVersion(name) ? name : undefined;
  };
  const read = nodes.map((node: unknown): GraphNode | undefined => {
    const { version, payload } = fieldsOf(node);
    const name = nameOf(version);
    return name === undefined || typeof payload !== 'string' ? undefined : { version: name, payload };
  });
  const plain = listOf(edges).map((edge) => {
    const [from, to] = Array.isArray(edge) ? [read[Number(edge[0])], read[Number(edge[1])]] : [];
    return { from: from?.version, to: to?.version, risks: [] };
  });
  const conditional = listOf(conditionalEdges).flatMap((group) => {
    const { edges: own, risks } = fieldsOf(group);
    const groupRisks = listOf(risks).map(readRisk);
    return listOf(own).map((edge) => {
      const [from, to] = [fieldsOf(edge)['from'], fieldsOf(edge)['to']].map(nameOf);
      return { from, to, risks: groupRisks };
    });
  });
  return {
    nodes: new Map(read.flatMap((node) => (node ? [[node.version, node]] : []))),
    edges: [...plain, ...conditional].flatMap(({ from, to, risks }) =>
      from === undefined || to === undefined ? [] : [{ from, to, risks }],
    ),
  };
}

/** Merges the graphs of several channels. An update that one of them recommends has no risks. */
export function mergeGraphs(graphs: readonly UpdateGraph[]): UpdateGraph {
  const edges = new Map<string, GraphEdge>();
  for (const edge of graphs.flatMap((graph) => graph.edges)) {
    const key = `${edge.from} ${edge.to}`;
    if ((edges.get(key)?.risks.length ?? Infinity) > edge.risks.length) edges.set(key, edge);
  }
  return { nodes: new Map(graphs.flatMap(({ nodes }) => [...nodes])), edges: [...edges.values()] };
}

/**
 * Finds the path with the fewest updates between two versions; of several, the one with the fewest updates that have
 * risks, then with the newest versions. `withRisks` false leaves such updates out. Returns the updates in their order,
 * none for the same version, and undefined without a path.
 */
export function findUpdatePath(
  { edges }: UpdateGraph,
  from: string,
  to: string,
  { withRisks = true } = {},
): GraphEdge[] | undefined {
  const updates = Map.groupBy(
    edges.filter(({ risks }) => withRisks || risks.length === 0),
    (edge) => edge.from,
  );
  const paths = new Map<string, readonly GraphEdge[]>([[from, []]]);
  let reached = new Map(paths);
  while (reached.size > 0 && !paths.has(to)) {
    const next = new Map<string, readonly GraphEdge[]>();
    for (const [version, path] of reached) {
      for (const edge of updates.get(version) ?? []) {
        if (paths.has(edge.to)) continue;
        const other = next.get(edge.to);
        const longer = [...path, edge];
        if (other === undefined || isBetter(longer, other)) next.set(edge.to, longer);
      }
    }
    for (const [version, path] of next) paths.set(version, path);
    reached = next;
  }
  const path = paths.get(to);
  return path && [...path];
}

/** Tells whether one path of two with the same length and end is better. */
function isBetter(path: readonly GraphEdge[], other: readonly GraphEdge[]): boolean {
  const risky = (edges: readonly GraphEdge[]): number => edges.filter(({ risks }) => risks.length > 0).length;
  const difference = risky(path) - risky(other);
  if (difference !== 0) return difference < 0;
  const index = path.findIndex(({ to }, place) => to !== other[place]?.to);
  return index >= 0 && compareVersions(path[index]?.to ?? '', other[index]?.to ?? '') > 0;
}

/** The longest text of a risk, in characters. */
const longest = 900;

/** Reads a risk as graphs and graph data name it. Malformed parts are empty. */
export function readRisk(risk: unknown): UpdateRisk {
  const { name, message, url } = fieldsOf(risk);
  const lineOf = (text: unknown): string =>
    typeof text === 'string'
      ? text
          .replace(/[\s\p{Cc}]+/gu, ' ')
          .trim()
          .slice(0, longest)
      : '';
  return { name: lineOf(name), message: lineOf(message), url: lineOf(url) };
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}
