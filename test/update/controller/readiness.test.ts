import { expect } from 'chai';
import { conditionsOf } from '../../../lib/cluster/objects/storedObject.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { pod } from '../../fakes/cluster/site.ts';
import { upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

describe('the gate before an update', () => {
  let rollout: RolloutSite;
  beforeEach(async () => {
    rollout = await RolloutSite.start();
  });
  afterEach(() => rollout.close());
  const ready = (): string => rollout.condition('Ready');
  const putBudget = (status: Record<string, number>): void => {
    const labels = { app: 'web' };
    const web = pod('web-0', 'shop', {}, 'ReplicaSet/web');
    rollout.server.put({ ...web, metadata: { ...web.metadata, labels } });
    rollout.server.put({
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { name: 'web', namespace: 'shop' },
      spec: { selector: { matchLabels: labels } },
      status,
    });
  };
  const putEtcd = (message: string): void => {
    const conditions = [{ type: 'EtcdMembersAvailable', status: 'True', reason: 'EtcdQuorate', message }];
    const etcd = { apiVersion: 'operator.openshift.io/v1', kind: 'Etcd', metadata: { name: 'cluster' }, spec: {} };
    rollout.server.put({ ...etcd, status: { conditions } });
  };
  const putWebhook = (failurePolicy: string): void => {
    const clientConfig = { service: { name: 'guard', namespace: 'shop' } };
    const rules = [{ apiGroups: ['apps'], apiVersions: ['v1'], operations: ['*'], resources: ['deployments'] }];
    rollout.server.put({
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'ValidatingWebhookConfiguration',
      metadata: { name: 'guard' },
      webhooks: [{ name: 'guard.shop', failurePolicy, clientConfig, rules }],
    });
  };

  const cases: readonly (readonly [what: string, block: () => void, message: RegExp, mend: () => void])[] = [
    [
      'a budget that lets no pod be evicted',
      () => putBudget({ disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1 }),
      /^False Blocked: poddisruptionbudget\/web -n shop never allows to evict pod web-0 on worker-0. To overrule it: oc patch upgradebundle .*drains:poddisruptionbudget\/shop\/web/,
      () => putBudget({ disruptionsAllowed: 1, currentHealthy: 2, desiredHealthy: 1, expectedPods: 2 }),
    ],
    [
      'a member of etcd that is unhealthy',
      () => putEtcd('2 of 3 members are available, master-1 is unhealthy'),
      /^False Blocked: etcd\/cluster has no quorum while a control plane node restarts: 2 of 3 members/,
      () => putEtcd('3 members are available'),
    ],
    [
      'a webhook that does not answer',
      () => putWebhook('Fail'),
      /^False Blocked: validatingwebhookconfiguration\/guard guard\.shop .* refuses to change deployments. To overrule it: oc patch/,
      () => putWebhook('Ignore'),
    ],
  ];
  for (const [what, block, message, mend] of cases) {
    it(`stays closed for ${what}, also when everything is loaded, and opens by itself`, async () => {
      await rollout.control();
      block();
      rollout.server.put(upgradeBundle(undefined, { hold: true }));
      await rollout.until(() => ready().startsWith('False'));
      expect(ready()).to.match(message);
      expect(rollout.bundle()?.status?.phase).to.equal('Verified');
      mend();
      await rollout.untilPhase('Held');
      block();
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
      await rollout.until(() => ready().startsWith('False'));
      expect(ready()).to.match(message);
      expect(rollout.site.requests).to.deep.equal([]);
      mend();
      await rollout.untilPhase('Completed');
    });
  }

  it('ignores a blocker that spec.ignore names, and states the risk', async () => {
    const ignored = (): string => {
      const condition = conditionsOf(rollout.bundle() ?? {}).get('BlockersIgnored');
      return `${condition?.status ?? ''} ${condition?.reason ?? ''}: ${condition?.message ?? ''}`;
    };
    await rollout.control();
    putBudget({ disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1 });
    putEtcd('2 of 3 members are available, master-1 is unhealthy');
    rollout.server.put(upgradeBundle(undefined, { hold: true, ignore: ['drains:shop/web', 'nodes:node/gone'] }));
    await rollout.until(() => ready().startsWith('False'));
    expect(ready()).to.contain('etcd/cluster').and.not.to.contain('never allows to evict');
    expect(ready()).to.contain('"ignore":["drains:shop/web","nodes:node/gone","etcd:etcd/cluster"]');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { ignore: ['drains:shop/web', 'etcd', 'nodes'] } });
    await rollout.untilPhase('Held');
    expect(ignored())
      .to.contain('True Ignored: an administrator has overruled: poddisruptionbudget/web -n shop')
      .and.to.contain('repeats a refused eviction without end')
      .and.to.contain('not needed, because nothing is found: nodes');
    putBudget({ disruptionsAllowed: 1, currentHealthy: 2, desiredHealthy: 1, expectedPods: 2 });
    putEtcd('3 members are available');
    rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
    await rollout.untilPhase('Completed');
    expect(ignored()).to.contain('False NotNeeded').and.to.contain('drains:shop/web, etcd, nodes');
  });
});
