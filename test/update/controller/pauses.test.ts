import { expect } from 'chai';
import {
  isPaused,
  pauseNodeChanges,
  pausePools,
  restoreNodeChanges,
  restorePools,
} from '../../../lib/update/controller/pauses.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const pool = {
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'MachineConfigPool',
  metadata: { name: 'worker' },
  spec: { maxUnavailable: 1 },
};

describe('pausePools', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.18.3' });
    connected.server.put(pool);
  });
  afterEach(() => connected.close());

  const find = () => connected.server.find(pool.apiVersion, pool.kind, 'worker')!;

  /** Lets another client change the pool just before the next PATCH of it. */
  function changeBeforePatch(spec: object): void {
    connected.server.fault(
      ({ method }) => {
        if (method === 'PATCH') connected.server.put({ ...find(), spec });
        return method === 'PATCH';
      },
      {},
      { times: 1 },
    );
  }

  it('does not pause a pool that changed since it was read', async () => {
    changeBeforePatch({ maxUnavailable: 1, paused: true });
    await failureOf(
      pausePools(connected.cluster, 'bundle', () => true),
      'conflict',
    );
    expect(isPaused(find())).to.equal(false);
  });

  it('does not restore a pool that changed since it was read', async () => {
    await pausePools(connected.cluster, 'bundle', () => true);
    changeBeforePatch({ maxUnavailable: 2, paused: true });
    await failureOf(restorePools(connected.cluster), 'conflict');
    expect(find()['spec']).to.deep.equal({ maxUnavailable: 2, paused: true });
    await restorePools(connected.cluster);
    expect(find()['spec']).to.deep.equal({ maxUnavailable: 2 });
  });

  it('pauses only selected pools', async () => {
    await pausePools(connected.cluster, 'bundle', () => false);
    expect(isPaused(find())).to.equal(false);
  });

  it('restores the state before the first pause', async () => {
    const kind = { apiVersion: 'autoscaling.openshift.io/v1', kind: 'ClusterAutoscaler' };
    const spec = { resourceLimits: { maxNodesTotal: 9 }, scaleDown: { enabled: true } };
    connected.server.put({ ...kind, metadata: { name: 'default' }, spec });
    const autoscaler = () => connected.server.find(kind.apiVersion, kind.kind, 'default')!;
    for (let turn = 0; turn < 2; turn += 1) await pauseNodeChanges(connected.cluster, 'bundle', 3);
    expect(autoscaler()['spec']).to.deep.equal({ resourceLimits: { maxNodesTotal: 3 }, scaleDown: { enabled: false } });
    await restoreNodeChanges(connected.cluster);
    expect(autoscaler()['spec']).to.deep.equal(spec);
  });

  it('leaves the pools alone if it pauses objects that replace nodes', async () => {
    await pauseNodeChanges(connected.cluster, 'bundle', 3);
    expect(isPaused(find())).to.equal(false);
  });
});
