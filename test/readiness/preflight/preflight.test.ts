import { expect } from 'chai';
import { PluginError } from '../../../lib/errors.ts';
import { pinnedOf } from '../../../lib/readiness/nodes/pinnedImageSets.ts';
import { runPreflight } from '../../../lib/readiness/preflight/preflight.ts';
import { platformImage, pod, podSpec, workload } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, startCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { PreflightSite, brief, plan } from '../../support/release/preflightSite.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const next = platformImage('b');
describe('runPreflight', () => {
  const site = new PreflightSite();
  const { start, run, find, messageOf, change } = site;
  afterEach(() => site.close());

  it('passes no cluster that shows no version, no node or no workload', async () => {
    await start();
    site.server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } });
    expect(await find()).to.deep.equal(['blocker version clusterversion/version']);
    await using empty = await startCluster({ openshift: '4.19.3' });
    const { findings } = await runPreflight(empty.cluster, undefined, empty.context);
    expect(findings.map(brief)).to.deep.equal(['blocker nodes node/', 'blocker rights pod/']);
  });

  it('finds nothing in a healthy cluster, and changes nothing', async () => {
    await start();
    const before = site.server.objects.revision;
    const report = await run();
    expect(report).to.deep.equal({
      cluster: 'test',
      version: '4.19.3',
      target: undefined,
      nodes: 3,
      workloads: 3,
      ready: true,
      findings: [],
      unused: [],
    });
    expect(site.server.objects.revision).to.equal(before);
    const updating = await run(plan);
    expect(updating.ready).to.equal(true);
    expect(updating.findings.map(({ message }) => message)).to.deep.equal(
      Array<string>(3).fill('has 1 of the 2 images of 4.19.4'),
    );
  });

  it('gives remedies that can be pasted, and counts pins of custom pools', async () => {
    await start();
    change(machines, 'MachineConfigPool', 'worker', { spec: { paused: true } });
    const { findings } = await run();
    const advice = findings.find(({ message }) => message === 'is paused')?.advice ?? '';
    expect(advice).to.contain(`oc patch machineconfigpool worker --type=merge -p '{"spec":{"paused":false}}'`);
    const matchExpressions = [{ key: 'machineconfiguration.openshift.io/role', operator: 'In', values: ['worker'] }];
    const pool = { metadata: { name: 'infra' }, spec: { machineConfigSelector: { matchExpressions } } };
    const labels = { 'machineconfiguration.openshift.io/role': 'worker' };
    const set = { metadata: { name: 's', generation: 1, labels }, spec: { pinnedImages: [{ name: next }] } };
    const conditions = ['Progressing', 'Degraded'].map((state) => ({
      type: `PinnedImageSets${state}`,
      status: 'False',
    }));
    const status = { conditions, pinnedImageSets: [{ name: 's', currentGeneration: 1 }] };
    const poolNode = { metadata: { name: 'infra-0' }, spec: { pool: { name: 'infra' } }, status };
    const own = { apiVersion: machines, kind: 'x' };
    const known = pinnedOf({
      pools: [{ ...own, ...pool }],
      pinnedSets: [{ ...own, ...set }],
      poolNodes: [{ ...own, ...poolNode }],
    });
    expect([...(known.get('infra-0') ?? [])]).to.deep.equal([next]);
  });

  it('warns of agents that no longer run in the image of the machine config daemon', async () => {
    await start();
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const put = (name: string, namespace: string, digit: string): void => {
      const containers = [{ name, image: platformImage(digit), imagePullPolicy: 'IfNotPresent' }];
      site.server.put(workload('DaemonSet', name, namespace, { template: { spec: { containers } } }));
    };
    put('machine-config-daemon', 'openshift-machine-config-operator', 'a');
    put('agent', 'oc-upgrade-bundle', 'a');
    expect(await find()).to.deep.equal([]);
    put('agent', 'oc-upgrade-bundle', 'd');
    expect(await find()).to.include('warning images daemonset/agent -n oc-upgrade-bundle');
  });

  it('warns of pools whose nodes remove their images after a power failure', async () => {
    await start();
    const file = (name: string, text: string) => ({
      path: `/etc/crio/crio.conf.d/${name}`,
      contents: { source: `data:,${encodeURIComponent(text)}` },
    });
    const render = (...files: Json[]): void => {
      const spec = { config: { storage: { files } } };
      site.server.put({ apiVersion: machines, kind: 'MachineConfig', metadata: { name: 'rendered-worker' }, spec });
    };
    render(file('00-default', '[crio]\ninternal_wipe = true\ninternal_repair = true\n'));
    change(machines, 'MachineConfigPool', 'worker', { status: { configuration: { name: 'rendered-worker' } } });
    expect(await find()).to.deep.equal(['warning pools machineconfigpool/worker']);
    expect(await messageOf('warning pools machineconfigpool/worker')).to.match(/^CRI-O removes all images of a node/);
    render(file('99-oc-upgrade-bundle', '[crio]\nclean_shutdown_file = ""\n'), file('00-default', '[crio]\n'));
    expect(await find()).to.deep.equal([]);
  });

  it('refuses a cluster that is not OpenShift', async () => {
    await start();
    await using plain = await startApiServer();
    await using other = await connectTo(plain);
    expect((await failureOf(runPreflight(other.cluster, plan, other.context), 'unsupported')).message).to.contain(
      'no ClusterVersion',
    );
  });

  describe('about workloads', () => {
    it('finds catalogs that poll or that a tag names', async () => {
      await start();
      const catalog = (name: string, spec: Json): void => {
        const metadata = { name, namespace: 'openshift-marketplace' };
        site.server.put({ apiVersion: 'operators.coreos.com/v1alpha1', kind: 'CatalogSource', metadata, spec });
      };
      const poll = { registryPoll: { interval: '10m' } };
      catalog('redhat-operators', { image: 'registry.redhat.io/x:v4.19', updateStrategy: poll });
      catalog('own', { image: platformImage('c'), updateStrategy: poll });
      catalog('good', { image: platformImage('c') });
      catalog('grpc', { address: 'catalog.shop.svc:50051' });
      const labels = { 'olm.catalogSource': 'own' };
      const served = pod('own-x', 'openshift-marketplace', podSpec({ imagePullPolicy: 'Always' }));
      site.server.put({ ...served, metadata: { ...served.metadata, labels } });
      expect(await find()).to.deep.equal([
        'warning pull-policy pod/own-x -n openshift-marketplace',
        'warning catalogs catalogsource/own -n openshift-marketplace',
        'warning catalogs catalogsource/redhat-operators -n openshift-marketplace',
      ]);
      const { findings } = await run();
      expect(findings.find(({ subject }) => subject.name === 'redhat-operators')?.advice).to.contain('operatorhub');
    });
  });

  describe('about the version', () => {
    it('reports a release that no trusted key signed', async () => {
      await start();
      const distrust = new PluginError('untrusted', 'x is signed by a key that is not trusted', { hint: 'Trust it.' });
      const { findings, ready } = await run({ ...plan, distrust });
      expect(ready).to.equal(false);
      expect(findings[0]).to.include({ check: 'bundle', severity: 'blocker', advice: 'Trust it.' });
    });
  });

  it('names pods that no drain can evict, if an update is planned', async () => {
    await start();
    const labels = { app: 'web' };
    const made = pod('web-0', 'shop', {}, 'ReplicaSet/web');
    site.server.put({ ...made, metadata: { ...made.metadata, labels } });
    const [metadata, spec] = [{ name: 'web', namespace: 'shop' }, { selector: { matchLabels: labels } }];
    const status = { disruptionsAllowed: 0, desiredHealthy: 1, expectedPods: 1 };
    site.server.put({ apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata, spec, status });
    expect(await find()).to.deep.equal([]);
    expect(await find(plan)).to.deep.equal(['blocker drains poddisruptionbudget/web -n shop']);
  });
});
