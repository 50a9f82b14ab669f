import { expect } from 'chai';
import { formatSubject } from '../../../lib/cluster/finding.ts';
import { checkCapacity, checkDrains } from '../../../lib/readiness/preflight/drainCheck.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { furnish, node, pod } from '../../fakes/cluster/site.ts';
import { virtualMachineKind } from '../../fakes/kubernetes/apiKinds.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const labels = { app: 'web' };
const matching = { selector: { matchLabels: labels } };

describe('preflight of drains', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.19.3' });
    furnish(connected.server);
  });
  afterEach(() => connected.close());

  const putPod = (name: string, more: Json = {}, owner = 'ReplicaSet/web'): void => {
    const made = pod(name, 'shop', {}, owner);
    connected.server.put({ ...made, ...more, metadata: { ...made.metadata, labels } });
  };
  const putBudget = (name: string, status: Json, spec: Json = matching): void => {
    connected.server.put({
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { name, namespace: 'shop' },
      spec,
      status,
    });
  };
  const never = { disruptionsAllowed: 0, currentHealthy: 2, desiredHealthy: 2, expectedPods: 2 };
  const find = async (): Promise<string[]> =>
    checkDrains(await surveyCluster(connected.cluster)).map(
      ({ severity, subject, message }) => `${severity} ${formatSubject(subject)} ${message}`,
    );

  it('names the pods and nodes of a budget that never allows an eviction', async () => {
    putPod('web-0');
    putPod('web-1');
    putBudget('web', never);
    expect(await find()).to.deep.equal([
      'blocker poddisruptionbudget/web -n shop never allows to evict 2 pods: web-0 on worker-0, web-1 on worker-0',
    ]);
  });

  it('warns of a budget that allows no eviction until another pod is healthy', async () => {
    putPod('web-0');
    putBudget('web', { ...never, currentHealthy: 1, desiredHealthy: 1 });
    expect(await find()).to.deep.equal([
      'warning poddisruptionbudget/web -n shop does not allow to evict pod web-0 on worker-0 now: 1 of 2 are ' +
        'healthy, and 1 must stay',
    ]);
  });

  it('finds pods that two budgets name, because the API server evicts none of them', async () => {
    putPod('web-0');
    putBudget('all', { ...never, disruptionsAllowed: 1 }, { selector: {} });
    putBudget('web', { ...never, disruptionsAllowed: 1 });
    const only = 'is not the only budget of pod web-0 on worker-0';
    expect(await find()).to.deep.equal(
      ['all', 'web'].map((name) => `blocker poddisruptionbudget/${name} -n shop ${only}`),
    );
  });

  it('only warns if a controller that moves its pods decides about evictions', async () => {
    putPod('db-1', {}, 'Cluster/db');
    putBudget('db-primary', { ...never, expectedPods: 1, currentHealthy: 1, desiredHealthy: 1 });
    expect(await find()).to.deep.equal([
      'warning poddisruptionbudget/db-primary -n shop never allows to evict pod db-1 on worker-0: Cluster/db ' +
        'decides about it',
    ]);
    putBudget('all', { ...never, disruptionsAllowed: 1 }, { selector: {} });
    expect((await find()).map((line) => line.split(' ')[0])).to.deep.equal(['warning', 'warning']);
  });

  it('only warns if the budget itself has such a controller', async () => {
    putPod('osd-0');
    const owner = { apiVersion: 'ceph.rook.io/v1', kind: 'CephCluster', name: 'ceph', uid: 'x', controller: true };
    putBudget('osd', { ...never, expectedPods: 1, currentHealthy: 1, desiredHealthy: 1 });
    const budget = connected.server.find('policy/v1', 'PodDisruptionBudget', 'osd', 'shop');
    connected.server.put({ ...budget, metadata: { ...(budget?.metadata as Json), ownerReferences: [owner] } });
    expect((await find())[0]).to.match(/^warning .*: CephCluster\/ceph decides about it$/);
  });

  describe('of virtual machines', () => {
    beforeEach(() => void connected.server.kinds.push(virtualMachineKind));
    const putMachine = (name: string, migratable: Json, spec: Json = {}): void => {
      putPod(`virt-launcher-${name}`, {}, `VirtualMachineInstance/${name}`);
      putBudget(`kubevirt-${name}`, { ...never, expectedPods: 1, currentHealthy: 1, desiredHealthy: 1 });
      connected.server.put({
        apiVersion: 'kubevirt.io/v1',
        kind: 'VirtualMachineInstance',
        metadata: { name, namespace: 'shop' },
        spec,
        status: { phase: 'Running', conditions: [{ type: 'LiveMigratable', ...migratable }] },
      });
    };

    it('warns once that they are migrated, although their budgets never allow an eviction', async () => {
      putMachine('db1', { status: 'True' }, { evictionStrategy: 'LiveMigrate' });
      putMachine('db2', { status: 'True' });
      expect(await find()).to.deep.equal([
        'warning virtualmachineinstance/ drains wait for the migration of 2 virtual machines: shop/db1 on ' +
          'worker-0, shop/db2 on worker-0',
      ]);
    });

    it('finds one that must be migrated and cannot be, with its reason', async () => {
      const fixed = { status: 'False', reason: 'DisksNotLiveMigratable', message: 'PVC db is not shared' };
      putMachine('db1', fixed, { evictionStrategy: 'LiveMigrate' });
      const stuck =
        'blocker virtualmachineinstance/db1 -n shop cannot leave worker-0 for its update, because it cannot be ' +
        'migrated: DisksNotLiveMigratable, PVC db is not shared';
      expect(await find()).to.deep.equal([stuck]);
      putMachine('db1', fixed);
      expect(await find()).to.deep.equal([stuck]);
      putMachine('db1', fixed, { evictionStrategy: 'None' });
      expect(await find()).to.deep.equal([]);
      putMachine('db1', fixed, { evictionStrategy: 'LiveMigrateIfPossible' });
      expect((await find())[0]).to.match(/^warning/);
    });
  });

  it('finds nothing where a drain does not wait', async () => {
    putBudget('empty', never);
    putBudget('free', { ...never, disruptionsAllowed: 1 });
    putBudget('nothing', never, {});
    putPod('daemon', {}, 'DaemonSet/web');
    putPod('static', {}, 'Node/worker-0');
    putPod('ended', { status: { phase: 'Succeeded' } });
    putPod('starting', { status: { phase: 'Pending' } });
    expect(await find()).to.deep.equal([]);
  });

  it('lets a pod go that is not ready, if the budget says so', async () => {
    putPod('web-0', { status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'False' }] } });
    putBudget('web', never, { ...matching, unhealthyPodEvictionPolicy: 'AlwaysAllow' });
    expect(await find()).to.deep.equal([]);
    putBudget('web', never);
    expect(await find()).to.have.length(1);
  });

  it('finds nothing in a cluster with one control plane node, because its nodes are not drained', async () => {
    putPod('web-0');
    putBudget('web', never);
    const infrastructure = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'Infrastructure',
      metadata: { name: 'cluster' },
    };
    connected.server.put({ ...infrastructure, status: { controlPlaneTopology: 'HighlyAvailable' } });
    expect(await find()).to.have.length(1);
    connected.server.put({ ...infrastructure, status: { controlPlaneTopology: 'SingleReplica' } });
    expect(await find()).to.deep.equal([]);
  });

  describe('and the space for their pods', () => {
    const put = (name: string, role: 'master' | 'worker', cpu = '4', spec: Json = {}): void => {
      const status = node(name, role)['status'] as Json;
      connected.server.put(node(name, role, { ...status, allocatable: { cpu, memory: '16Gi' } }, spec));
    };
    const putLoad = (name: string, nodeName: string, requests: Json, owner?: string): void => {
      putPod(name, { spec: { nodeName, containers: [{ name: 'main', resources: { requests } }] } }, owner);
    };
    const putPool = (maxUnavailable: Json | string): void => {
      const pool = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'MachineConfigPool' };
      const status = { machineCount: 3 };
      connected.server.put({ ...pool, metadata: { name: 'worker' }, spec: { maxUnavailable }, status });
    };
    const findSpace = async (): Promise<string[]> =>
      checkCapacity(await surveyCluster(connected.cluster)).map(
        ({ severity, subject, message }) => `${severity} ${formatSubject(subject)} ${message}`,
      );
    beforeEach(() => {
      for (const name of ['worker-0', 'worker-1', 'worker-2']) put(name, 'worker');
      putLoad('web-0', 'worker-0', { cpu: '2500m', memory: '1Gi' });
      putLoad('web-1', 'worker-1', { cpu: '2' });
      putLoad('dns-0', 'worker-0', { cpu: 1 }, 'DaemonSet/dns');
    });

    it('warns if the pods of a node do not fit on the others', async () => {
      expect(await findSpace()).to.deep.equal([]);
      putLoad('web-2', 'worker-2', { cpu: '3800m' });
      putLoad('web-3', 'worker-1', { memory: '15Gi' });
      putLoad('web-4', 'worker-0', { memory: '15Gi' });
      expect(await findSpace()).to.deep.equal([
        'warning node/worker-2 the pods of worker-2 request 3.8 CPUs, and the other nodes of the role have 2.5 ' +
          'CPUs left',
      ]);
      putLoad('web-5', 'worker-2', { memory: '2Gi' });
      expect(await findSpace()).to.include(
        'warning node/worker-0 the pods of worker-0 request 16.0 GiB of memory, and the other nodes of the ' +
          'role have 15.0 GiB of memory left',
      );
    });

    it('counts as many nodes as the pools drain together, and no cordoned node', async () => {
      putPool('70%');
      expect((await findSpace())[0]).to.match(/pods of worker-0, worker-1 request 4\.5 CPUs, .* 4 CPUs left/);
      putPool('50%');
      expect(await findSpace()).to.deep.equal([]);
      put('worker-2', 'worker', '4', { unschedulable: true });
      expect((await findSpace())[0]).to.match(/pods of worker-0 request 2\.5 CPUs, .* 2 CPUs left/);
    });
  });
});
