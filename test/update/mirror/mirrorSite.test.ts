import { expect } from 'chai';
import {
  describeSilentMirrors,
  isServing,
  listAddresses,
  listControlPlane,
  listWithoutMirror,
  readMirrorSite,
} from '../../../lib/update/mirror/mirrorSite.ts';
import type { MirrorState, NodeMirror } from '../../../lib/update/record/nodeReport.ts';
import { node } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';
const release = 'quay.io/openshift-release-dev/ocp-release';
const components = 'quay.io/openshift-release-dev/ocp-v4.0-art-dev';

const addressed = (name: string, addresses: Readonly<Record<string, string>>, conditions: readonly Json[] = []) =>
  node(name, 'master', {
    addresses: Object.entries(addresses).map(([type, address]) => ({ type, address })),
    conditions,
  });

describe('the site of the mirrors', () => {
  let site: StartedCluster;
  beforeEach(async () => {
    site = await startCluster({ openshift: '4.20.3' });
  });
  afterEach(() => site.close());
  const put = (apiVersion: string, kind: string, name: string, more: object = {}, metadata: object = {}): void =>
    void site.server.put({ apiVersion, kind, metadata: { name, ...metadata }, ...more });
  const install = (source = release): void =>
    put(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle', {
      spec: { imageDigestMirrors: [{ source, mirrors: ['localhost:9690/a', '192.0.2.11:9690/a'] }] },
    });

  it('has the mirrors of a source from sets of all kinds, and those for tags apart', async () => {
    const entry = { source: 'r.example/a', mirrors: ['m.example/1'] };
    put(config, 'ImageDigestMirrorSet', 'digests', { spec: { imageDigestMirrors: [entry] } });
    put(config, 'ImageTagMirrorSet', 'tags', {
      spec: { imageTagMirrors: [{ ...entry, mirrors: ['m.example/2'], mirrorSourcePolicy: 'NeverContactSource' }] },
    });
    put('operator.openshift.io/v1alpha1', 'ImageContentSourcePolicy', 'old', {
      spec: {
        repositoryDigestMirrors: [
          { ...entry, mirrors: ['m.example/3'] },
          { source: 'r.example/b', mirrorSourcePolicy: 'NeverContactSource' },
        ],
      },
    });
    install();
    expect((await readMirrorSite(site.cluster)).siteMirrors).to.deep.equal([
      {
        source: 'r.example/a',
        mirrors: ['m.example/1', 'm.example/3'],
        policy: 'NeverContactSource',
        hasTagMirrors: true,
        conflict: ['digests', 'tags', 'old'],
      },
      { source: 'r.example/b', mirrors: [], policy: 'NeverContactSource', hasTagMirrors: false },
    ]);
  });

  it('keeps the sources of installed mirrors, unless others are named', async () => {
    expect((await readMirrorSite(site.cluster)).sources).to.deep.equal([release, components]);
    install('quay.io/ours/b');
    expect((await readMirrorSite(site.cluster)).sources).to.deep.equal([release, components, 'quay.io/ours/b']);
    const named = await readMirrorSite(site.cluster, ['quay.io/ours/a', release]);
    expect(named.sources).to.deep.equal([release, components, 'quay.io/ours/a']);
  });

  it('names the addresses that move between nodes first, unless the site balances the load itself', async () => {
    site.server.put(addressed('master-0', { InternalIP: '192.0.2.11' }));
    const read = async (loadBalancer: object, ...apiServerInternalIPs: string[]): Promise<readonly string[]> => {
      const apiServerInternalURI = 'https://api-int.site.example:6443';
      const platformStatus = { type: 'BareMetal', baremetal: { apiServerInternalIPs, ...loadBalancer } };
      put(config, 'Infrastructure', 'cluster', { status: { apiServerInternalURI, platformStatus } });
      return (await readMirrorSite(site.cluster)).addresses;
    };
    expect(await read({}, 'fd00::5', '192.0.2.5')).to.deep.equal(['192.0.2.5', '192.0.2.11']);
    expect(await read({ loadBalancer: { type: 'UserManaged' } }, '192.0.2.5')).to.deep.equal(['192.0.2.11']);
    expect(await read({}, 'fd00::5')).to.deep.equal(['api-int.site.example', '192.0.2.11']);
  });

  it('has the networks of machines from the installation, and none without it', async () => {
    expect((await readMirrorSite(site.cluster)).networks).to.deep.equal([]);
    put('v1', 'Namespace', 'kube-system');
    const lines = [
      'networking:',
      '  clusterNetwork:',
      '  - cidr: 10.128.0.0/14',
      '  machineNetwork:',
      '  - cidr: 192.0.2.0/24',
      '  - cidr: "fd00::/48"',
      '  serviceNetwork:',
      '  - 172.30.0.0/16',
    ];
    const data = { 'install-config': lines.join('\n') };
    put('v1', 'ConfigMap', 'cluster-config-v1', { data }, { namespace: 'kube-system' });
    expect((await readMirrorSite(site.cluster)).networks).to.deep.equal(['192.0.2.0/24', 'fd00::/48']);
  });

  it('has the MachineConfigs of the site, and neither generated ones nor those of mirrors', async () => {
    const annotations = { 'machineconfiguration.openshift.io/generated-by-controller-version': 'a' };
    put(machines, 'MachineConfig', '00-worker', {}, { annotations });
    put(machines, 'MachineConfig', '98-worker-oc-upgrade-bundle-mirror');
    put(machines, 'MachineConfig', '99-ours');
    const { machineConfigs } = await readMirrorSite(site.cluster);
    expect(machineConfigs.map(({ metadata }) => metadata.name)).to.deep.equal(['99-ours']);
  });

  it('leaves a ConfigMap of CAs that mirrors themselves created out of those of the site', async () => {
    const read = async (name: string): Promise<string | undefined> => {
      put(config, 'Image', 'cluster', { spec: { additionalTrustedCA: { name } } });
      return (await readMirrorSite(site.cluster)).trustedAuthorities;
    };
    expect(await read('ours')).to.equal('ours');
    expect(await read('')).to.equal(undefined);
    expect(await read('oc-upgrade-bundle-mirror-ca')).to.equal(undefined);
  });

  it('names the control plane nodes without a mirror of the installed port and content', async () => {
    for (const name of ['master-0', 'master-1']) site.server.put(node(name, 'master'));
    site.server.put(node('worker-0', 'worker'));
    const state = (name: string, more: Partial<MirrorState> = {}): NodeMirror => {
      return { node: name, versions: [], port: 9690, requests: 0, lacking: [], ...more };
    };
    const find = (...states: NodeMirror[]): Promise<string | undefined> => describeSilentMirrors(site.cluster, states);
    expect(await find()).to.equal(undefined);
    install();
    expect(await find()).to.equal('no mirror runs on master-0, master-1');
    expect(await find(state('master-0'), state('worker-0'))).to.equal('no mirror runs on master-1');
    const others = [state('master-0', { port: 9700 }), state('master-1', { content: 'metadata' })];
    expect(await find(...others)).to.equal('no mirror runs on master-0, master-1');
    expect(await find(state('master-0'), state('master-1', { content: 'all' }))).to.equal(undefined);
    const serves = ({ port }: MirrorState): boolean => port === 9700;
    expect(await listWithoutMirror(site.cluster, others, serves)).to.deep.equal(['master-1']);
  });
});

