import { expect } from 'chai';
import { checkImageRemoval } from '../../../lib/readiness/preflight/imageRemoval.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { furnish } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const gibibyte = 1024 ** 3;

describe('preflight of the removal of images', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.20.2' });
    furnish(connected.server);
    for (const name of ['master-0', 'worker-0', 'worker-1']) setDisk(name, 50, 100);
  });
  afterEach(() => connected.close());

  const setDisk = (name: string, free: number, size: number): void => {
    const fs = { availableBytes: free * gibibyte, capacityBytes: size * gibibyte };
    connected.server.nodeStats.set(name, { node: { fs, runtime: { imageFs: fs } } });
  };
  const putConfig = (pool: string, kubeletConfig: Json): void => {
    const matchLabels = { [`pools.operator.machineconfiguration.openshift.io/${pool}`]: '' };
    connected.server.put({
      ...{ apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'KubeletConfig', metadata: { name: 'gc' } },
      spec: { machineConfigPoolSelector: { matchLabels }, kubeletConfig },
    });
  };
  const find = async (added = 0): Promise<string[]> =>
    checkImageRemoval(await surveyCluster(connected.cluster), added * gibibyte).map(
      ({ severity, subject, message }) => `${severity} ${subject.name} ${message}`,
    );

  it('finds nothing with the settings of the kubelet itself, and room', async () => {
    expect(await find(30)).to.deep.equal([]);
  });

  it('warns of images that go by age, by the KubeletConfig of a pool', async () => {
    putConfig('worker', { imageMaximumGCAge: '24h0m0s' });
    expect(await find()).to.deep.equal([
      'warning worker-0 its kubelet removes images that no pod uses after 24h0m0s (imageMaximumGCAge) (as on worker-1)',
    ]);
    putConfig('worker', { imageMaximumGCAge: '0s' });
    expect(await find()).to.deep.equal([]);
  });

  it('computes with the thresholds of each kubelet whether a bundle makes it remove images', async () => {
    expect(await find(40)).to.deep.equal([
      'warning master-0 its kubelet removes images above 85 % of the disk (imageGCHighThresholdPercent), and 90 % will be used once the bundle is loaded (as on worker-0, worker-1)',
      'warning master-0 its kubelet evicts pods and removes images below 15% of free space (evictionHard imagefs.available), and 10 % stay free (as on worker-0, worker-1)',
    ]);
    const own = { imageGCHighThresholdPercent: 95, evictionHard: { 'imagefs.available': '5Gi' } };
    for (const name of ['master-0', 'worker-0', 'worker-1']) connected.server.nodeConfigs.set(name, own);
    expect(await find(40)).to.deep.equal([]);
    expect(await find(46)).to.have.length(2);
  });

  it('takes what a kubelet runs with before what its KubeletConfig says', async () => {
    putConfig('worker', { imageMaximumGCAge: '24h' });
    for (const name of ['worker-0', 'worker-1']) connected.server.nodeConfigs.set(name, { imageMaximumGCAge: '0s' });
    expect(await find()).to.deep.equal([]);
  });
});
