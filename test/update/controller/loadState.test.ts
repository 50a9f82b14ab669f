import { expect } from 'chai';
import { readLoadState } from '../../../lib/update/controller/loadState.ts';
import type { KnownProgress } from '../../../lib/update/controller/nodeReports.ts';
import type { BaseState } from '../../../lib/update/record/nodeReport.ts';
import type { NodePhase } from '../../../lib/update/record/upgradeBundle.ts';
import { node, nodesWithoutAgent } from '../../fakes/cluster/site.ts';

const nodes = ['master-0', 'master-1', 'master-2', 'worker-0'].map((name) =>
  node(name, name.startsWith('master') ? 'master' : 'worker'),
);

const spec = { bundle: {}, hold: false };

describe('readLoadState', () => {
  /** Returns the load state for phases by name, and for the present turn. */
  const read = (phases: Record<string, NodePhase>, turn?: string, away: readonly string[] = []) =>
    readLoadState(
      { spec, status: turn === undefined ? {} : { turn } },
      nodes,
      new Map(
        Object.entries(phases).map(([name, phase]) => {
          const progress = { name, phase, imagesLoaded: 0, imagesTotal: 3, bytes: 0 };
          return [name, { progress, isRecent: !away.includes(name) }];
        }),
      ),
    );
  const waiting = { 'master-0': 'Waiting', 'master-1': 'Waiting', 'master-2': 'Waiting' } as const;

  it('gives the turn to one of the control plane, until it has loaded', () => {
    expect(read(waiting).turn).to.equal('master-0');
    expect(read({ ...waiting, 'master-0': 'Loading' }, 'master-0').turn).to.equal('master-0');
    expect(read({ ...waiting, 'master-0': 'Loaded' }, 'master-0').turn).to.equal('master-1');
    expect(read({ 'master-0': 'Pinned', 'master-1': 'Loaded', 'master-2': 'Loaded' }, 'master-2').turn).to.equal(
      undefined,
    );
  });

  it('passes the turn on if a node fails, returns to it, and takes silent nodes last', () => {
    expect(read({ ...waiting, 'master-0': 'Failed' }, 'master-0').turn).to.equal('master-1');
    expect(read({ 'master-0': 'Failed', 'master-1': 'Loaded', 'master-2': 'Loaded' }, 'master-1').turn).to.equal(
      'master-0',
    );
    expect(read({ 'master-0': 'Failed', 'master-1': 'Failed', 'master-2': 'Loaded' }, 'master-0').turn).to.equal(
      'master-1',
    );
    expect(read({ 'master-0': 'Failed', 'master-1': 'Failed', 'master-2': 'Loaded' }, 'master-1').turn).to.equal(
      'master-0',
    );
    expect(read({ 'master-1': 'Waiting', 'master-2': 'Loaded' }).turn).to.equal('master-1');
    expect(read({ 'master-1': 'Loaded', 'master-2': 'Loaded' }).turn).to.equal('master-0');
  });

  it('takes the turn from a node with a silent agent, unless it has everything', () => {
    const loading = { ...waiting, 'master-0': 'Loading', 'worker-0': 'Loaded' } as const;
    const state = read(loading, 'master-0', ['master-0', 'worker-0']);
    expect(state.turn).to.equal('master-1');
    expect(state.condition.message).to.contain('no report from master-0;');
    expect(state.nodes[0]).to.include({ phase: 'Loading' });
    const loaded = { 'master-0': 'Loaded', 'master-1': 'Loaded', 'master-2': 'Loaded', 'worker-0': 'Loaded' } as const;
    expect(read(loaded, undefined, ['worker-0']).done).to.equal(true);
  });

  it('counts the nodes of the cluster, with any reports', () => {
    const all = { 'master-0': 'Loaded', 'master-1': 'Loaded', 'master-2': 'Pinned' } as const;
    expect(read(all).done).to.equal(false);
    expect(read(all).condition).to.deep.include({ status: 'False', reason: 'NodesMissing' });
    expect(read({ ...all, 'worker-0': 'Loading' }).condition).to.deep.include({
      reason: 'Loading',
      message: 'worker-0 does not have all images yet',
    });
    const done = read({ ...all, 'worker-0': 'Loaded', gone: 'Failed' });
    expect(done.done).to.equal(true);
    expect(done.nodes).to.have.length(4);
    expect(read(all).known).to.have.length(3);
  });

  it('names the nodes that cannot complete a delta bundle', () => {
    const bases = (...states: (BaseState | undefined)[]) => {
      const progress = { phase: 'Waiting', imagesLoaded: 0, imagesTotal: 3, bytes: 0 } as const;
      const reports = nodes.map(({ metadata: { name } }, index): [string, KnownProgress] => {
        const loaded = name === 'worker-0' ? 'Loaded' : 'Waiting';
        return [name, { progress: { ...progress, name, phase: loaded }, isRecent: true, base: states[index] }];
      });
      return readLoadState({ spec }, nodes, new Map(reports)).base;
    };
    const open = { missing: ['master-1'], unknown: ['master-2'], isStored: false };
    expect(bases('stored', 'missing')).to.deep.equal(open);
    expect(bases('offered', 'missing')).to.deep.equal({ missing: [], unknown: [], isStored: false });
    expect(bases('stored', 'stored', 'stored', 'missing')).to.deep.equal({ missing: [], unknown: [], isStored: true });
  });

  it('does not wait for a node that is down, if an administrator has overruled that', () => {
    const down = node('worker-1', 'worker', { conditions: [{ type: 'Ready', status: 'Unknown' }] });
    const namesWith = (ignore: readonly string[], each = down): string[] =>
      readLoadState({ spec: { ...spec, ignore } }, [...nodes, each], new Map()).nodes.map(({ name }) => name);
    expect(namesWith([])).to.include('worker-1');
    expect(namesWith(['nodes:node/worker-1'])).not.to.include('worker-1');
    expect(namesWith(['nodes:node/worker-0'])).to.include.members(['worker-0', 'worker-1']);
    expect(namesWith(['nodes:node/worker-1'], node('worker-1', 'worker'))).to.include('worker-1');
  });

  it('does not wait for nodes that no agent runs on', () => {
    const foreign = node('z-0', 'worker', { nodeInfo: { architecture: 's390x' } });
    const state = readLoadState({ spec }, [node('worker-0', 'worker'), foreign, ...nodesWithoutAgent], new Map());
    expect(state.nodes.map(({ name }) => name)).to.deep.equal(['worker-0']);
    expect(state.condition.message).to.match(
      /worker-0 does not have all images yet; no agent runs on aci-0 \(virtual kubelet\), .*, win-0 \(Windows\), z-0 \(s390x\)$/,
    );
  });
});
