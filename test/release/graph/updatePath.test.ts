import { expect } from 'chai';
import type { FetchFile } from '../../../lib/content/http/fetchFile.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { resolveUpdatePath } from '../../../lib/release/graph/updatePath.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const payloadOf = (version: string): string => `quay.io/a/release@${digestOf(version)}`;

/** Answers for channels: nodes, and the updates between them by their places, those with a risk apart. */
const channels: Readonly<Record<string, readonly [versions: string[], edges: number[][], risky?: number[][]]>> = {
  'stable-4.18': [['4.18.20', '4.18.25'], [[0, 1]]],
  'stable-4.19': [['4.18.20', '4.18.25', '4.19.9'], [[1, 2]], [[0, 2]]],
  'stable-4.20': [['4.19.9', '4.20.3'], [[0, 1]]],
  'candidate-4.20': [['4.20.3', '4.20.4'], [[0, 1]]],
};

const fetchFile: FetchFile = async (url) => {
  const [versions, edges, risky = []] = channels[url.searchParams.get('channel') ?? ''] ?? [[], []];
  const nodes = versions.map((version) => ({ version, payload: payloadOf(version) }));
  const conditional = risky.map(([from = 0, to = 0]) => ({ from: versions[from], to: versions[to] }));
  return Buffer.from(
    JSON.stringify({
      nodes,
      edges,
      conditionalEdges: [{ edges: conditional, risks: [{ name: 'SlowDisks', message: 'Disks\nare slow.' }] }],
    }),
  );
};

describe('resolveUpdatePath', () => {
  const graphUrl = 'http://graph.example/api/upgrades_info/v1/graph';

  it('finds the shortest path over minor versions, and names its risks', async () => {
    const context = makeContext();
    const path = await resolveUpdatePath(
      { from: '4.18.20', to: '4.20.3' },
      undefined,
      { graphUrl, fetchFile },
      context,
    );
    expect(path.channels).to.deep.equal(['stable-4.18', 'stable-4.19', 'stable-4.20']);
    expect(path.steps).to.deep.equal([
      { version: '4.18.20', pullspec: payloadOf('4.18.20'), risks: [] },
      {
        version: '4.19.9',
        pullspec: payloadOf('4.19.9'),
        risks: [{ name: 'SlowDisks', message: 'Disks are slow.', url: '' }],
      },
      { version: '4.20.3', pullspec: payloadOf('4.20.3'), risks: [] },
    ]);
    const logged = context.lines.join('\n');
    expect(logged).to.contain('from 4.18.20 to 4.19.9 has known risks for some clusters: SlowDisks');
    expect(logged).to.contain('a path without known risks: 4.18.25, 4.19.9, 4.20.3');
  });

  it('asks for less stable channels if the others have no path, and says if none has', async () => {
    const context = makeContext();
    const find = (from: string, to: string) =>
      resolveUpdatePath({ from, to }, 'x86_64', { graphUrl, fetchFile }, context);
    expect((await find('4.20.3', '4.20.4')).channels).to.deep.equal(['candidate-4.20']);
    expect(context.lines.join()).not.to.include('a path without known risks');
    for (const [from, to] of [
      ['4.20.3', '4.18.20'],
      ['4.17.1', '4.17.1'],
      ['4.18.20', '4.21.1'],
    ] as const) {
      expect((await failureOf(find(from, to), 'unknown-version')).message).to.contain(`from ${from} to ${to}`);
    }
    await failureOf(find('4.18', '4.20.3'), 'usage');
  });
});
