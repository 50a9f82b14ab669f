import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { AgentReport, reportPause } from '../../../lib/update/agent/agentReport.ts';
import { readReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import type { NodeProgress, UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const { apiVersion, kind, namespace } = reportKind;
const entry: NodeProgress = { name: 'a', phase: 'Loading', imagesLoaded: 1, imagesTotal: 9, bytes: 5, free: 2 ** 40 };
const digest = digestOf('bundle');

describe('AgentReport', () => {
  let api: TestApiServer;
  let connected: StartedCluster;

  before(async () => {
    connected = await startCluster();
    ({ server: api } = connected);
    api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  });
  after(() => connected.close());

  const bundle = (uid = 'u', nodesReady = '0/3') =>
    ({ metadata: { name: 'x', uid }, status: { nodesReady } }) as UpgradeBundle;
  const start = (origin?: string): AgentReport => new AgentReport(connected.cluster, origin);
  const written = (): number => api.requests.filter(({ method }) => method === 'PATCH').length;
  /** Returns the number of writes to the cluster for these entries, one after the other. */
  const send = async (report: AgentReport, ...entries: NodeProgress[]): Promise<number> => {
    const before = written();
    for (const each of entries) await report.send(bundle(), each);
    return written() - before;
  };

  it('writes the report of its node into a Lease of its own', async () => {
    await start('http://10.0.0.1:8080').send(bundle(), entry, { offers: digest });
    await send(start(), { ...entry, name: 'b' });
    const [a, b] = ['a', 'b'].map((node) => api.find(apiVersion, kind, `agent-${node}`, namespace));
    expect(a && readReport(a)?.report).to.deep.include({
      bundle: 'u',
      progress: entry,
      origin: 'http://10.0.0.1:8080',
    });
    expect(b && readReport(b)?.report).to.deep.equal({ bundle: 'u', progress: { ...entry, name: 'b' } });
    expect(a?.metadata['labels']).to.include({ 'upgrade-bundle.openshift.io/offers': digest.slice(7, 39) });
    expect(b?.metadata['labels']).not.to.have.property('upgrade-bundle.openshift.io/offers');
  });

  it('says nothing twice, and does not tell of every number', async () => {
    const report = start();
    expect(await send(report, entry, entry)).to.equal(1);
    expect(await send(report, { ...entry, free: 2 ** 40 - 5 }, { ...entry, imagesLoaded: 2 })).to.equal(0);
    const loaded: NodeProgress = { ...entry, phase: 'Loaded', imagesLoaded: 9 };
    expect(await send(report, loaded, { ...loaded, message: 'new' })).to.equal(2);
  });

  it('reports at once an offer, and its knowledge for another UpgradeBundle', async () => {
    const report = start();
    await send(report, entry);
    const before = written();
    for (const [uid, offers] of [
      ['u', { offers: digest }],
      ['u', { offers: digest, base: 'offered' }],
      ['u', {}],
      ['v', {}],
    ] as const)
      await report.send(bundle(uid), entry, offers);
    expect(written() - before).to.equal(4);
  });

  it('reports every five minutes that it is alive, while no bundle is active too', async () => {
    let now = 0;
    const report = new AgentReport(connected.cluster, undefined, () => now);
    const before = written();
    for (const minutes of [0, 4, 6, 7]) {
      now = minutes * 60_000;
      await report.propose(undefined, entry);
    }
    expect(written() - before).to.equal(2);
    expect(report.state).to.deep.equal({ progress: entry, reportAge: 60 });
    const mirror = { versions: ['4.20.3'], requests: 1, lacking: [] };
    await report.propose(undefined, entry, mirror);
    expect(written() - before).to.equal(3);
    await report.propose(undefined, entry, { ...mirror, requests: 2 });
    expect(written() - before).to.equal(3, 'a number alone can wait');
    await report.propose(undefined, entry, { ...mirror, lacking: ['a/b@sha256:c'] });
    expect(written() - before).to.equal(4);
  });

  it('tells of numbers the less often the more nodes there are', () => {
    expect([0, 3, 30, 500].map(reportPause)).to.deep.equal([3000, 3000, 3000, 50_000]);
  });
});
