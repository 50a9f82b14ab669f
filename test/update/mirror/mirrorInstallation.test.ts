import { X509Certificate } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { KubernetesObject } from '../../../lib/config/manifest.ts';
import { registriesFile } from '../../../lib/node/machine/host.ts';
import { readConfigFile } from '../../../lib/readiness/nodes/imageRetention.ts';
import { readSecret, servingSecret } from '../../../lib/update/mirror/mirrorCertificates.ts';
import { installMirror, removeMirror } from '../../../lib/update/mirror/mirrorInstallation.ts';
import * as objects from '../../../lib/update/mirror/mirrorObjects.ts';
import { MirrorOperator } from '../../fakes/cluster/mirrorOperator.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { run } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const config = 'config.openshift.io/v1';
const choice = { port: 9690, sources: [], mayDisrupt: false, timeout: 60_000, interval: 10 };
const options = { overwrite: false } as const;

describe('installMirror', () => {
  let server: TestApiServer;
  let connected: ConnectedCluster;
  let operator: MirrorOperator;

  const open = async (openshift = '4.20.3', addresses = ['192.0.2.11']): Promise<void> => {
    server = await startApiServer({ openshift });
    for (const name of ['oc-upgrade-bundle', 'openshift-config', 'kube-system'])
      server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
    server.put({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'pull-secret', namespace: 'openshift-config' } });
    server.put({
      apiVersion: config,
      kind: 'Image',
      metadata: { name: 'cluster' },
      spec: { externalRegistryHostnames: ['r.example.com'] },
    });
    const installation = 'networking:\n  machineNetwork:\n  - cidr: 192.0.2.0/24\n';
    const metadata = { name: 'cluster-config-v1', namespace: 'kube-system' };
    server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'install-config': installation } });
    for (const [index, address] of addresses.entries()) putNode(`cp${index}`, address);
    if (server.kinds.some(({ kind }) => kind === 'MachineConfiguration')) {
      const files = [{ path: '/etc/theirs', actions: [{ type: 'None' }] }];
      const spec = { managementState: 'Managed', nodeDisruptionPolicy: { files } };
      server.put({
        apiVersion: 'operator.openshift.io/v1',
        kind: 'MachineConfiguration',
        metadata: { name: 'cluster' },
        spec,
        status: {},
      });
    }
    server.put({
      apiVersion: machines,
      kind: 'MachineConfigPool',
      metadata: { name: 'master' },
      spec: selecting('master'),
    });
    operator = new MirrorOperator(server);
    connected = await connectTo(server);
  };
  afterEach(async () => {
    operator.stop();
    await connected.close();
    await server.stop();
  });
  const selecting = (role: string): object => {
    return { machineConfigSelector: { matchLabels: { 'machineconfiguration.openshift.io/role': role } } };
  };
  const putNode = (name: string, address: string): void => {
    const metadata = { name, labels: { 'node-role.kubernetes.io/master': '' } };
    const isName = /[a-z]/.test(address) && !address.includes(':');
    const addresses = isName
      ? [
          { type: 'InternalIP', address: 'fd00::11' },
          { type: 'Hostname', address },
        ]
      : [{ type: address.includes(':') ? 'Hostname' : 'InternalIP', address }];
    server.put({ apiVersion: 'v1', kind: 'Node', metadata, status: { addresses } });
  };
  const trustSite = (): void => {
    const metadata = { name: 'ours', namespace: 'openshift-config' };
    server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'registry.example.com': 'theirs' } });
    const spec = { additionalTrustedCA: { name: 'ours' } };
    server.put({ apiVersion: config, kind: 'Image', metadata: { name: 'cluster' }, spec });
  };
  /** All objects that are not the operator’s, without what the server writes. */
  const everything = (): unknown[] =>
    server.kinds.flatMap((kind) =>
      server.objects
        .list(kind, '')
        .flatMap(({ metadata, status: _, ...rest }) =>
          metadata.name.startsWith('rendered-') ? [] : [{ ...rest, name: metadata.name }],
        ),
    );

  it('waits for the policy, the files and the mirrors, and is idempotent', async () => {
    await open();
    const applied = await installMirror(connected.cluster, options, choice, connected.context);
    expect(applied.map(({ object }) => `${object.kind}/${object.metadata.name}`)).to.deep.equal([
      'Secret/mirror-ca',
      'Secret/mirror-serving',
      'ClusterRole/oc-upgrade-bundle-mirror',
      'ClusterRoleBinding/oc-upgrade-bundle-mirror',
      'Role/oc-upgrade-bundle-mirror',
      'RoleBinding/oc-upgrade-bundle-mirror',
      'Role/oc-upgrade-bundle-mirror',
      'RoleBinding/oc-upgrade-bundle-mirror',
      'ConfigMap/oc-upgrade-bundle-mirror-ca',
      'Image/cluster',
      'MachineConfiguration/cluster',
      'MachineConfig/98-master-oc-upgrade-bundle-mirror',
      'ImageDigestMirrorSet/oc-upgrade-bundle',
    ]);
    const again = await installMirror(connected.cluster, options, choice, connected.context);
    expect(new Set(again.map(({ outcome }) => outcome))).to.deep.equal(new Set(['unchanged']));
    const pool = server.find(machines, 'MachineConfigPool', 'master');
    const { configuration } = pool?.['status'] as { configuration: { name: string } };
    const rendered = server.find(machines, 'MachineConfig', configuration.name) as KubernetesObject | undefined;
    const ca = rendered && readConfigFile(rendered, '/etc/containers/certs.d/192.0.2.11:9690/ca.crt');
    expect(new X509Certificate(ca ?? '').ca).to.equal(true);
  });

  it('leaves no trace when it is removed, beside the site’s own CAs, policies and mirrors', async () => {
    await open();
    trustSite();
    const entry = { source: 'quay.io/openshift-release-dev', mirrors: ['registry.example.com/a'] };
    server.put({
      apiVersion: config,
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'site' },
      spec: { imageDigestMirrors: [entry] },
    });
    const before = everything();
    await installMirror(connected.cluster, options, choice, connected.context);
    const trusted = server.find('v1', 'ConfigMap', 'ours', 'openshift-config')?.['data'] as Record<string, string>;
    expect(Object.keys(trusted)).to.have.members(['registry.example.com', 'localhost..9690', '192.0.2.11..9690']);
    const gone = await removeMirror(connected.cluster, {}, choice, connected.context);
    expect(gone.map(({ kind }) => kind)).to.include.members(['ImageDigestMirrorSet', 'MachineConfig', 'Secret']);
    expect(everything()).to.deep.equal(before);
    expect(await removeMirror(connected.cluster, {}, choice, connected.context)).to.deep.equal([]);
  });

  it('drains no node when the port changes or a node is gone, and takes the policy for it back', async () => {
    await open('4.20.3', ['192.0.2.11', '192.0.2.12']);
    await installMirror(connected.cluster, options, choice, connected.context);
    const readPolicy = () =>
      server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster') ?? expect.fail();
    const before = readPolicy()['spec'];
    const withRendered: string[] = [];
    const record = ({ kind: { kind } }: { kind: { kind: string } }): void => {
      const policy = JSON.stringify(readPolicy()['status']);
      if (kind === 'MachineConfigPool') withRendered.push(policy.includes('registries.conf"') ? 'reloads' : 'drains');
    };
    await connected.cluster.delete({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'cp1' } });
    server.objects.on('change', record);
    await installMirror(connected.cluster, options, { ...choice, port: 9691 }, connected.context);
    server.objects.off('change', record);
    expect(new Set(withRendered)).to.deep.equal(new Set(['reloads']));
    expect(readPolicy()['spec']).to.deep.equal(before);
    const hosts = JSON.stringify(server.find(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle'));
    expect(hosts)
      .to.include('192.0.2.11:9691')
      .and.not.to.match(/:9690|192\.0\.2\.12/);
  });

  it('keeps the policy until each node has lost a mirror or a source', async () => {
    await open('4.20.3', ['192.0.2.11', '192.0.2.12']);
    const install = (...sources: string[]) =>
      installMirror(connected.cluster, options, { ...choice, sources }, connected.context);
    const hasPolicy = (): boolean => {
      const policy = server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster');
      return JSON.stringify(policy?.['spec']).includes(registriesFile);
    };
    await install('quay.io/ours/a', 'quay.io/ours/b');
    for (const change of [
      () => install('quay.io/ours/b'),
      async () => {
        await connected.cluster.delete({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'cp1' } });
        await install('quay.io/ours/b');
      },
    ]) {
      operator.isRendering = false;
      connected.context.lines.length = 0;
      const changed = change();
      await connected.context.untilLogged('the pool master: the machine config operator has not begun');
      expect(hasPolicy()).to.equal(true);
      operator.isRendering = true;
      operator.operate();
      await changed;
      expect(hasPolicy()).to.equal(false);
    }
  });

  it('leaves policies of the site alone, and refuses one that would disrupt nodes', async () => {
    await open();
    const setPolicy = (path: string, type: string): void => {
      const policy = server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster');
      const files = [{ path, actions: [{ type }] }];
      server.put({
        ...policy,
        spec: { managementState: 'Managed', nodeDisruptionPolicy: { files } },
      });
    };
    trustSite();
    setPolicy('/etc/containers/registries.conf', 'None');
    const before = everything();
    await installMirror(connected.cluster, options, choice, connected.context);
    await removeMirror(connected.cluster, {}, choice, connected.context);
    expect(everything()).to.deep.equal(before);
    setPolicy('/etc/containers/certs.d', 'Reboot');
    const failure = await failureOf(installMirror(connected.cluster, options, choice, connected.context), 'conflict');
    expect(failure.message).to.include('/etc/containers/certs.d');
  });

  it('keeps the policy until the nodes are clean, also after an interrupted removal', async () => {
    await open();
    await installMirror(connected.cluster, options, choice, connected.context);
    operator.stop();
    const impatient = { timeout: 500, interval: 10 };
    const attempt = () => failureOf(removeMirror(connected.cluster, {}, impatient, connected.context), 'not-ready');
    expect((await attempt()).message).to.include('node disruption policy');
    operator.operate();
    expect((await attempt()).message).to.include('the pool master');
    expect((await attempt()).message).to.include('the pool master');
    const policy = server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster');
    expect(JSON.stringify(policy?.['spec'])).to.include('/etc/containers/registries.conf');
    operator.operate();
    await removeMirror(connected.cluster, {}, choice, connected.context);
    operator.start();
  });

  it('waits for each mirror and for the CA on the nodes', async () => {
    await open();
    await installMirror(connected.cluster, options, choice, connected.context);
    operator.stop();
    putNode('cp1', '192.0.2.12');
    const impatient = { ...choice, timeout: 500 };
    const failure = await failureOf(
      installMirror(connected.cluster, options, impatient, connected.context),
      'not-ready',
    );
    expect(failure.message).to.equal(
      'After 1 s it is not ready: the pool master: the machine config operator has not begun with the change',
    );
    operator.start();
  });

  it('warns of an address that the CA does not permit, and lets no node pull from there', async () => {
    await open();
    await installMirror(connected.cluster, options, choice, connected.context);
    putNode('cp1', '198.51.100.1');
    await installMirror(connected.cluster, options, choice, connected.context);
    expect(connected.context.lines.join('\n')).to.include('the CA of the mirrors does not permit 198.51.100.1, so');
    const set = server.find(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
    expect(objects.readMirrorSet(set)?.addresses).to.deep.equal(['192.0.2.11']);
  });

  it('names the mirrors of a cluster with IPv6 only by the names that every node resolves', async () => {
    await open('4.22.1', ['cp0.ocp.site.example', 'cp1.ocp.site.example']);
    server.put({
      apiVersion: config,
      kind: 'Infrastructure',
      metadata: { name: 'cluster' },
      status: {
        apiServerInternalURI: 'https://api-int.ocp.site.example:6443',
        platformStatus: { type: 'BareMetal', baremetal: { apiServerInternalIPs: ['fd00::5'] } },
      },
    });
    await installMirror(connected.cluster, options, choice, connected.context);
    const set = server.find(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
    const addresses = ['api-int', 'cp0', 'cp1'].map((name) => `${name}.ocp.site.example`);
    expect(objects.readMirrorSet(set)).to.deep.include({ port: choice.port, addresses });
    const mirrors = ['localhost', ...addresses].map(
      (host) => `${host}:${choice.port}/openshift-release-dev/ocp-release`,
    );
    expect(set?.['spec']).to.have.deep.nested.property('imageDigestMirrors[0].mirrors', mirrors);
    const secret = server.find('v1', 'Secret', 'mirror-serving', 'oc-upgrade-bundle');
    const pem = (name: string): string =>
      Buffer.from(String((secret?.['data'] as Record<string, string>)[name]), 'base64').toString();
    const certificate = new X509Certificate(pem('tls.crt'));
    for (const name of addresses) expect(certificate.checkHost(name)).to.equal(name);
    // A strict client refuses a name that the CA does not permit.
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    await writeFile(join(folder, 'ca'), pem('ca.crt'));
    await writeFile(join(folder, 'leaf'), pem('tls.crt'));
    const verified = await run('openssl', ['verify', '-CAfile', join(folder, 'ca'), join(folder, 'leaf')]);
    await rm(folder, { recursive: true });
    expect(verified.code, verified.stderr).to.equal(0);
    // Again, it changes nothing.
    const again = await installMirror(connected.cluster, options, choice, connected.context);
    expect(again.filter(({ outcome }) => outcome !== 'unchanged')).to.deep.equal([]);
  });

  it('refuses nodes without an IPv4 address, contradicting policies, and unconfirmed reboots', async () => {
    await open('4.20.3', ['fd00::1']);
    const attempt = () => failureOf(installMirror(connected.cluster, options, choice, connected.context));
    expect((await attempt()).message).to.include('neither an IPv4 address nor a host name');
    putNode('cp0', '192.0.2.11');
    for (const [name, mirrorSourcePolicy] of [
      ['a', 'NeverContactSource'],
      ['b', 'AllowContactingSource'],
    ]) {
      const spec = { imageDigestMirrors: [{ source: 'quay.io', mirrors: ['r.example.com'], mirrorSourcePolicy }] };
      server.put({ apiVersion: config, kind: 'ImageDigestMirrorSet', metadata: { name: String(name) }, spec });
    }
    expect((await attempt()).message).to.include('mirrorSourcePolicy');
  });

  it('asks before it reboots the nodes of an OpenShift without node disruption policies, and removes no address there', async () => {
    await open('4.16.3', ['192.0.2.11', '192.0.2.12']);
    const failure = await failureOf(
      installMirror(connected.cluster, options, choice, connected.context),
      'unsupported',
    );
    expect(failure.settings).to.deep.equal(['yes']);
    const stated = await installMirror(connected.cluster, options, { ...choice, mayDisrupt: true }, connected.context);
    expect(stated.map(({ object }) => object.kind)).not.to.include('MachineConfiguration');
    await connected.cluster.delete({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'cp0' } });
    await installMirror(connected.cluster, options, { ...choice, mayDisrupt: true }, connected.context);
    const set = server.find(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
    const [entry] = (set?.['spec'] as { imageDigestMirrors: { mirrors: string[] }[] }).imageDigestMirrors;
    const kept = entry?.mirrors.map((mirror) => mirror.split(':')[0]);
    expect(kept).to.deep.equal(['localhost', '192.0.2.12', '192.0.2.11']);
  });

  it('changes nothing in a dry run, neither of the installation nor of the removal', async () => {
    await open();
    const before = everything();
    const dryRun = { ...options, dryRun: 'server' } as const;
    await installMirror(connected.cluster, dryRun, choice, connected.context);
    expect(everything()).to.deep.equal(before);
    await installMirror(connected.cluster, options, choice, connected.context);
    const installed = everything();
    const again = await installMirror(connected.cluster, dryRun, choice, connected.context);
    expect(new Set(again.map(({ outcome }) => outcome))).to.deep.equal(new Set(['unchanged']));
    const gone = await removeMirror(connected.cluster, dryRun, choice, connected.context);
    expect(gone.map(({ kind }) => kind)).to.include.members(['ImageDigestMirrorSet', 'MachineConfig', 'Secret']);
    expect(everything()).to.deep.equal(installed);
    await removeMirror(connected.cluster, {}, choice, connected.context);
    expect(server.find(config, 'Image', 'cluster')?.['spec']).not.to.have.nested.property('additionalTrustedCA.name');
  });

  it('changes no file of nodes while a pool is not healthy', async () => {
    await open();
    operator.stop();
    const pool = server.find(machines, 'MachineConfigPool', 'master') ?? expect.fail();
    const conditions = [{ type: 'Degraded', status: 'True', message: 'a disk is full' }];
    server.put({ ...pool, status: { ...(pool['status'] as object), conditions } });
    const before = everything();
    const attempt = installMirror(connected.cluster, options, choice, connected.context);
    expect((await failureOf(attempt, 'not-ready')).message).to.contain('a disk is full');
    expect(everything()).to.deep.equal(before);
  });

  it('leaves the policy, without which nodes would reboot, if it does not wait for their removal', async () => {
    await open();
    await installMirror(connected.cluster, options, choice, connected.context);
    const policy = (): unknown => server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster')?.['spec'];
    const before = policy();
    await removeMirror(connected.cluster, {}, undefined, connected.context);
    expect(policy()).to.deep.equal(before);
    expect(server.find('v1', 'Secret', 'mirror-ca', 'oc-upgrade-bundle')).to.equal(undefined);
  });

  it('keeps port, quota, content and sources that the next installation does not name', async () => {
    await open();
    const read = async (): Promise<unknown> => {
      const { port, quota, content } = await readSecret(connected.cluster, servingSecret);
      const set = objects.readMirrorSet(server.find(config, 'ImageDigestMirrorSet', 'oc-upgrade-bundle'));
      expect(set?.content).to.equal(content);
      return { port, quota, content, sources: set?.sources.length };
    };
    const install = (named: object): Promise<unknown> =>
      installMirror(connected.cluster, options, { ...choice, port: undefined, ...named }, connected.context);
    await install({});
    expect(await read()).to.deep.equal({ port: '9690', quota: '', content: 'all', sources: 2 });
    await install({ port: 9700, quota: 5e10, sources: ['quay.io/ours/a'] });
    await install({ content: 'metadata' });
    const chosen = { port: '9700', quota: '50000000000', content: 'metadata', sources: 3 };
    expect(await read()).to.deep.equal(chosen);
    expect((await failureOf(install({ quota: 5e10 }), 'usage')).message).to.equal(
      'a quota limits whole bundles, and the mirrors keep metadata only',
    );
    await install({});
    expect(await read()).to.deep.equal(chosen);
    await install({ quota: 0, content: 'all', sources: ['quay.io/ours/b'] });
    expect(await read()).to.deep.equal({ ...chosen, quota: '', content: 'all' });
  });
});