describe('listAddresses', () => {
  const nodes = [
    addressed('old', { InternalIP: '192.0.2.11' }, [{ type: 'Ready', status: 'True' }]),
    addressed('down', { InternalIP: '192.0.2.12' }, [{ type: 'Ready', status: 'Unknown' }]),
    addressed('new', { InternalIP: '192.0.2.13' }, [{ type: 'Ready', status: 'True' }]),
  ].map((each, index) => ({ ...each, metadata: { ...each.metadata, creationTimestamp: `2026-11-0${index + 1}` } }));

  it('puts the newest first, and nodes that are not ready behind the others', () => {
    expect(listAddresses([...nodes, node('worker-0', 'worker')])).to.deep.equal([
      '192.0.2.13',
      '192.0.2.11',
      '192.0.2.12',
    ]);
    expect(listControlPlane([...nodes, node('worker-0', 'worker')])).to.deep.equal(nodes);
  });

  it('names a node without an IPv4 address by the first of its names that a mirror set can have', () => {
    const names = { InternalIP: 'fd00::1', Hostname: 'b.example', InternalDNS: 'a.example' };
    expect(listAddresses([addressed('a', names)])).to.deep.equal(['a.example']);
    expect(listAddresses([addressed('a', { ...names, InternalDNS: '192.0.2.1' })])).to.deep.equal(['b.example']);
    expect(listAddresses([addressed('a', { Hostname: 'A_B' })])).to.deep.equal([]);
    expect(listAddresses([addressed('a', { ...names, InternalIP: '192.0.2.1' })])).to.deep.equal(['192.0.2.1']);
  });
});

describe('isServing', () => {
  it('tells a mirror with the version in the form that mirrors keep', () => {
    const mirror = { versions: ['4.20.3'], port: 9690, requests: 0, lacking: [] };
    expect(isServing(mirror, '4.20.3', 'all')).to.equal(true);
    expect(isServing(mirror, '4.20.4', 'all')).to.equal(false);
    expect(isServing(mirror, '4.20.3', 'metadata')).to.equal(false);
    expect(isServing({ ...mirror, content: 'metadata' }, '4.20.3', 'metadata')).to.equal(true);
  });
});
