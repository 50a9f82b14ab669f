import { expect } from 'chai';
import type { UpdatePlan } from '../../../lib/bundle/verify/updatePlan.ts';
import { formatSubject, type Finding } from '../../../lib/cluster/finding.ts';
import { PluginError } from '../../../lib/errors.ts';
import { pinnedOf } from '../../../lib/readiness/nodes/pinnedImageSets.ts';
import { findLeftOut, runPreflight } from '../../../lib/readiness/preflight/preflight.ts';
import {
  furnish,
  node,
  nodesWithoutAgent,
  platformImage,
  pod,
  podSpec,
  setFree,
  withConditions,
  workload,
} from '../../fakes/cluster/site.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import { isJson, type Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { pinningFiles } from '../../support/release/pinning.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';
const next = platformImage('b');
const manifestsOf = (files: Readonly<Record<string, string>>): Map<string, Buffer> =>
  new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)]));

const plan: UpdatePlan = {
  path: 'upgrade-4.19.4-x86_64.tar',
  version: '4.19.4',
  arch: 'x86_64',
  previous: ['4.19.2', '4.19.3'],
  images: [platformImage('a'), next],
  components: {},
  size: 16 * 1024 ** 3,
  release: platformImage('b'),
  manifests: manifestsOf(pinningFiles(true)),
  distrust: undefined,
};

