import { expect } from 'chai';
import { readLoadState } from '../../../lib/update/controller/loadState.ts';
import type { KnownProgress } from '../../../lib/update/controller/nodeReports.ts';
import type { BaseState } from '../../../lib/update/record/nodeReport.ts';
import type { NodePhase } from '../../../lib/update/record/upgradeBundle.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, nodesWithoutAgent } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';

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

describe('a rollout while nodes load', () => {
  let rollout: RolloutSite;
  const start = async (options: ApiServerOptions = {}): Promise<void> => {
    rollout = await RolloutSite.start(options);
  };
  afterEach(() => rollout.close());

  const put = (spec: Json = {}, metadata: Json = {}, name?: string): void => {
    rollout.server.put(upgradeBundle(name, spec, metadata));
  };

  describe('that report', () => {
    it('names silent nodes, and waits for them', async () => {
      await start();
      rollout.site.silent.add('worker-1');
      put();
      await rollout.control();
      await rollout.until(() => rollout.condition('Loaded').includes('worker-1 does not have'));
      expect(rollout.condition('Loaded')).to.contain('False NodesMissing: no report from worker-1');
      expect(rollout.bundle()?.status?.nodesReady).to.equal('2/3');
      rollout.site.silent.clear();
      rollout.site.wake();
      await rollout.untilPhase('Completed');
    });

    it('names the failed node and the error, and lets other control plane nodes load meanwhile', async () => {
      await start();
      rollout.server.put(node('master-1', 'master'));
      rollout.site.failing.set('master-0', 'the disk is full');
      put();
      await rollout.control();
      await rollout.until(() => rollout.bundle()?.status?.nodesReady === '3/4');
      expect(rollout.condition('Loaded')).to.contain('False NodesFailed: master-0: the disk is full');
      rollout.site.failing.clear();
      rollout.site.wake();
      await rollout.untilPhase('Completed');
      expect(rollout.site.loadingAtOnce).to.equal(1);
    });

    it('goes back to loading when a node joins before the update begins', async () => {
      await start();
      put({ hold: true });
      await rollout.control();
      await rollout.untilPhase('Held');
      rollout.site.silent.add('worker-2');
      rollout.server.put(node('worker-2', 'worker'));
      await rollout.untilPhase('Loading');
      expect(rollout.condition('Loaded')).to.contain('no report from worker-2');
      rollout.site.silent.clear();
      rollout.site.wake();
      await rollout.untilPhase('Held');
      expect(rollout.phases).to.deep.equal([
        ...['Verified', 'Loading', 'Loaded', 'Pinned', 'Upgrading', 'Completed'].slice(0, 4),
        'Held',
        'Loading',
        'Loaded',
        'Pinned',
        'Held',
      ]);
      expect(rollout.bundle()?.status?.nodesReady).to.equal('4/4');
    });

    it('goes back to loading when a node joins before all images are pinned', async () => {
      await start();
      rollout.site.pinning = false;
      put();
      await rollout.control();
      await rollout.untilPhase('Loaded');
      rollout.site.silent.add('worker-2');
      rollout.server.put(node('worker-2', 'worker'));
      await rollout.untilPhase('Loading');
    });

    it('forgets nodes that are gone', async () => {
      await start();
      rollout.site.silent.add('worker-1');
      put();
      await rollout.control();
      await rollout.until(() => rollout.bundle()?.status?.nodesReady === '2/3');
      rollout.remove('Node', 'worker-1');
      await rollout.untilPhase('Completed');
      expect(rollout.bundle()?.status?.nodesReady).to.equal('2/2');
    });

    it('removes reports of nodes that are gone, by any writer', async () => {
      await start();
      rollout.site.failing.set('worker-1', 'the disk is full');
      put();
      await rollout.control();
      const said = (): unknown => rollout.bundle()?.status?.nodes?.find(({ name }) => name === 'worker-1')?.message;
      await rollout.until(() => said() === 'the disk is full');
      // As agents of an earlier version do.
      const entry = { name: 'worker-9', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 };
      const { apiVersion = '', kind = '', metadata } = rollout.bundle() ?? {};
      const served = rollout.server.kinds.find((known) => known.kind === kind);
      if (!served || !metadata) throw new Error('there is no UpgradeBundle');
      rollout.server.objects.apply(
        { kind: served, namespace: '', name: metadata.name },
        { apiVersion, kind, metadata: { name: metadata.name }, status: { nodes: [entry] } },
        { manager: 'agent-worker-9', dryRun: false, status: true },
        true,
      );
      rollout.remove('Node', 'worker-1');
      await rollout.untilPhase('Completed');
      expect(rollout.bundle()?.status?.nodes?.map(({ name }) => name)).to.deep.equal(['master-0', 'worker-0']);
      await rollout.until(() => rollout.all('Lease').every(({ metadata: { name } }) => name !== 'agent-worker-1'));
      expect(rollout.all('Lease')).to.have.length(3);
    });

    it('limits the messages of nodes to the room of the status', async () => {
      await start();
      const names = Array.from({ length: 100 }, (_, index) => `worker-${index + 10}`);
      for (const name of names) {
        rollout.server.put(node(name, 'worker'));
        rollout.site.failing.set(name, 'the disk is full '.repeat(200));
      }
      put();
      await rollout.control();
      await rollout.until(() => (rollout.bundle()?.status?.nodes ?? []).filter((each) => each.message).length === 100);
      expect(JSON.stringify(rollout.bundle()?.status).length).to.be.lessThan(300_000);
      expect(rollout.bundle()?.status?.nodes?.find(({ name }) => name === 'worker-10')?.message).to.have.length(1941);
    });
  });
});
