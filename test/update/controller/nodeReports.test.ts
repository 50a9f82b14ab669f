import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { clusterVersionReference } from '../../../lib/cluster/version/clusterVersion.ts';
import { fieldsOf } from '../../../lib/fields.ts';
import {
  describeNodes,
  type KnownProgress,
  NodeReports,
  silenceLimit,
} from '../../../lib/update/controller/nodeReports.ts';
import { readProgress } from '../../../lib/update/controller/updateRequest.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { node, nodesWithoutAgent, platformImage } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

describe('NodeReports', () => {
  const lease = (name: string, renewTime: string, bundle = 'u', version?: string): StoredObject => {
    const progress = { name, phase: 'Loading', imagesLoaded: 1, imagesTotal: 2, bytes: 3 } as const;
    return { ...formatNodeReport({ bundle, version, progress }), spec: { holderIdentity: name, renewTime } };
  };

  it('are those for one UpgradeBundle, each by the node of its Lease', () => {
    const stray = { ...lease('c', '1'), spec: { holderIdentity: 'd', renewTime: '1' } };
    const known = new NodeReports().read([lease('a', '1'), lease('b', '1', 'another'), stray], 'u');
    expect([...known.keys()]).to.deep.equal(['a']);
    expect(known.get('a')).to.deep.include({ isRecent: true });
  });

  it('are those for the release that is asked for', () => {
    const leases = [lease('a', '1', 'u', '4.19.5'), lease('b', '1', 'u', '4.20.3'), lease('c', '1')];
    const names = (version?: string): string[] => [...new NodeReports().read(leases, 'u', 0, version).keys()];
    expect(names('4.20.3')).to.deep.equal(['b']);
    expect(names()).to.deep.equal(['a', 'b', 'c']);
  });

  it('tell who has said nothing for long, by the clock of the reader', () => {
    const reports = new NodeReports();
    const hear = (time: string, now: number) => reports.read([lease('a', time)], 'u', now).get('a')?.isRecent;
    expect(hear('2001-01-01', 0)).to.equal(true);
    expect(hear('2001-01-01', silenceLimit - 1)).to.equal(true);
    expect(hear('2001-01-01', silenceLimit)).to.equal(false);
    expect(hear('2000-01-01', silenceLimit + 1)).to.equal(true);
    expect(new NodeReports().read([lease('a', '2001-01-01')], 'u', silenceLimit).get('a')?.isRecent).to.equal(true);
  });
});

describe('describeNodes', () => {
  it('expects the first report of an agent within 15 minutes, and later ones always', () => {
    const now = Date.now();
    const describeAfter = (age: number, reports: Map<string, unknown>): string[] => {
      const metadata = { name: 'u', creationTimestamp: new Date(now - age).toISOString() };
      const input = { bundle: { metadata, spec: {} }, site: { nodes: [node('a', 'worker')] }, reports };
      return describeNodes(input as never, now).map(({ reason }) => reason);
    };
    expect(describeAfter(silenceLimit - 1000, new Map())).to.deep.equal([]);
    expect(describeAfter(silenceLimit + 1000, new Map())).to.deep.equal(['AgentsSilent']);
    expect(describeAfter(0, new Map([['a', { isRecent: false }]]))).to.deep.equal(['AgentsSilent']);
    expect(describeAfter(silenceLimit + 1000, new Map([['a', { isRecent: true }]]))).to.deep.equal([]);
  });
});

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
