import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { clusterVersionReference } from '../../../lib/cluster/version/clusterVersion.ts';
import { fieldsOf } from '../../../lib/fields.ts';
import { describeNodes, type KnownProgress } from '../../../lib/update/controller/nodeReports.ts';
import { readProgress } from '../../../lib/update/controller/updateRequest.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, nodesWithoutAgent, platformImage } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

const asDown = (object: StoredObject): StoredObject => ({
  ...object,
  status: { ...fieldsOf(object['status']), conditions: [{ type: 'Ready', status: 'Unknown' }] },
});

describe('describeNodes', () => {
  const progress = { name: 'worker-0', phase: 'Loaded', imagesLoaded: 3, imagesTotal: 3, bytes: 0 } as const;
  const observe = (
    reports: Readonly<Record<string, KnownProgress>>,
    { phase = 'Loaded', age = 0 }: { phase?: string; age?: number } = {},
  ): string[] => {
    const creationTimestamp = new Date(Date.now() - age).toISOString();
    const bundle = { ...upgradeBundle(undefined, {}, { creationTimestamp }), status: { phase } };
    const site = { nodes: [node('worker-0', 'worker'), ...nodesWithoutAgent.map(asDown)] };
    const observation = { bundle, site, reports: new Map(Object.entries(reports)) } as object as Parameters<
      typeof describeNodes
    >[0];
    return describeNodes(observation).map(({ reason, message }) => `${reason}: ${message}`);
  };

  it('waits for no node outside of the pools', () => {
    expect(observe({ 'worker-0': { progress, isRecent: true } }, { age: 16 * 60_000 })).to.deep.equal([]);
    const status = { history: [{ state: 'Completed', image: platformImage('b') }], conditions: [] };
    const version = { ...clusterVersionReference, status };
    const nodes = [node('worker-0', 'worker'), ...nodesWithoutAgent.map(asDown)];
    expect(readProgress(version, platformImage('b'), [], nodes).done).to.equal(true);
    expect(readProgress(version, platformImage('b'), [], nodes.map(asDown)).message).to.equal(
      'node worker-0 is not ready',
    );
  });

  it('names silent agents, but waits for the first report of a new bundle', () => {
    const silent = ['AgentsSilent: no agent has reported for 15 minutes from worker-0'];
    expect(observe({ 'worker-0': { progress, isRecent: true } })).to.deep.equal([]);
    expect(observe({ 'worker-0': { progress, isRecent: false } })).to.deep.equal(silent);
    expect(observe({})).to.deep.equal([]);
    expect(observe({}, { age: 16 * 60_000 })).to.deep.equal(silent);
    expect(observe({}, { age: 16 * 60_000, phase: 'Upgrading' })).to.deep.equal([]);
  });

  it('names nodes that are not ready in the record, with the words of the kubelet, until they are ready', async () => {
    await using rollout = await RolloutSite.start();
    const conditions = (status: string) => [
      { type: 'Ready', status, reason: 'x', message: 'container runtime is down' },
    ];
    rollout.server.put(upgradeBundle(undefined, { hold: true }));
    await rollout.control();
    await rollout.untilPhase('Held');
    rollout.edit('Node', 'worker-0', { status: { conditions: conditions('False') } });
    await rollout.until(() => rollout.condition('NodesNotReady').startsWith('True'));
    expect(rollout.condition('NodesNotReady')).to.equal(
      'True NodesNotReady: node worker-0 is not ready: container runtime is down',
    );
    rollout.edit('Node', 'worker-0', { status: { conditions: conditions('True') } });
    await rollout.until(() => rollout.condition('NodesNotReady').startsWith('False'));
  });
});
