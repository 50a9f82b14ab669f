import { expect } from 'chai';
import { AgentReport, reportPause } from '../../lib/cluster/agentReport.ts';
import type { NodeProgress, UpgradeBundle } from '../../lib/cluster/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/cluster/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../support/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../support/cluster.ts';

const apiVersion = 'upgrade-bundle.openshift.io/v1alpha1';
const entry: NodeProgress = { name: 'a', phase: 'Loading', imagesLoaded: 1, imagesTotal: 9, bytes: 5, free: 2 ** 40 };

describe('AgentReport', () => {
  let api: TestApiServer;
  let connected: ConnectedCluster;

  before(async () => {
    api = await startApiServer();
    api.put(upgradeBundleDefinition());
    connected = await connectTo(api);
  });
  after(async () => {
    await connected.close();
    await api.stop();
  });
  beforeEach(() => {
    api.put({ apiVersion, kind: 'UpgradeBundle', metadata: { name: 'x' }, spec: { bundle: {} } });
  });

  const stored = (): UpgradeBundle => api.find(apiVersion, 'UpgradeBundle', 'x') as unknown as UpgradeBundle;
  const written = (): number => api.requests.filter(({ method }) => method === 'PATCH').length;
  /** How often the cluster was written to for these entries, one after the other. */
  const send = async (report: AgentReport, ...entries: NodeProgress[]): Promise<number> => {
    const before = written();
    for (const each of entries) await report.send(stored(), each);
    return written() - before;
  };

  it('writes the entry of its node, beside those of others', async () => {
    await send(new AgentReport(connected.cluster, 'a'), entry);
    const long = 'b'.repeat(200);
    await send(new AgentReport(connected.cluster, long), { ...entry, name: long });
    expect(stored().status?.nodes?.map(({ name }) => name)).to.deep.equal(['a', long]);
    const managers = (stored().metadata as { managedFields?: { manager: string }[] }).managedFields ?? [];
    expect(managers.map(({ manager }) => manager.length)).to.satisfy((all: number[]) =>
      all.every((each) => each <= 128),
    );
  });

  it('says nothing that the cluster knows, and does not tell of every number', async () => {
    const report = new AgentReport(connected.cluster, 'a');
    expect(await send(report, entry, entry)).to.equal(1);
    expect(await send(report, { ...entry, free: 2 ** 40 - 5 }, { ...entry, imagesLoaded: 2 })).to.equal(0);
    const loaded: NodeProgress = { ...entry, phase: 'Loaded', imagesLoaded: 9 };
    expect(await send(report, loaded, { ...loaded, message: 'new' })).to.equal(2);
  });

  it('tells of numbers the less often the more nodes there are', () => {
    expect([3, 30, 500].map(reportPause)).to.deep.equal([3000, 3000, 50_000]);
  });

  it('writes again what somebody has taken away', async () => {
    const report = new AgentReport(connected.cluster, 'a');
    await send(report, entry);
    api.put({ apiVersion, kind: 'UpgradeBundle', metadata: { name: 'x' }, spec: { bundle: {} } });
    expect(await send(report, entry)).to.equal(1);
  });
});
