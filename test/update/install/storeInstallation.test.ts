import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { readConfigFile, retention } from '../../../lib/preflight/imageRetention.ts';
import { installStore, removeStore } from '../../../lib/update/install/storeInstallation.ts';
import { planStore, storePolicy } from '../../../lib/update/install/storeObjects.ts';
import { formatManifest } from '../../../lib/config/manifest.ts';
import type { ApiObject, Change } from '../../fakes/kubernetes/apiObjects.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const storage = '[storage]\ndriver = "overlay"\n\n[storage.options]\nadditionalimagestores = [\n]\n';
const wait = { timeout: 120_000, interval: 10, additional: true };
const roleLabel = 'machineconfiguration.openshift.io/role';
const options = { overwrite: false } as const;

async function until(holds: () => unknown): Promise<void> {
  while (!holds()) await sleep(5);
}

describe('an additional store', () => {
  let server: TestApiServer;
  let connected: ConnectedCluster;
  /** The files that were changed before the policy was in force, in order. */
  let rebooted: string[];
  /** Pools that make no progress. */
  let stuck: Set<string>;

  const open = async (openshift: string): Promise<void> => {
    server = await startApiServer({ openshift });
    rebooted = [];
    stuck = new Set();
    if (server.kinds.some(({ kind }) => kind === 'MachineConfiguration')) {
      const metadata = { name: 'cluster' };
      const files = [{ path: '/etc/theirs', actions: [{ type: 'None' }] }];
      const spec = { managementState: 'Managed', nodeDisruptionPolicy: { files } };
      server.put({
        apiVersion: 'operator.openshift.io/v1',
        kind: 'MachineConfiguration',
        metadata,
        spec,
        status: {},
      });
    }
    for (const role of ['master', 'worker']) {
      putRendered(role, storage);
      setPool(role, [`00-${role}`]);
    }
    server.objects.on('change', operate);
    connected = await connectTo(server);
  };
  afterEach(async () => {
    server.objects.off('change', operate);
    await connected.close();
    await server.stop();
  });
  const putRendered = (pool: string, text: string): void => {
    const source = `data:,${encodeURIComponent(text)}`;
    const files = [{ path: '/etc/containers/storage.conf', contents: { source } }];
    const metadata = { name: `rendered-${pool}` };
    server.put({ apiVersion: machines, kind: 'MachineConfig', metadata, spec: { config: { storage: { files } } } });
  };
  const setPool = (role: string, sources: readonly string[], updated = true): void => {
    const conditions = [{ type: 'Updated', status: updated ? 'True' : 'False' }];
    const configuration = { name: `rendered-${role}`, source: sources.map((name) => ({ name })) };
    const status = { conditions, configuration, machineCount: 3, updatedMachineCount: updated ? 3 : 1 };
    const known = server.find(machines, 'MachineConfigPool', role);
    const { spec, metadata } = { spec: known?.['spec'] ?? {}, metadata: known?.metadata ?? { name: role } };
    server.put({ apiVersion: machines, kind: 'MachineConfigPool', metadata, spec, status });
  };
  /** Acts as the machine config operator: applies policies, and writes files to pools. */
  const operate = ({ type, kind, object }: Change): void => {
    if (kind.kind === 'MachineConfiguration') queueMicrotask(() => takePolicy(object));
    if (kind.kind !== 'MachineConfig') return;
    const role = (object.metadata['labels'] as Json | undefined)?.[roleLabel];
    if (typeof role !== 'string') return;
    if (!policies().includes('/etc/containers/storage.conf')) rebooted.push(role);
    const sources = type === 'DELETED' ? [`00-${role}`] : [`00-${role}`, object.metadata.name];
    setImmediate(() => setPool(role, sources, !stuck.has(role)));
  };
  const policies = (): unknown[] => {
    const status = (server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster')?.['status'] ?? {}) as {
      nodeDisruptionPolicyStatus?: { clusterPolicies: { files: { path: string }[] } };
    };
    return status.nodeDisruptionPolicyStatus?.clusterPolicies.files.map(({ path }) => path) ?? [];
  };
  const takePolicy = (object: ApiObject): void => {
    const { nodeDisruptionPolicy } = object['spec'] as { nodeDisruptionPolicy?: { files?: Json[] } };
    const clusterPolicies = { files: nodeDisruptionPolicy?.files ?? [] };
    const status = {
      observedGeneration: object.metadata['generation'],
      nodeDisruptionPolicyStatus: { clusterPolicies },
    };
    const kind = server.kinds.find((each) => each.kind === 'MachineConfiguration');
    if (JSON.stringify(object['status']) === JSON.stringify(status) || !kind) return;
    const place = { kind, namespace: '', name: 'cluster' };
    server.objects.replace(place, { ...object, status }, { manager: 'operator', dryRun: false, status: true });
  };

  it('is equal to the golden file: a policy, and each pool’s own storage.conf with the store in it', async () => {
    await open('4.19.3');
    const { policy, configs } = await planStore(connected.cluster, { additional: true });
    const texts = [policy, ...configs].map((object) => formatManifest(object));
    await expectGolden('cluster/additional-store.yaml', texts.join('---\n'));
    expect(configs[0] && readConfigFile(configs[0], '/etc/containers/storage.conf')).to.equal(
      storage.replace('[\n]', '["/var/lib/shared/oc-upgrade-bundle/store"]'),
    );
  });

  it('comes with no reboot: the files only when the policy is in force', async () => {
    await open('4.19.3');
    const stated = await installStore(connected.cluster, options, wait, connected.context);
    expect(stated.map(({ object, outcome }) => `${object.kind} ${outcome}`)).to.deep.equal([
      ...['MachineConfiguration configured', 'MachineConfig created', 'MachineConfig created'],
    ]);
    expect(rebooted).to.deep.equal([]);
    const { revision } = server.objects;
    await installStore(connected.cluster, options, wait, connected.context);
    expect(server.objects.revision).to.equal(revision);
  });

  it('has a setting of CRI-O that keeps images after a power failure, which can be installed alone', async () => {
    await open('4.19.3');
    const alone = { ...wait, additional: false };
    await installStore(connected.cluster, options, alone, connected.context);
    const installed = () => server.find(machines, 'MachineConfig', '98-worker-oc-upgrade-bundle-store');
    const has = (path: string): boolean => readConfigFile(installed() as never, path) !== undefined;
    expect(readConfigFile(installed() as never, retention.path)).to.match(/^\[crio\]\nclean_shutdown_file = ""$/m);
    expect(has('/etc/containers/storage.conf')).to.equal(false);
    await installStore(connected.cluster, options, wait, connected.context);
    expect([has('/etc/containers/storage.conf'), has(retention.path)]).to.deep.equal([true, true]);
    // Another run never removes the store of nodes.
    await installStore(connected.cluster, options, alone, connected.context);
    expect(has('/etc/containers/storage.conf')).to.equal(true);
    expect(rebooted).to.deep.equal([]);
  });

  it('serves pools of other roles, without nodes too, and custom pools by the role that they select', async () => {
    await open('4.20.3');
    putRendered('arbiter', storage);
    setPool('arbiter', ['00-arbiter']);
    putRendered('infra', storage);
    setPool('infra', ['00-worker']);
    const selector = { matchExpressions: [{ key: roleLabel, operator: 'In', values: ['worker', 'infra'] }] };
    const infra = server.find(machines, 'MachineConfigPool', 'infra');
    server.put({
      ...infra,
      apiVersion: machines,
      kind: 'MachineConfigPool',
      metadata: { name: 'infra' },
      spec: { machineConfigSelector: selector },
    });
    const { configs } = await planStore(connected.cluster, { additional: true });
    expect(configs.map(({ metadata }) => metadata.name)).to.deep.equal([
      ...['98-master-oc-upgrade-bundle-store', '98-worker-oc-upgrade-bundle-store'],
      '98-arbiter-oc-upgrade-bundle-store',
    ]);
    const installing = installStore(connected.cluster, options, wait, connected.context);
    await until(() => server.find(machines, 'MachineConfig', '98-arbiter-oc-upgrade-bundle-store'));
    setPool('infra', ['00-worker', '98-worker-oc-upgrade-bundle-store']);
    await installing;
    const gone = await removeStore(connected.cluster, { removePins: true }, undefined, connected.context);
    expect(gone).to.have.length(3);
    putRendered('infra', `${storage}# infra`);
    const error = await failureOf(planStore(connected.cluster, { additional: true }), 'conflict');
    expect(error.message).to.equal('The pools infra and worker have different files /etc/containers/storage.conf');
  });

  it('goes the other way round, and keeps the policies of others', async () => {
    await open('4.19.3');
    await installStore(connected.cluster, options, wait, connected.context);
    const gone = await removeStore(connected.cluster, { removePins: true }, wait, connected.context);
    expect(gone.map(({ metadata }) => metadata.name)).to.deep.equal([
      ...['98-master-oc-upgrade-bundle-store', '98-worker-oc-upgrade-bundle-store'],
    ]);
    expect(rebooted).to.deep.equal([]);
    expect(policies()).to.deep.equal(['/etc/theirs']);
    expect(await removeStore(connected.cluster, { removePins: true }, wait, connected.context)).to.deep.equal([]);
  });

  it('names the pool that is not ready', async () => {
    await open('4.19.3');
    stuck.add('worker');
    const error = await failureOf(
      installStore(connected.cluster, options, { timeout: 200, interval: 10, additional: true }, connected.context),
      'not-ready',
    );
    expect(error.message).to.equal('After 0 s it is not ready: the pool worker: 1 of 3 nodes are up to date');
  });

  it('touches nothing while a pool is paused or degraded', async () => {
    await open('4.19.3');
    const pool = server.find(machines, 'MachineConfigPool', 'worker');
    server.put({
      ...pool,
      apiVersion: machines,
      kind: 'MachineConfigPool',
      metadata: { name: 'worker' },
      spec: { paused: true },
    });
    const { revision } = server.objects;
    const error = await failureOf(installStore(connected.cluster, options, wait, connected.context), 'not-ready');
    expect(error.message).to.contain('the pool worker is paused');
    expect(server.objects.revision).to.equal(revision);
  });

  it('is refused if it would reboot nodes, and if another MachineConfig would hide it', async () => {
    await open('4.16.9');
    await failureOf(planStore(connected.cluster, { additional: true }), 'unsupported');
    await connected.close();
    await server.stop();
    await open('4.19.3');
    const files = [{ path: '/etc/containers/storage.conf', contents: { source: 'data:,' } }];
    const metadata = {
      name: '99-worker-generated-containerruntime',
      labels: { 'machineconfiguration.openshift.io/role': 'worker' },
    };
    server.put({ apiVersion: machines, kind: 'MachineConfig', metadata, spec: { config: { storage: { files } } } });
    const error = await failureOf(planStore(connected.cluster, { additional: true }), 'conflict');
    expect(error.message).to.contain('99-worker-generated-containerruntime');
  });

  it('leaves storage.conf to the container runtime’s own configuration if that supports stores', async () => {
    await open('4.23.1');
    const { configs } = await planStore(connected.cluster, { additional: true });
    expect(configs.map(({ kind }) => kind)).to.deep.equal([
      ...['MachineConfig', 'MachineConfig', 'ContainerRuntimeConfig', 'ContainerRuntimeConfig'],
    ]);
    expect(JSON.stringify(configs)).not.to.contain('"path":"/etc/containers/storage.conf"');
    expect(JSON.stringify(storePolicy)).to.contain('crio.service');
  });

  it('leaves the container runtime’s configuration to another user who has the store in it, and refuses to fight', async () => {
    const theirs = (stores: readonly string[]): void => {
      const matchLabels = { [`pools.operator.machineconfiguration.openshift.io/worker`]: '' };
      const containerRuntimeConfig = { additionalImageStores: stores.map((path) => ({ path })) };
      const spec = { machineConfigPoolSelector: { matchLabels }, containerRuntimeConfig };
      server.put({ apiVersion: machines, kind: 'ContainerRuntimeConfig', metadata: { name: 'theirs' }, spec });
    };
    await open('4.23.1');
    const pool = server.find(machines, 'MachineConfigPool', 'worker');
    const labels = { 'pools.operator.machineconfiguration.openshift.io/worker': '' };
    server.put({ ...pool, apiVersion: machines, kind: 'MachineConfigPool', metadata: { name: 'worker', labels } });
    theirs(['/var/lib/theirs']);
    const { revision } = server.objects;
    const error = await failureOf(installStore(connected.cluster, options, wait, connected.context), 'conflict');
    expect(error.message).to.contain('ContainerRuntimeConfig theirs configures the pools of the role worker');
    expect(server.objects.revision).to.equal(revision);
    theirs(['/var/lib/theirs', '/var/lib/shared/oc-upgrade-bundle/store']);
    const { configs } = await planStore(connected.cluster, { additional: true });
    expect(configs.map(({ kind, metadata }) => `${kind} ${metadata.name}`)).to.deep.equal([
      ...['MachineConfig 98-master-oc-upgrade-bundle-store', 'MachineConfig 98-worker-oc-upgrade-bundle-store'],
      'ContainerRuntimeConfig oc-upgrade-bundle-store-master',
    ]);
  });
});
