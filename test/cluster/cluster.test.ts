import { expect } from 'chai';
import { connectCluster } from '../../lib/cluster/client.ts';
import { Refusal, statusAnswer } from '../fakes/kubernetes/apiStatus.ts';
import { startCluster } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { describeCluster } from './contract.ts';
import { describeCustomObjects } from './contractObjects.ts';
import { describeUpdates } from './contractUpdate.ts';
import { describeWatches } from './contractWatch.ts';

describeCluster('Cluster, with the API server in this process', () => startCluster({ openshift: '4.14.3' }));
describeCustomObjects('custom objects, with the API server in this process', () => startCluster());
describeWatches('watches, with the API server in this process', () => startCluster());
describeUpdates('an update, with the API server in this process', () => startCluster());
describeUpdates('an update, with one before rules in definitions', () => startCluster({ kubernetes: 'v1.24.9' }));

describe('Cluster', () => {
  it('asks once which kinds are served, also for what may end earlier', async () => {
    await using started = await startCluster({ openshift: '4.19.3' });
    const { cluster, server } = started;
    const stop = new AbortController();
    const inner = cluster.within(stop.signal);
    await inner.list('v1', 'Node');
    await cluster.list('v1', 'Node');
    await cluster.within(AbortSignal.timeout(10_000)).list('v1', 'ConfigMap');
    expect(server.requests.filter(({ path }) => path === '/api/v1')).to.have.length(1);
    // A request that was interrupted must not be the response for others.
    server.fault(/^\/apis\/apps/, { noAnswer: 'hold' }, { times: 1 });
    const asking = inner.list('apps/v1', 'DaemonSet');
    stop.abort();
    await failureOf(asking, 'interrupted');
    expect(await cluster.list('apps/v1', 'DaemonSet')).to.deep.equal([]);
  });

  for (const [status, reason, requests] of [
    [410, 'Expired', 3],
    [403, 'Forbidden', 1],
  ] as const) {
    it(`asks for a list at most ${requests} times that is refused with ${status}`, async () => {
      await using started = await startCluster();
      const { cluster, server } = started;
      server.fault(/configmaps/, { answer: statusAnswer(new Refusal(status, reason, 'refused')) });
      await failureOf(cluster.list('v1', 'ConfigMap'));
      expect(server.requests.filter(({ path }) => path.endsWith('/configmaps'))).to.have.length(requests);
      server.clearFaults();
      server.fault(/configmaps/, { answer: statusAnswer(new Refusal(410, 'Expired', 'expired')) }, { times: 2 });
      expect(await cluster.list('v1', 'ConfigMap')).to.deep.equal([]);
    });
  }
});

const kubeconfig = process.env['TEST_KUBECONFIG'];
if (kubeconfig) {
  const connectThere = async () => {
    const cluster = await connectCluster({ kubeconfig, environment: process.env }, makeContext());
    return {
      cluster,
      close: async () => {
        cluster[Symbol.dispose]();
      },
    };
  };
  describeCluster('Cluster, with the one of TEST_KUBECONFIG', connectThere);
  describeCustomObjects('custom objects, with the API server of TEST_KUBECONFIG', connectThere);
  describeWatches('watches, with the API server of TEST_KUBECONFIG', connectThere);
  describeUpdates('an update, with the API server of TEST_KUBECONFIG', connectThere);
} else {
  describe('Cluster, with a real one', () => {
    it.skip('(needs a kubeconfig: TEST_KUBECONFIG=… npm run test:cluster)');
  });
}
