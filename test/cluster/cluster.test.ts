import { connectCluster } from '../../lib/cluster/client.ts';
import { startApiServer } from '../support/apiServer.ts';
import { connectTo } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { describeCluster } from './contract.ts';

describeCluster('Cluster, with the API server in this process', async () => {
  const server = await startApiServer({ openshift: '4.14.3' });
  const connected = await connectTo(server);
  return {
    cluster: connected.cluster,
    close: async () => {
      await connected.close();
      await server.stop();
    },
  };
});

const kubeconfig = process.env['TEST_KUBECONFIG'];
if (kubeconfig) {
  describeCluster('Cluster, with the one of TEST_KUBECONFIG', async () => {
    const cluster = await connectCluster({ kubeconfig, environment: process.env }, makeContext());
    return {
      cluster,
      close: async () => {
        cluster.close();
      },
    };
  });
} else {
  describe('Cluster, with a real one', () => {
    it.skip('(needs a kubeconfig: TEST_KUBECONFIG=… npm run test:cluster)');
  });
}