describe('runPreflight', () => {
  let server: TestApiServer;
  let connected: StartedCluster;

  const start = async (options: ApiServerOptions = {}): Promise<void> => {
    connected = await startCluster({ openshift: '4.19.3', ...options });
    ({ server } = connected);
    furnish(server);
  };
  const run = (update?: UpdatePlan) => runPreflight(connected.cluster, update, connected.context);
  const brief = ({ severity, check, subject }: Finding): string => `${severity} ${check} ${formatSubject(subject)}`;
  /** Returns the findings, each in a few words, without those about the images of the bundle. */
  const find = async (update?: UpdatePlan): Promise<string[]> => {
    const { findings } = await run(update);
    return findings.filter(({ message }) => !message.startsWith('has 1 of the 2')).map(brief);
  };
  const messageOf = async (wanted: string, update?: UpdatePlan): Promise<string> => {
    const { findings } = await run(update);
    return findings.find((finding) => brief(finding) === wanted)?.message ?? findings.map(brief).join('\n');
  };
  const change = (apiVersion: string, kind: string, name: string, changes: Json): void => {
    const before = server.find(apiVersion, kind, name);
    if (!before) throw new Error(`there is no ${kind} ${name}`);
    const merged = Object.entries(changes).map(([field, value]) => {
      const old = before[field];
      return [field, isJson(old) && isJson(value) ? { ...old, ...value } : value] as const;
    });
    server.put({ ...before, ...Object.fromEntries(merged) });
  };

  afterEach(() => connected.close());

  it('passes no cluster that shows no version, no node or no workload', async () => {
    await start();
    server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } });
    expect(await find()).to.deep.equal(['blocker version clusterversion/version']);
    await connected.close();
    connected = await startCluster({ openshift: '4.19.3' });
    expect(await find()).to.deep.equal(['blocker nodes node/', 'blocker rights pod/']);
  });

  it('finds nothing in a healthy cluster, and changes nothing', async () => {
    await start();
    const before = server.objects.revision;
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
    expect(server.objects.revision).to.equal(before);
    const updating = await run(plan);
    expect(updating.ready).to.equal(true);
    expect(updating.findings.map(({ message }) => message)).to.deep.equal(
      Array<string>(3).fill('has 1 of the 2 images of 4.19.4'),
    );
  });

  it('blocks an update in which etcd would lose its quorum, and not a boot', async () => {
    await start();
    const put = (message: string): void => {
      const conditions = [{ type: 'EtcdMembersAvailable', status: 'True', reason: 'EtcdQuorate', message }];
      const etcd = { apiVersion: 'operator.openshift.io/v1', kind: 'Etcd', metadata: { name: 'cluster' }, spec: {} };
      server.put({ ...etcd, status: { conditions } });
    };
    const own = async (update?: UpdatePlan): Promise<string[]> =>
      (await run(update)).findings.flatMap(({ check, severity, message }) =>
        check === 'etcd' ? [`${severity} ${message}`] : [],
      );
    put('2 of 3 members are available, master-1 is unhealthy');
    expect(await own(plan)).to.deep.equal([
      'blocker has no quorum while a control plane node restarts: 2 of 3 members are available, master-1 is unhealthy, and 2 have to stay',
    ]);
    expect(await own()).to.deep.equal([]);
    put('2 members are available');
    expect(await own(plan)).to.have.length(1);
    const infrastructure = (controlPlaneTopology: string): void =>
      void server.put({
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

  it('finds admission that changes images, and blocks it where the pods of the platform are', async () => {
    const rewritten = (namespaces: readonly string[]): Promise<void> =>
      start({
        admit: (object) => {
          const { spec, metadata } = object as { spec?: { containers?: Json[] }; metadata: { namespace?: string } };
          if (object['kind'] !== 'Pod' || !namespaces.includes(metadata.namespace ?? '')) return object;
          const containers = spec?.containers?.map((each) => ({ ...each, image: 'mirror.local/x:1' })) ?? [];
          return { ...object, spec: { ...spec, containers } };
        },
      });
    const own = 'openshift-machine-config-operator';
    await rewritten(['default', own]);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: own } });
    expect(await find()).to.deep.equal([`blocker admission pod/* -n ${own}`, 'warning admission pod/* -n default']);
    expect(await messageOf('warning admission pod/* -n default')).to.contain(' becomes mirror.local/x:1');
    await connected.close();
    await rewritten(['shop']);
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: own } });
    expect(await find()).to.deep.equal([]);
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
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    const put = (name: string, namespace: string, digit: string): void => {
      const containers = [{ name, image: platformImage(digit), imagePullPolicy: 'IfNotPresent' }];
      server.put(workload('DaemonSet', name, namespace, { template: { spec: { containers } } }));
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
      server.put({ apiVersion: machines, kind: 'MachineConfig', metadata: { name: 'rendered-worker' }, spec });
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
    it('names the workloads that pull at every start, by the uppermost object that sets it and its owner', async () => {
      await start();
      const always = { template: { spec: podSpec({ imagePullPolicy: 'Always' }) } };
      const metadata = {
        ownerReferences: [{ apiVersion: 'apps/v1', kind: 'Deployment', name: 'web', uid: 'x', controller: true }],
      };
      server.put(workload('Deployment', 'web', 'shop', always));
      server.put(workload('ReplicaSet', 'web-1', 'shop', always, metadata));
      server.put(workload('ReplicaSet', 'web-0', 'shop', { ...always, replicas: 0 }, metadata));
      server.put(pod('web-1-x', 'shop', podSpec({ imagePullPolicy: 'Always' }), 'ReplicaSet/web-1'));
      server.put(workload('StatefulSet', 'etcd', 'openshift-etcd', always));
      server.put(workload('DaemonSet', 'asleep', 'shop', { ...always, replicas: 0 }));
      expect(await find()).to.deep.equal([
        'blocker pull-policy statefulset/etcd -n openshift-etcd',
        'warning pull-policy deployment/web -n shop',
        'info pull-policy daemonset/asleep -n shop',
      ]);
      expect(await messageOf('warning pull-policy deployment/web -n shop')).to.equal(
        'container main pulls from a registry at every start (pull policy: Always)',
      );
    });

    it('sees init and ephemeral containers, jobs and cron jobs, and ignores ended pods', async () => {
      await start();
      const container = { name: 'x', image: 'quay.io/site/tool:1', imagePullPolicy: 'Always' };
      server.put(pod('debugged', 'shop', { ephemeralContainers: [container] }));
      server.put(pod('initial', 'shop', { initContainers: [container] }));
      server.put({ ...pod('done', 'shop', { initContainers: [container] }), status: { phase: 'Succeeded' } });
      server.put({
        ...workload('Job', 'over', 'shop', { template: { spec: podSpec(container) } }),
        status: { conditions: [{ type: 'Complete', status: 'True' }] },
      });
      server.put({
        ...workload('Job', 'nightly', 'shop', { jobTemplate: { spec: { template: { spec: podSpec(container) } } } }),
        kind: 'CronJob',
      });
      const found = await find();
      expect(found.filter((line) => line.includes('pull-policy'))).to.deep.equal([
        'warning pull-policy pod/debugged -n shop',
        'warning pull-policy pod/initial -n shop',
        'warning pull-policy cronjob/nightly -n shop',
      ]);
      expect(found.filter((line) => line.includes('tags'))).to.have.length(3);
      expect(await messageOf('warning pull-policy pod/debugged -n shop')).to.match(/^ephemeral container x pulls /);
      expect(await messageOf('info tags pod/initial -n shop')).to.equal(
        'init container x names an image by tag: quay.io/site/tool:1',
      );
    });

    it('finds tags in place of digests', async () => {
      await start();
      const image = 'quay.io/site/tool:1';
      server.put(workload('Deployment', 'x', 'openshift-ingress', { template: { spec: podSpec({ image }) } }));
      server.put(workload('Deployment', 'y', 'shop', { template: { spec: podSpec({ image: 'tool' }) } }));
      const found = await find();
      expect(found).to.include('warning tags deployment/x -n openshift-ingress');
      expect(found).to.include('info tags deployment/y -n shop');
    });

    it('reads the manifests of the release that is to come', async () => {
      await start();
      const object = {
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: {
          name: 'new',
          namespace: 'openshift-new',
          annotations: { 'include.release.openshift.io/self-managed-high-availability': 'true' },
        },
        // Here the object has no defaults.
        spec: { template: { spec: { containers: [{ name: 'a', image: 'quay.io/x/y' }] } } },
      };
      const manifests = new Map([
        ...plan.manifests,
        ['0000_50_new.yaml', Buffer.from(JSON.stringify(object))],
        ['0000_51_bad.yaml', Buffer.from('kind: Pod\n  : [')],
      ]);
      expect(await find({ ...plan, manifests })).to.deep.equal([
        'blocker pull-policy deployment/new -n openshift-new',
        'warning bundle file/0000_51_bad.yaml',
        'warning tags deployment/new -n openshift-new',
      ]);
      const message = await messageOf('blocker pull-policy deployment/new -n openshift-new', { ...plan, manifests });
      expect(message).to.match(/^4\.19\.4 brings it \(0000_50_new\.yaml\), and container a pulls from a registry/);
    });

    it('asks the cluster whether it makes every pod pull', async () => {
      await start({
        admit: (object) => {
          if (object['kind'] !== 'Pod') return object;
          const spec = object['spec'] as { containers: Json[] };
          const containers = spec.containers.map((each) => ({ ...each, imagePullPolicy: 'Always' }));
          return { ...object, spec: { ...spec, containers } };
        },
      });
      expect(await find()).to.deep.equal(['blocker pull-policy pod/*']);
      expect(server.find('v1', 'Pod', 'oc-disconnected-preflight', 'default')).to.equal(undefined);
    });

    it('finds catalogs that poll or that a tag names', async () => {
      await start();
      const catalog = (name: string, spec: Json): void => {
        const metadata = { name, namespace: 'openshift-marketplace' };
        server.put({ apiVersion: 'operators.coreos.com/v1alpha1', kind: 'CatalogSource', metadata, spec });
      };
      const poll = { registryPoll: { interval: '10m' } };
      catalog('redhat-operators', { image: 'registry.redhat.io/x:v4.19', updateStrategy: poll });
      catalog('own', { image: platformImage('c'), updateStrategy: poll });
      catalog('good', { image: platformImage('c') });
      catalog('grpc', { address: 'catalog.shop.svc:50051' });
      const labels = { 'olm.catalogSource': 'own' };
      const served = pod('own-x', 'openshift-marketplace', podSpec({ imagePullPolicy: 'Always' }));
      server.put({ ...served, metadata: { ...served.metadata, labels } });
      expect(await find()).to.deep.equal([
        'warning pull-policy pod/own-x -n openshift-marketplace',
        'warning catalogs catalogsource/own -n openshift-marketplace',
        'warning catalogs catalogsource/redhat-operators -n openshift-marketplace',
      ]);
      const { findings } = await run();
      expect(findings.find(({ subject }) => subject.name === 'redhat-operators')?.advice).to.contain('operatorhub');
    });
  });

  describe('about nodes', () => {
    it('finds nodes that are down, cordoned or full, or of another architecture', async () => {
      await start();
      const conditions = [
        { type: 'Ready', status: 'Unknown' },
        { type: 'DiskPressure', status: 'True' },
      ];
      server.put(node('worker-0', 'worker', { conditions }));
      server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'arm64' } }, { unschedulable: true }));
      expect(await find()).to.deep.equal([
        'blocker nodes node/worker-0',
        'blocker nodes node/worker-0',
        'warning nodes node/worker-1',
      ]);
      expect(await messageOf('blocker nodes node/worker-1', plan)).to.equal(
        'is arm64, and the bundle of 4.19.4 is for x86_64',
      );
      expect(await find({ ...plan, arch: 'multi' })).not.to.include('blocker nodes node/worker-1');
    });

    it('reports images that are missing on nodes where pods may run, if that is known', async () => {
      await start();
      const image = platformImage('c');
      const nodeSelector = { 'node-role.kubernetes.io/worker': '' };
      server.put(
        workload('Deployment', 'c', 'openshift-dns', { template: { spec: { ...podSpec({ image }), nodeSelector } } }),
      );
      const images = [...Array(50).keys()].map((index) => ({ names: [`quay.io/large/image:${index}`] }));
      server.put(node('worker-1', 'worker', { images }));
      expect(await find()).to.deep.equal(['warning images node/worker-0', 'info images node/worker-1']);
      expect(await messageOf('warning images node/worker-0')).to.equal(
        `lacks images that pods may need there: ${image}`,
      );
      expect(await messageOf('info images node/worker-1')).to.match(
        /^lists its 50 largest images only: whether it has 2 that pods/,
      );
      const spec = { kubeletConfig: { nodeStatusMaxImages: 2 } };
      server.put({ apiVersion: machines, kind: 'KubeletConfig', metadata: { name: 'short' }, spec });
      expect(await find()).to.deep.equal(['info images node/worker-0', 'info images node/worker-1']);
    });

    it('reports images that a bundle for a site leaves out and nodes lack', async () => {
      await start();
      const [kept, lost] = ['a', 'c'].map(platformImage);
      const [first, second] = ['1', '2'].map((digit) => ({ digest: `sha256:${digit.repeat(64)}` as const, size: 1 }));
      if (!first || !second || kept === undefined || lost === undefined) throw new Error('there are no images');
      const about = { version: '4.19.3', arch: 'x86_64', release: platformImage('1'), blobs: [first, second] };
      const base = { ...about, images: { [kept]: [first.digest, second.digest], [lost]: [second.digest] } };
      const ofSite = { ...plan, size: 0, base };
      expect(await find(ofSite)).to.deep.equal([]);
      const images = { [kept]: [first.digest], [lost]: [second.digest] };
      const message = `lacks a blob of ${lost}, which the bundle leaves out`;
      const changed = { ...ofSite, base: { ...base, images } };
      expect(await messageOf('blocker images node/worker-0', changed)).to.equal(message);
      const { cluster } = connected;
      expect((await findLeftOut(cluster, changed.base)).map(({ message: each }) => each)).to.include(message);
      const spec = { kubeletConfig: { nodeStatusMaxImages: 2 } };
      server.put({ apiVersion: machines, kind: 'KubeletConfig', metadata: { name: 'short' }, spec });
      expect(await messageOf('warning images node/worker-0', changed)).to.match(/^may lack .*, by its list of images$/);
    });

    it('counts images as present if they are pinned and reported as pinned', async () => {
      await start();
      const labels = { 'machineconfiguration.openshift.io/role': 'worker' };
      const pinnedImages = [{ name: next }];
      server.put({
        apiVersion: machines,
        kind: 'PinnedImageSet',
        metadata: { name: 'p', labels },
        spec: { pinnedImages },
      });
      const report = (name: string, degraded: string, generation = 1): void => {
        const conditions = { PinnedImageSetsProgressing: 'False', PinnedImageSetsDegraded: degraded };
        const object = withConditions(machines, 'MachineConfigNode', name, conditions);
        const pinnedImageSets = [{ name: 'p', currentGeneration: generation, desiredGeneration: 1 }];
        const status = { ...(object['status'] as Json), pinnedImageSets };
        server.put({ ...object, spec: { pool: { name: 'worker' } }, status });
      };
      report('worker-0', 'False');
      report('worker-1', 'True');
      const { findings } = await run(plan);
      expect(findings.map(({ subject }) => subject.name)).to.deep.equal(['master-0', 'worker-1']);
      report('worker-0', 'False', 0);
      report('worker-1', 'False');
      expect((await run(plan)).findings.map(({ subject }) => subject.name)).to.deep.equal(['master-0', 'worker-0']);
    });

    it('names nodes outside of the pools, and checks nothing else of them', async () => {
      await start();
      const conditions = [{ type: 'Ready', status: 'False' }];
      for (const each of nodesWithoutAgent)
        server.put({ ...each, status: { ...(each['status'] as Json), conditions } });
      expect(await find(plan)).to.deep.equal(['info nodes node/']);
      expect(await messageOf('info nodes node/')).to.equal(
        'in no machine config pool, and not checked: aci-0 (virtual kubelet), admiralty-0 (virtual kubelet), kwok-0 (virtual kubelet), tainted-0 (virtual kubelet), win-0 (Windows)',
      );
      expect((await run()).nodes).to.equal(3);
    });

    it('warns of an architecture that no agent exists for, and wants no space there', async () => {
      await start();
      server.put(node('z-0', 'worker', { nodeInfo: { architecture: 's390x' } }));
      setFree(server, 'z-0', 60);
      expect(await find({ ...plan, arch: 'multi' })).to.deep.equal(['warning nodes node/']);
      expect(await messageOf('warning nodes node/')).to.equal('no agent runs on z-0 (s390x)');
    });

    it('adds up the space that a bundle needs', async () => {
      await start();
      const absent = ['master-0', 'worker-0', 'worker-1'].map((name) => `info images node/${name}`);
      const fresh = { ...plan, images: [next] };
      setFree(server, 'master-0', 60);
      server.nodeStats.delete('worker-0');
      expect(await find(fresh)).to.deep.equal(['blocker space node/master-0', 'info space node/worker-0', ...absent]);
      expect(await messageOf('blocker space node/master-0', fresh)).to.equal(
        'has 60 GiB only; 68 GiB of free space are needed (48 GiB for the images, 2.0 GiB for two backups of etcd, the rest stays free)',
      );
      // Loaded images need no more space.
      expect(await messageOf('blocker space node/master-0', plan)).not.to.match(/GiB/);
      server.put(node('worker-0', 'worker', { allocatable: { 'ephemeral-storage': '50Gi' } }));
      expect(await find(fresh)).to.include('blocker space node/worker-0');
    });
  });

  describe('about the version', () => {
    it('blocks an update for which there is no path, or a way back', async () => {
      await start();
      const version = 'blocker path clusterversion/version';
      expect(await messageOf(version, { ...plan, previous: ['4.19.1', '4.19.2', '4.18.9', '4.18.10'] })).to.equal(
        'runs 4.19.3, from which there is no update to 4.19.4: only from 4.19.2, 4.19.1, 4.18.10 and others',
      );
      expect(await messageOf(version, { ...plan, version: '4.19.2' })).to.contain('which is later than 4.19.2');
      expect(await find({ ...plan, version: '4.19.3' })).to.deep.equal(['info path clusterversion/version']);
      expect(await find({ ...plan, previous: [] })).to.deep.equal(['warning path clusterversion/version']);
      change(config, 'ClusterVersion', 'version', { spec: { desiredUpdate: { version: '4.19.9' } } });
      expect(await messageOf('blocker version clusterversion/version', plan)).to.equal('was asked to update to 4.19.9');
    });

    it('waits for the version operator, and for its condition about other minor versions', async () => {
      await start();
      const conditions = (values: Record<string, string>): void => {
        const { status } = withConditions(config, 'ClusterVersion', 'version', values);
        change(config, 'ClusterVersion', 'version', { status });
      };
      conditions({ Available: 'True', Progressing: 'True because Working towards 4.19.3: 5 of 900' });
      expect(await messageOf('blocker version clusterversion/version')).to.equal(
        'is being updated: Working towards 4.19.3: 5 of 900',
      );
      conditions({ Upgradeable: 'False because ask an administrator' });
      expect(await find()).to.deep.equal(['warning version clusterversion/version']);
      expect(await find(plan)).to.deep.equal(['info version clusterversion/version']);
      expect(await find({ ...plan, version: '4.20.0', previous: ['4.19.3'] })).to.deep.equal([
        'blocker version clusterversion/version',
      ]);
    });

    it('lists the acknowledgements that all updates require', async () => {
      await start();
      const gates = (data: Record<string, string>): Json => ({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        data,
        metadata: { name: 'admin-gates', namespace: 'openshift-config-managed' },
      });
      server.put(gates({ 'ack-4.19-x': 'Check 4.20.', 'ack-4.19-y': 'Done.', 'ack-4.18-z': 'Old.' }));
      const metadata = { name: 'admin-acks', namespace: 'openshift-config' };
      server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'ack-4.19-y': 'true' } });
      const manifests = new Map([
        ['gates.yaml', Buffer.from(JSON.stringify(gates({ 'ack-4.20-x': 'Check 4.21.' }), null, 1))],
      ]);
      const first = { ...plan, version: '4.20.3', manifests };
      const { findings } = await run({ ...plan, version: '4.21.1', previous: ['4.20.3'], earlier: [first] });
      const due = findings.filter(({ subject }) => subject.name === 'admin-acks');
      expect(due.map(({ severity, message }) => `${severity}: ${message}`)).to.deep.equal([
        'warning: the update to 4.20.3 requires the acknowledgement ack-4.19-x: “Check 4.20.”',
        'warning: the update to 4.21.1 requires the acknowledgement ack-4.20-x: “Check 4.21.”',
        'info: the update to 4.21.1 may require, if the cluster has mirror sets, also those of mirrors on control plane ' +
          'nodes, the acknowledgement ack-4.20-sigstore-in-4.21: “Nodes of 4.21 verify the sigstore signature of the ' +
          'release image: its mirrors must have that signature.”',
      ]);
      expect(due[0]?.advice).to.contain('spec.acknowledge');
      expect((await run()).findings).to.deep.equal([]);
    });

    it('lists the acknowledgements that operators will ask for on the way', async () => {
      await start();
      server.kinds.push({
        group: 'operator.openshift.io',
        version: 'v1',
        kind: 'MachineConfiguration',
        resource: 'machineconfigurations',
        namespaced: false,
        status: true,
        custom: true,
      });
      const platformStatus = { type: 'VSphere' };
      server.put({
        apiVersion: config,
        kind: 'Infrastructure',
        metadata: { name: 'cluster' },
        status: { controlPlaneTopology: 'HighlyAvailable', platformStatus },
      });
      server.put({
        apiVersion: config,
        kind: 'ImageDigestMirrorSet',
        metadata: { name: 'oc-upgrade-bundle' },
        spec: { imageDigestMirrors: [{ source: 'quay.io/a', mirrors: ['mirror/a'] }] },
      });
      const earlier = ['4.20.9', '4.21.4'].map((version) => ({ ...plan, version }));
      const due = async (): Promise<string[]> => {
        const { findings } = await run({ ...plan, version: '4.22.1', previous: ['4.21.4'], earlier });
        return findings
          .filter(({ subject }) => subject.name === 'admin-acks')
          .map(({ severity, message }) => `${severity}: ${message.replace(/, because.*acknowledgement|: “.*/g, '')}`);
      };
      expect(await due()).to.deep.equal([
        'warning: the update to 4.21.4 will require ack-4.20-sigstore-in-4.21',
        'warning: the update to 4.22.1 will require ack-4.21-boot-image-opt-out-in-4.22',
      ]);
      const machineManagers = [{ apiGroup: 'machine.openshift.io', resource: 'machinesets' }];
      server.put({
        apiVersion: 'operator.openshift.io/v1',
        kind: 'MachineConfiguration',
        metadata: { name: 'cluster' },
        spec: { managedBootImages: { machineManagers } },
      });
      expect(await due()).to.deep.equal(['warning: the update to 4.21.4 will require ack-4.20-sigstore-in-4.21']);
    });

    it('refuses kubelets that are too old for the API server of the target', async () => {
      await start();
      const put = (kubeletVersion: string): void =>
        void server.put(node('worker-1', 'worker', { nodeInfo: { architecture: 'amd64', kubeletVersion } }));
      const minor = { ...plan, version: '4.20.3', previous: ['4.19.3'] };
      put('v1.30.14+7cf4c05');
      expect(await messageOf('blocker nodes node/worker-1', minor)).to.equal(
        'has kubelet v1.30.14+7cf4c05, and the API server of 4.20.3 supports 1.31 and later',
      );
      put('v1.31.11');
      expect((await run(minor)).ready).to.equal(true);
      put('v1.24.0');
      const { findings } = await run({ ...plan, version: '4.14.3' });
      expect(findings.map(({ message }) => message).join(' ')).to.contain('4.14.3 supports 1.25 and later');
      put('v1.32.9');
      const major = await run({ ...plan, version: '5.0.1' });
      expect(major.findings.map(({ message }) => message).join(' ')).to.contain('5.0.1 supports 1.35 and later');
    });

    it('states the consequences of a target before 4.19.12', async () => {
      await start({ openshift: '4.12.3' });
      const old = { ...plan, manifests: manifestsOf(pinningFiles(false)), version: '4.12.4', previous: ['4.12.3'] };
      expect(await find(old)).to.deep.equal(['blocker version clusterversion/version']);
      const { findings } = await run(old);
      expect(findings[0]?.message).to.contain('nodes fetch the operating system of 4.12.4 from a registry');
      expect(findings[0]?.advice).to.contain('push and serve');
      const spec = { repositoryDigestMirrors: [{ source: 'quay.io/openshift-release-dev', mirrors: ['r.test/x'] }] };
      const apiVersion = 'operator.openshift.io/v1alpha1';
      server.put({ apiVersion, kind: 'ImageContentSourcePolicy', metadata: { name: 'm' }, spec });
      expect(await find(old)).to.deep.equal(['warning version clusterversion/version']);
    });

    it('states the requirements of 4.19, and the effects of a preview', async () => {
      await start({ openshift: '4.18.20' });
      expect(await messageOf('warning version clusterversion/version', { ...plan, previous: ['4.18.20'] })).to.contain(
        'cannot pin images yet',
      );
      const preview = {
        ...plan,
        version: '4.18.21',
        previous: ['4.18.20'],
        manifests: manifestsOf(pinningFiles(false)),
      };
      expect(await find(preview)).to.deep.equal(['blocker version clusterversion/version']);
      const spec = { featureSet: 'TechPreviewNoUpgrade' };
      server.put({ apiVersion: config, kind: 'FeatureGate', metadata: { name: 'cluster' }, spec });
      expect(await find(preview)).to.deep.equal(['warning version clusterversion/version']);
    });

    it('asks the release whether its clusters pin images, and not its version', async () => {
      await start({ openshift: '4.18.20' });
      const early = { ...plan, previous: ['4.18.20'], manifests: manifestsOf(pinningFiles(false)) };
      expect(await messageOf('blocker version clusterversion/version', { ...early, version: '4.19.11' })).to.match(
        /^nodes fetch the operating system of 4\.19\.11 from a registry, .* only 4\.19\.12 and later take it/,
      );
      expect((await run({ ...early, version: '4.20.1' })).ready).to.equal(false);
      expect((await run({ ...early, manifests: plan.manifests, version: '4.19.11' })).ready).to.equal(true);
      // Without such manifests the version decides.
      const unknown = { ...early, manifests: new Map<string, Buffer>() };
      expect((await run({ ...unknown, version: '4.19.11' })).ready).to.equal(false);
      expect((await run({ ...unknown, version: '4.19.12' })).ready).to.equal(true);
    });

    it('reports a release that no trusted key signed', async () => {
      await start();
      const distrust = new PluginError('untrusted', 'x is signed by a key that is not trusted', { hint: 'Trust it.' });
      const { findings, ready } = await run({ ...plan, distrust });
      expect(ready).to.equal(false);
      expect(findings[0]).to.include({ check: 'bundle', severity: 'blocker', advice: 'Trust it.' });
    });
  });

  it('finds operators and pools that are not healthy', async () => {
    await start();
    server.put(withConditions(config, 'ClusterOperator', 'etcd', { Degraded: 'True because a member is gone' }));
    server.put(withConditions(config, 'ClusterOperator', 'ingress', { Available: 'False', Upgradeable: 'False' }));
    server.put(withConditions(machines, 'MachineConfigPool', 'master', { Updated: 'False', Degraded: 'True' }));
    const pool = withConditions(machines, 'MachineConfigPool', 'worker', { Updated: 'False' });
    server.put({ ...pool, spec: { paused: true } });
    server.put(withConditions(machines, 'MachineConfigPool', 'infra', { Updated: 'False because 1 of 3' }));
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

  it('names pods that no drain can evict, if an update is planned', async () => {
    await start();
    const labels = { app: 'web' };
    const made = pod('web-0', 'shop', {}, 'ReplicaSet/web');
    server.put({ ...made, metadata: { ...made.metadata, labels } });
    const [metadata, spec] = [{ name: 'web', namespace: 'shop' }, { selector: { matchLabels: labels } }];
    const status = { disruptionsAllowed: 0, desiredHealthy: 1, expectedPods: 1 };
    server.put({ apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata, spec, status });
    expect(await find()).to.deep.equal([]);
    expect(await find(plan)).to.deep.equal(['blocker drains poddisruptionbudget/web -n shop']);
  });

  it('continues without the objects that it may not read, and reports them', async () => {
    const allow = ({ resource, verb }: Attempt) =>
      !['machineconfigpools', 'nodes/proxy'].includes(resource) && !(resource === 'pods' && verb === 'create');
    await start({ tokens: new Map([['t', 'bob']]), allow });
    expect(await find(plan)).to.deep.equal([
      'warning rights machineconfigpool/',
      ...['master-0', 'worker-0', 'worker-1'].map((name) => `info space node/${name}`),
      'info pull-policy pod/*',
      'info rights node/',
    ]);
    expect(await messageOf('warning rights machineconfigpool/')).to.equal(
      'you may not list machineconfigpools.machineconfiguration.openshift.io: nothing is known about them',
    );
    expect(await messageOf('info rights node/')).to.equal(
      'you may not get nodes --subresource=proxy: the free space of nodes is unknown',
    );
    await connected.close();
    await start({ tokens: new Map([['t', 'bob']]), allow: ({ resource }) => resource !== 'clusterversions' });
    expect((await failureOf(run(), 'denied')).message).to.contain('list clusterversions.config.openshift.io');
  });

  it('leaves a quarter of the disk of a control plane node that keeps bundles for a mirror free', async () => {
    await start();
    for (const name of ['master-0', 'worker-0']) setFree(server, name, 50);
    const space = async () => (await find(plan)).filter((line) => line.includes(' space '));
    expect(await space()).to.deep.equal([]);
    const set = { apiVersion: config, kind: 'ImageDigestMirrorSet', metadata: { name: 'oc-upgrade-bundle' }, spec: {} };
    server.put(set);
    expect(await space()).to.deep.equal(['blocker space node/master-0']);
    const annotations = { 'upgrade-bundle.openshift.io/mirror-content': 'metadata' };
    server.put({ ...set, metadata: { ...set.metadata, annotations } });
    expect(await space()).to.deep.equal([]);
  });
});
