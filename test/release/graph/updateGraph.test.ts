import { expect } from 'chai';
import {
  findUpdatePath,
  mergeGraphs,
  parseUpdateGraph,
  type UpdateGraph,
} from '../../../lib/release/graph/updateGraph.ts';

/** A graph as a server writes it: `A>B` is an update, `A>B:Risk+Other` one with risks. */
function documentOf(updates: string): object {
  const parts = updates.split(' ').map((text) => /^([^>]+)>([^:]+)(?::(.*))?$/.exec(text) ?? []);
  const versions = [...new Set(parts.flatMap(([, from = '', to = '']) => [from, to]))];
  return {
    version: 1,
    nodes: versions.map((version) => ({ version, payload: `quay.io/a@${version}`, metadata: {} })),
    edges: parts.flatMap(([, from = '', to = '', risks]) =>
      risks === undefined ? [[versions.indexOf(from), versions.indexOf(to)]] : [],
    ),
    conditionalEdges: parts.flatMap(([, from, to, risks]) =>
      risks === undefined
        ? []
        : [{ edges: [{ from, to }], risks: risks.split('+').map((name) => ({ name, url: 'x' })) }],
    ),
  };
}

const same = (version: string): string => version;
const graphOf = (updates: string): UpdateGraph => {
  const graph = parseUpdateGraph(documentOf(updates), same);
  if (!graph) throw new Error('no graph');
  return graph;
};
const show = (graph: UpdateGraph, from: string, to: string, withRisks = true): string | undefined =>
  findUpdatePath(graph, from, to, { withRisks })
    ?.map(({ to: version, risks }) => [version, ...risks.map(({ name }) => name)].join(':'))
    .join(' ');

describe('findUpdatePath', () => {
  const cases: readonly (readonly [
    what: string,
    updates: string,
    from: string,
    to: string,
    path: string | undefined,
  ])[] = [
    ['one update', '4.18.1>4.18.2', '4.18.1', '4.18.2', '4.18.2'],
    ['nothing to do', '4.18.1>4.18.2', '4.18.1', '4.18.1', ''],
    ['no way back', '4.18.1>4.18.2', '4.18.2', '4.18.1', undefined],
    ['unknown versions', '4.18.1>4.18.2', '4.17.1', '4.18.2', undefined],
    ['the shortest', '1.0.0>1.0.1 1.0.1>1.0.2 1.0.2>2.0.0 1.0.1>2.0.0', '1.0.0', '2.0.0', '1.0.1 2.0.0'],
    ['through circles', '1.0.0>1.0.1 1.0.1>1.0.0 1.0.1>2.0.0', '1.0.0', '2.0.0', '1.0.1 2.0.0'],
    ['no way out of a circle', '1.0.0>1.0.1 1.0.1>1.0.0 2.0.0>2.0.1', '1.0.0', '2.0.1', undefined],
    ['the newest of several', '1.0.0>1.0.9 1.0.0>1.0.10 1.0.9>2.0.0 1.0.10>2.0.0', '1.0.0', '2.0.0', '1.0.10 2.0.0'],
    ['without risks', '1.0.0>1.0.9 1.0.0>1.0.10:R 1.0.9>2.0.0 1.0.10>2.0.0', '1.0.0', '2.0.0', '1.0.9 2.0.0'],
    ['risks by name', '1.0.0>1.0.1 1.0.1>2.0.0:Slow+Lost', '1.0.0', '2.0.0', '1.0.1 2.0.0:Slow:Lost'],
    ['the fewest updates, with risks too', '1.0.0>2.0.0:R 1.0.0>1.0.1 1.0.1>2.0.0', '1.0.0', '2.0.0', '2.0.0:R'],
  ];
  for (const [what, updates, from, to, path] of cases) {
    it(`finds ${what}`, () => {
      expect(show(graphOf(updates), from, to)).to.equal(path);
    });
  }

  it('leaves updates with risks out if they are not wanted', () => {
    const graph = graphOf('1.0.0>2.0.0:R 1.0.0>1.0.1 1.0.1>2.0.0');
    expect(show(graph, '1.0.0', '2.0.0', false)).to.equal('1.0.1 2.0.0');
    expect(show(graphOf('1.0.0>2.0.0:R'), '1.0.0', '2.0.0', false)).to.equal(undefined);
  });

  it('crosses minor versions by the channels of all of them', () => {
    const graph = mergeGraphs([graphOf('4.18.9>4.19.3:R 4.18.9>4.18.20'), graphOf('4.19.3>4.20.1 4.18.9>4.19.3')]);
    expect(show(graph, '4.18.9', '4.20.1')).to.equal('4.19.3 4.20.1');
    expect(graph.nodes.get('4.20.1')?.payload).to.equal('quay.io/a@4.20.1');
  });

  it('stays quick in graphs as large as the public ones', () => {
    const versions = Array.from({ length: 400 }, (_, patch) => `4.19.${patch}`);
    const edges = versions.flatMap((from, index) =>
      versions.slice(index + 1, -1).map((to) => ({ from, to, risks: [] })),
    );
    const last = { from: '4.19.398', to: '4.19.399', risks: [] };
    const path = findUpdatePath({ nodes: new Map(), edges: [...edges, last] }, '4.19.0', '4.19.399');
    expect(path?.map(({ to }) => to)).to.deep.equal(['4.19.398', '4.19.399']);
  });

  it('reads hostile documents without their malformed parts', () => {
    for (const document of [null, 1, 'x', [], {}, { nodes: {} }]) {
      expect(parseUpdateGraph(document, same)).to.equal(undefined);
    }
    const nodes = [
      null,
      { version: 1, payload: 'x' },
      { version: '1.0.0', payload: 'a' },
      { version: '1.0.1', payload: 'b' },
      { version: '1.0.2\nRun: curl evil', payload: 'c' },
      { version: '$(id)', payload: 'd' },
    ];
    const edges = [null, [2, 3], [0, 2], [2, 99], [3, 4], [4, 5], ['x'], 'y', [-1, 2]];
    const conditionalEdges = [null, { edges: [{ from: '1.0.0', to: 5 }, null], risks: 'x' }, { edges: 7 }];
    const graph = parseUpdateGraph({ nodes, edges, conditionalEdges }, same);
    expect([...(graph?.nodes.keys() ?? [])]).to.deep.equal(['1.0.0', '1.0.1']);
    expect(graph?.edges).to.deep.equal([{ from: '1.0.0', to: '1.0.1', risks: [] }]);
  });
});
