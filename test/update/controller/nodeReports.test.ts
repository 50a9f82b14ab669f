import { expect } from 'chai';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import { describeNodes, NodeReports, silenceLimit } from '../../../lib/update/controller/nodeReports.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { node } from '../../fakes/cluster/site.ts';

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
