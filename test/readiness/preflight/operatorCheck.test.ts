import { expect } from 'chai';
import type { UpdatePlan } from '../../../lib/bundle/verify/updatePlan.ts';
import { withConditions } from '../../fakes/cluster/site.ts';
import { PreflightSite, plan } from '../../support/release/preflightSite.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';

describe('the preflight of operators and pools', () => {
  const site = new PreflightSite();
  const { start, run, find, messageOf } = site;
  afterEach(() => site.close());

  it('blocks an update in which etcd would lose its quorum, and not a boot', async () => {
    await start();
    const put = (message: string): void => {
      const conditions = [{ type: 'EtcdMembersAvailable', status: 'True', reason: 'EtcdQuorate', message }];
      const etcd = { apiVersion: 'operator.openshift.io/v1', kind: 'Etcd', metadata: { name: 'cluster' }, spec: {} };
      site.server.put({ ...etcd, status: { conditions } });
    };
    const own = async (update?: UpdatePlan): Promise<string[]> =>
      (await run(update)).findings.flatMap(({ check, severity, message }) =>
        check === 'etcd' ? [`${severity} ${message}`] : [],
      );
    put('2 of 3 members are available, master-1 is unhealthy');
    expect(await own(plan)).to.deep.equal([
      'blocker has no quorum while a control plane node restarts: 2 of 3 members are available, master-1 is ' +
        'unhealthy, and 2 have to stay',
    ]);
    expect(await own()).to.deep.equal([]);
    put('2 members are available');
    expect(await own(plan)).to.have.length(1);
    const infrastructure = (controlPlaneTopology: string): void =>
      void site.server.put({
        apiVersion: config,
        kind: 'Infrastructure',
        metadata: { name: 'cluster' },
        status: { controlPlaneTopology },
      });
    infrastructure('DualReplica');
    expect(await own(plan)).to.deep.equal([]);
    put('1 of 2 members are available, master-1 is unhealthy');
    expect((await own(plan))[0]).to.match(/^blocker has no quorum/);
    infrastructure('TripleReplica');
    expect((await own(plan))[0]).to.match(/^warning has a control plane of the unknown topology TripleReplica/);
    infrastructure('HighlyAvailableArbiter');
    for (const good of ['3 members are available', '1 members are available', '4 of 5 members are available, x']) {
      put(good);
      expect(await own(plan), good).to.deep.equal([]);
    }
  });

  it('finds operators and pools that are not healthy', async () => {
    await start();
    site.server.put(withConditions(config, 'ClusterOperator', 'etcd', { Degraded: 'True because a member is gone' }));
    site.server.put(withConditions(config, 'ClusterOperator', 'ingress', { Available: 'False', Upgradeable: 'False' }));
    site.server.put(withConditions(machines, 'MachineConfigPool', 'master', { Updated: 'False', Degraded: 'True' }));
    const pool = withConditions(machines, 'MachineConfigPool', 'worker', { Updated: 'False' });
    site.server.put({ ...pool, spec: { paused: true } });
    site.server.put(withConditions(machines, 'MachineConfigPool', 'infra', { Updated: 'False because 1 of 3' }));
    expect(await find()).to.deep.equal([
      'blocker operators clusteroperator/etcd',
      'blocker operators clusteroperator/ingress',
      'blocker pools machineconfigpool/master',
      'warning pools machineconfigpool/infra',
      'warning pools machineconfigpool/worker',
      'info operators clusteroperator/ingress',
    ]);
    expect(await messageOf('blocker operators clusteroperator/etcd')).to.equal('is degraded: a member is gone');
    const advice = (await run()).findings.map(({ advice: each }) => each).join('\n');
    expect(advice)
      .to.contain('oc describe clusteroperator ingress')
      .and.to.contain('oc describe machineconfigpool master');
    expect(await find({ ...plan, version: '4.20.0', previous: ['4.19.3'] })).not.to.include(
      'info operators clusteroperator/ingress',
    );
  });
});
