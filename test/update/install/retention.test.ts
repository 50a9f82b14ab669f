import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { readConfigFile, retention } from '../../../lib/readiness/nodes/imageRetention.ts';
import { installRetention, planRetention, removeRetention } from '../../../lib/update/install/retention.ts';
import type { ApiObject, Change } from '../../fakes/kubernetes/apiObjects.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectGolden } from '../../support/program/golden.ts';
import { until } from '../../support/until.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const wait = { timeout: 120_000, interval: 10 };
const roleLabel = 'machineconfiguration.openshift.io/role';
const options = { overwrite: false } as const;

describe('the retention of images', () => {
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
    if (kind.kind === 'MachineConfiguration') void takePolicyLater();
    if (kind.kind !== 'MachineConfig') return;
    const role = (object.metadata['labels'] as Json | undefined)?.[roleLabel];
    if (typeof role !== 'string') return;
    if (!policies().includes(retention.path)) rebooted.push(role);
    const sources = type === 'DELETED' ? [`00-${role}`] : [`00-${role}`, object.metadata.name];
    setImmediate(() => setPool(role, sources, !stuck.has(role)));
  };
  const policies = (): unknown[] => {
    const status = (server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster')?.['status'] ?? {}) as {
      nodeDisruptionPolicyStatus?: { clusterPolicies: { files: { path: string }[] } };
    };
    return status.nodeDisruptionPolicyStatus?.clusterPolicies.files.map(({ path }) => path) ?? [];
  };
  /** Takes a policy only when the client has sent a few requests more. */
  const takePolicyLater = async (): Promise<void> => {
    for (let count = 0; count < 3; count += 1) await server.nextRequest();
    const object = server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster');
    if (object) takePolicy(object);
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

  it('is equal to the golden file: a policy, and a file for each role of pools', async () => {
    await open('4.19.3');
    const { policy, configs } = await planRetention(connected.cluster);
    const texts = [policy, ...configs].map((object) => formatManifest(object));
    await expectGolden('cluster/image-retention.yaml', texts.join('---\n'));
    expect(configs[0] && readConfigFile(configs[0], retention.path)).to.match(/^\[crio\]\nclean_shutdown_file = ""$/m);
  });

  it('comes with no reboot: the files only when the policy is in force', async () => {
    await open('4.19.3');
    const stated = await installRetention(connected.cluster, options, wait, connected.context);
    expect(stated.map(({ object, outcome }) => `${object.kind} ${outcome}`)).to.deep.equal([
      'MachineConfiguration configured',
      'MachineConfig created',
      'MachineConfig created',
    ]);
    expect(rebooted).to.deep.equal([]);
    const { revision } = server.objects;
    await installRetention(connected.cluster, options, wait, connected.context);
    expect(server.objects.revision).to.equal(revision);
  });

  it('serves pools of other roles, without nodes too, and custom pools by the role that they select', async () => {
    await open('4.20.3');
    setPool('arbiter', ['00-arbiter']);
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
    const { configs } = await planRetention(connected.cluster);
    expect(configs.map(({ metadata }) => metadata.name)).to.deep.equal([
      '98-master-oc-upgrade-bundle-store',
      '98-worker-oc-upgrade-bundle-store',
      '98-arbiter-oc-upgrade-bundle-store',
    ]);
    const installing = installRetention(connected.cluster, options, wait, connected.context);
    await until(() => server.find(machines, 'MachineConfig', '98-arbiter-oc-upgrade-bundle-store'));
    setPool('infra', ['00-worker', '98-worker-oc-upgrade-bundle-store']);
    await installing;
    const gone = await removeRetention(connected.cluster, {}, undefined, connected.context);
    expect(gone).to.have.length(3);
  });

  it('goes the other way round, and keeps the policies of others', async () => {
    await open('4.19.3');
    await installRetention(connected.cluster, options, wait, connected.context);
    const gone = await removeRetention(connected.cluster, {}, wait, connected.context);
    expect(gone.map(({ metadata }) => metadata.name)).to.deep.equal([
      '98-master-oc-upgrade-bundle-store',
      '98-worker-oc-upgrade-bundle-store',
    ]);
    expect(rebooted).to.deep.equal([]);
    expect(await removeRetention(connected.cluster, {}, wait, connected.context)).to.deep.equal([]);
    while (policies().length > 1) await connected.cluster.version();
    expect(policies()).to.deep.equal(['/etc/theirs']);
  });

  it('names the pool that is not ready', async () => {
    await open('4.19.3');
    stuck.add('worker');
    const error = await failureOf(
      installRetention(connected.cluster, options, { timeout: 200, interval: 10 }, connected.context),
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
    const error = await failureOf(installRetention(connected.cluster, options, wait, connected.context), 'not-ready');
    expect(error.message).to.contain('the pool worker is paused');
    expect(server.objects.revision).to.equal(revision);
  });

  it('is refused if it would reboot nodes', async () => {
    await open('4.16.9');
    await failureOf(planRetention(connected.cluster), 'unsupported');
  });
});
