import { expect } from 'chai';
import { UpgradeBundleReader } from '../../../lib/update/agent/upgradeBundleReader.ts';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { until } from '../../support/until.ts';

const apiVersion = 'upgrade-bundle.openshift.io/v1alpha1';

describe('UpgradeBundleReader', () => {
  let api: TestApiServer;
  let connected: StartedCluster;

  before(async () => {
    connected = await startCluster();
    ({ server: api } = connected);
  });
  after(() => connected.close());
  beforeEach(() => {
    api.put(upgradeBundleDefinition({ rules: false }));
  });

  const nodes = Array.from({ length: 200 }, (_, index) => ({
    name: `n${index}`,
    phase: 'Waiting',
    imagesLoaded: 0,
    imagesTotal: 0,
    bytes: 0,
  }));
  const put = (name: string, status: object, spec: object = {}): void =>
    void api.put({ apiVersion, kind: 'UpgradeBundle', metadata: { name }, spec: { bundle: {}, ...spec }, status });
  /** Returns the number of requests and bytes during some work. */
  const count = async (work: () => Promise<unknown>): Promise<{ requests: number; bytes: number }> => {
    const before = api.requests.length;
    await work();
    const made = api.requests.slice(before);
    return { requests: made.length, bytes: made.reduce((sum, { bytesSent }) => sum + bytesSent, 0) };
  };

  it('returns the spec and the progress, without the entries of nodes', async () => {
    put('x', { phase: 'Loading', turn: 'n1', nodesReady: '1/200', version: '4.19.4', nodes }, { hold: true });
    put('y', {}, { bundle: { file: '/dev/sdb' } });
    const [x, y, ...more] = await new UpgradeBundleReader(connected.cluster).list();
    expect(more).to.deep.equal([]);
    expect(x?.metadata.uid).to.be.a('string');
    expect(x?.metadata).not.to.have.property('managedFields');
    expect(x).to.deep.include({ spec: { bundle: {}, hold: true } });
    expect(x?.status).to.deep.equal({ phase: 'Loading', turn: 'n1', nodesReady: '1/200', version: '4.19.4' });
    expect(y).to.deep.include({ spec: { bundle: { file: '/dev/sdb' }, hold: false }, status: {} });
    for (const name of ['x', 'y'])
      await connected.cluster.delete({ apiVersion, kind: 'UpgradeBundle', metadata: { name } });
  });

  it('reads an UpgradeBundle again when something else of it has changed than its status, and little otherwise', async () => {
    put('x', { phase: 'Loading', nodes });
    const glance = new UpgradeBundleReader(connected.cluster);
    await glance.list();
    const reference = { apiVersion, kind: 'UpgradeBundle', metadata: { name: 'x' } };
    await connected.cluster.patch(reference, { status: { phase: 'Loaded' } }, { subresource: 'status' });
    const again = await count(async () => {
      expect((await glance.list())[0]?.status?.phase).to.equal('Loaded');
    });
    expect(again.requests).to.equal(1);
    expect(again.bytes).to.be.lessThan(2000);
    await connected.cluster.patch(reference, { spec: { hold: true } });
    expect((await glance.list())[0]?.spec.hold).to.equal(true);
    put('x', {});
    const [fresh] = await glance.list();
    expect(fresh?.spec.hold).to.equal(false);
    expect(fresh?.status).to.deep.equal({});
    await connected.cluster.delete(reference);
    expect(await glance.list()).to.deep.equal([]);
  });

  it('asks for nothing while nothing changes, and sees the next change', async () => {
    put('x', { phase: 'Completed', nodes });
    const reader = new UpgradeBundleReader(connected.cluster);
    for (let round = 0; round < 2; round += 1) await reader.list();
    const rest = await count(async () => {
      for (let round = 0; round < 20; round += 1) expect((await reader.list())[0]?.status?.phase).to.equal('Completed');
    });
    // The watch itself.
    expect(rest.requests).to.be.at.most(1);
    const reference = { apiVersion, kind: 'UpgradeBundle', metadata: { name: 'x' } };
    await connected.cluster.patch(reference, { status: { phase: 'Detected' } }, { subresource: 'status' });
    await until(async () => (await reader.list())[0]?.status?.phase === 'Detected');
    await connected.cluster.delete(reference);
    await until(async () => (await reader.list()).length === 0);
  });

  it('lists each time where it must not watch', async () => {
    put('x', { phase: 'Completed' });
    const refused = api.fault(/watch=true/, { answer: { status: 403 } });
    const reader = new UpgradeBundleReader(connected.cluster);
    for (let round = 0; round < 2; round += 1) await reader.list();
    await until(() => refused.hits === 1);
    await until(async () => (await count(() => reader.list())).requests === 1);
    expect((await count(() => reader.list())).requests).to.equal(1);
    expect(refused.hits).to.equal(1);
    api.clearFaults();
  });

  it('reads everything if the definition is of an earlier version', async () => {
    const definition = JSON.stringify(upgradeBundleDefinition({ rules: false }));
    api.put(JSON.parse(definition.replace('"Generation"', '"Other"')) as Parameters<typeof api.put>[0]);
    put('x', { phase: 'Loading', nodes });
    const [x] = await new UpgradeBundleReader(connected.cluster).list();
    expect(x?.status).to.deep.equal({ phase: 'Loading' });
    expect(x?.metadata).not.to.have.property('managedFields');
  });
});
