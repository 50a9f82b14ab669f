import { expect } from 'chai';
import { connectCluster } from '../../lib/cluster/client.ts';
import { userOf, type Account } from '../../lib/update/record/accountAccess.ts';
import { osImageStreamKind } from '../fakes/kubernetes/apiKinds.ts';
import { readRights } from '../fakes/kubernetes/apiRights.ts';
import { Refusal, statusAnswer } from '../fakes/kubernetes/apiStatus.ts';
import { connectTo, startCluster } from '../support/cluster.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { describeCluster } from './contract.ts';
import { describeAccounts, type AccountSite } from './contractAccounts.ts';
import { describeCustomObjects } from './contractObjects.ts';
import { describeUpdates } from './contractUpdate.ts';
import { describeWatches } from './contractWatch.ts';

/** The key in the token of a pod that names its node. */
const nodeClaim = 'authentication.kubernetes.io/node-name';

describeCluster('Cluster, with the API server in this process', () => startCluster({ openshift: '4.14.3' }));
describeCustomObjects('custom objects, with the API server in this process', () => startCluster());
describeWatches('watches, with the API server in this process', () => startCluster());
describeUpdates('an update, with the API server in this process', () => startCluster());
describeAccounts('our accounts, with the API server in this process', startAccounts);
describeUpdates('an update, with one before rules in definitions', () => startCluster({ kubernetes: 'v1.24.9' }));

describe('Cluster', () => {
  it('asks once which kinds are served, also if one request ends early', async () => {
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
  describeAccounts('our accounts, with the API server of TEST_KUBECONFIG', () => {
    const open = new DisposableStack();
    const connect = async (account?: Account, node?: string) => {
      const asUserExtra = node === undefined ? [] : [`${nodeClaim}=${node}`];
      const user = account && { as: userOf(account), asUserExtra };
      return open.use(await connectCluster({ kubeconfig, ...user, environment: process.env }, makeContext()));
    };
    return Promise.resolve({ connect, close: async () => open.dispose() });
  });
} else {
  describe('Cluster, with a real one', () => {
    it.skip('(needs a kubeconfig: TEST_KUBECONFIG=… npm run test:cluster)');
  });
}

/** Starts a server with an administrator and with our accounts, whose rights are those of the stored roles. */
async function startAccounts(): Promise<AccountSite> {
  const users = new Map([['t', 'system:admin']]);
  const roles = () =>
    server.kinds
      .filter(({ group }) => group === 'rbac.authorization.k8s.io')
      .flatMap((kind) => server.objects.list(kind, '').map((object) => ({ ...object, kind: kind.kind })));
  const started = await startCluster({
    openshift: '5.0.0',
    kinds: [osImageStreamKind],
    tokens: users,
    policies: true,
    claims: (token): Record<string, string[]> => {
      const [, node = ''] = token.split('/');
      return node === '' ? {} : { [nodeClaim]: [node] };
    },
    allow: (attempt) => attempt.user === 'system:admin' || readRights(roles())(attempt),
  });
  const { server, cluster } = started;
  const open = new AsyncDisposableStack();
  open.use(started);
  const connect = async (account?: Account, node = '') => {
    if (!account) return cluster;
    const token = `${account}/${node}`;
    users.set(token, userOf(account));
    return open.use(await connectTo(server, { user: { token } })).cluster;
  };
  return { connect, close: () => open.disposeAsync() };
}
