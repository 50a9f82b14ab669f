import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { checkMirrors, checkQuota } from '../../../lib/update/mirror/mirrorCheck.ts';
import { digestMirrorSet } from '../../../lib/update/mirror/mirrorObjects.ts';
import { runMirrorServer } from '../../../lib/update/mirror/mirrorServer.ts';
import { readMirrorSite } from '../../../lib/update/mirror/mirrorSite.ts';
import { furnish, node, pod, podSpec, reportMirror, workload } from '../../fakes/cluster/site.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';
const payload = 'quay.io/openshift-release-dev';

const silent =
  'warning Mirror/127.0.0.1:1 does not answer: 127.0.0.1:1 cannot be reached: connection refused; nothing ' +
  'listens on that port';

describe('checkMirrors', () => {
  let connected: StartedCluster;

  const start = async (openshift = '4.20.3', address = '192.0.2.11', options: ApiServerOptions = {}): Promise<void> => {
    connected = await startCluster({ openshift, ...options });
    furnish(connected.server);
    put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    put(node('master-0', 'master', { addresses: [{ type: 'InternalIP', address }] }));
    put({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'pull-secret', namespace: 'openshift-config' } });
    if (!openshift.startsWith('4.14'))
      put({ apiVersion: 'operator.openshift.io/v1', kind: 'MachineConfiguration', metadata: { name: 'cluster' } });
  };
  afterEach(() => connected.close());
  const put = (object: Parameters<typeof connected.server.put>[0]): void => void connected.server.put(object);
  const putSet = (kind: string, name: string, source: string, more: object = {}, content?: string): void => {
    const field = kind === 'ImageTagMirrorSet' ? 'imageTagMirrors' : 'imageDigestMirrors';
    const spec = { [field]: [{ source, mirrors: ['127.0.0.1:1/a'], ...more }] };
    const annotations = content !== undefined && { 'upgrade-bundle.openshift.io/mirror-content': content };
    put({ apiVersion: config, kind, metadata: { name, ...(annotations && { annotations }) }, spec });
  };
  const report = (name: string, version: string, sizes: Readonly<Record<string, number>> = {}): void => {
    reportMirror(connected.server, name, { versions: [version], sizes });
  };
  /** Serves the mirror of a node with a certificate of a CA. */
  const serve = async (host = '', port: number, issuer: Authority): Promise<AsyncDisposable & { port: number }> => {
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    const { certificate, key } = await issuer.issue({ hosts: [host] });
    await writeFile(join(folder, 'tls.crt'), certificate);
    await writeFile(join(folder, 'tls.key'), key);
    const context = makeContext();
    const { promise: listening, resolve: onListening, reject } = Promise.withResolvers<string>();
    const done = runMirrorServer({ host, port, folder, certificates: folder, interval: 1000, onListening }, context);
    done.catch(reject);
    const end = async (): Promise<void> => {
      context.interrupt();
      await done;
      await rm(folder, { recursive: true });
    };
    return { port: Number(new URL(await listening).port), [Symbol.asyncDispose]: end };
  };
  const find = async (port: number | undefined): Promise<string[]> => {
    const findings = await checkMirrors(
      connected.cluster,
      await surveyCluster(connected.cluster),
      port,
      connected.context,
    );
    expect(new Set(findings.map(({ check }) => check)))
      .to.have.property('size')
      .at.most(1);
    return findings.map(({ severity, subject, message }) => `${severity} ${subject.kind}/${subject.name} ${message}`);
  };

  it('warns if the quota has no room for a bundle beside that of the running release', async () => {
    await start();
    put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors: ['localhost:9690/x', '192.0.2.9:9690/x'] });
    const gibibyte = 1024 ** 3;
    report('master-0', '4.20.3', { '4.20.3': 30 * gibibyte });
    const check = async (gibibytes: number, version = '4.20.4'): Promise<string[]> => {
      const survey = await surveyCluster(connected.cluster);
      const findings = await checkQuota(connected.cluster, survey, { version, bytes: gibibytes * gibibyte });
      return findings.map(({ severity, subject, message }) => `${severity} ${subject.name} ${message}`);
    };
    expect(await check(100)).to.deep.equal([]);
    const metadata = { name: 'mirror-serving', namespace: 'oc-upgrade-bundle' };
    const quota = Buffer.from(String(45 * gibibyte)).toString('base64');
    put({ apiVersion: 'v1', kind: 'Secret', metadata, data: { quota } });
    expect(await check(15)).to.deep.equal([]);
    expect(await check(20)).to.deep.equal([
      'warning oc-upgrade-bundle has a quota of 45.0 GiB: the bundle of 4.20.4 (20.0 GiB) does not fit beside ' +
        'the 30.0 GiB of 4.20.3',
    ]);
    expect(await check(40, '4.20.3')).to.deep.equal([]);
    expect(await check(50, '4.20.3')).to.deep.equal([
      'warning oc-upgrade-bundle has a quota of 45.0 GiB: the bundle of 4.20.3 (50.0 GiB) does not fit',
    ]);
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors: ['localhost:9690/x'] }, 'metadata');
    expect(await check(50, '4.20.3'), 'of mirrors that keep metadata').to.deep.equal([]);
  });

  it('finds nothing at a fitting site, and asks nothing of a cluster without mirrors', async () => {
    await start();
    // Older sets, and sets of broader sources, go together with the mirrors.
    put({
      apiVersion: 'operator.openshift.io/v1alpha1',
      kind: 'ImageContentSourcePolicy',
      metadata: { name: 'old' },
      spec: {},
    });
    putSet('ImageDigestMirrorSet', 'broader', 'quay.io', { mirrors: [] });
    expect(await find(9690)).to.deep.equal([]);
    put(node('master-0', 'master'));
    const survey = await surveyCluster(connected.cluster);
    expect(await checkMirrors(connected.cluster, survey, undefined, connected.context)).to.deep.equal([]);
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, {
      mirrors: ['localhost:22625/x', '192.0.2.9:22625/x'],
    });
    expect(await find(undefined)).to.deep.equal([
      'blocker Node/master-0 has neither an IPv4 address nor a host name for a mirror',
      'blocker Mirror/22625 is the port of InternalReleaseImage',
      'warning Node/master-0 its agent reports no mirror',
    ]);
  });

  it('blocks nodes with IPv6 only, a port in use, and a missing pull secret', async () => {
    await start('4.20.3', 'fd00::11');
    const ports = [{ containerPort: 9690, hostPort: 9690 }];
    put(pod('agent-master-0', 'shop', { ...podSpec({ ports }), nodeName: 'master-0' }));
    put(pod('agent-worker-0', 'shop', { ...podSpec({ ports }), nodeName: 'worker-0' }));
    const spec = { ...podSpec({ ports }), tolerations: [{ operator: 'Exists' }] };
    put(workload('DaemonSet', 'exporter', 'shop', { template: { spec } }));
    put(pod('exporter-a', 'shop', { ...spec, nodeName: 'master-0' }, 'DaemonSet/exporter'));
    const kind = connected.server.kinds.find((each) => each.kind === 'Secret');
    const place = { namespace: 'openshift-config', name: 'pull-secret' };
    if (kind) connected.server.objects.delete({ kind, ...place }, {}, false);
    expect(await find(9690)).to.deep.equal([
      'blocker Node/master-0 has neither an IPv4 address nor a host name for a mirror',
      'blocker Pod/agent-master-0 uses port 9690 of control plane nodes',
      'blocker DaemonSet/exporter uses port 9690 of control plane nodes',
      'blocker Secret/pull-secret does not exist, and the machine config controller reads no mirror without it',
    ]);
  });

  it('warns of a node that is down and whose mirror nodes ask before others', async () => {
    await start();
    const conditions = [{ type: 'Ready', status: 'Unknown' }];
    const addresses = [{ type: 'InternalIP', address: '192.0.2.12' }];
    put(node('master-1', 'master', { addresses, conditions }));
    const install = (...hosts: string[]): void =>
      putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, {
        mirrors: ['localhost', ...hosts].map((host) => `${host}:9690/x`),
      });
    const words =
      'warning Node/master-1 is not ready, and nodes ask its mirror before others: a node that joins waits for it';
    install('192.0.2.12', '192.0.2.11');
    expect(await find(undefined)).to.include(words);
    install('192.0.2.11', '192.0.2.12');
    expect(await find(undefined)).not.to.include(words);
  });

  it('names the host names by which nodes pull from nodes with IPv6 only', async () => {
    await start('4.20.3', 'fd00::11');
    const addresses = [
      { type: 'InternalIP', address: 'fd00::11' },
      { type: 'Hostname', address: 'master-0.site.example' },
    ];
    put(node('master-0', 'master', { addresses }));
    expect(await find(9690)).to.deep.equal([
      'info Node/master-0 has no IPv4 address: nodes pull from its mirror by the name master-0.site.example',
    ]);
  });

  it('warns of a node without an IPv4 address beside others that have one', async () => {
    await start();
    put(node('master-1', 'master', { addresses: [{ type: 'InternalIP', address: 'fd00::12' }] }));
    expect(await find(9690)).to.deep.equal([
      'warning Node/master-1 has neither an IPv4 address nor a host name for a mirror',
    ]);
  });

  it('blocks sets of any kind that contradict each other, also if one of them has no policy', async () => {
    await start();
    putSet('ImageDigestMirrorSet', 'a', `${payload}/ocp-release`, { mirrorSourcePolicy: 'NeverContactSource' });
    putSet('ImageTagMirrorSet', 'b', `${payload}/ocp-release`);
    expect(await find(9690)).to.deep.equal([
      `blocker MirrorSet/${payload}/ocp-release a, b differ in mirrorSourcePolicy for it`,
      silent,
    ]);
  });

  it('warns of mirrors of the site that do not answer, but not for their certificates', async () => {
    await start();
    await using authority = await makeAuthority();
    await using mirror = await serve('127.0.0.1', 0, authority);
    const mirrors = [`127.0.0.1:${mirror.port}/a`, '127.0.0.1:1/a'];
    putSet('ImageDigestMirrorSet', 'site', payload, { mirrors });
    putSet('ImageDigestMirrorSet', 'other', 'quay.io/other', { mirrors: ['127.0.0.1:2/a'] });
    expect(await find(9690)).to.deep.equal([silent]);
  });

  it('takes the policy of a set for tags, and says which mirrors for tags no longer count', async () => {
    await start();
    const policy = { mirrorSourcePolicy: 'NeverContactSource' };
    putSet('ImageTagMirrorSet', 'same', `${payload}/ocp-release`, policy);
    putSet('ImageTagMirrorSet', 'broader', 'quay.io');
    const site = await readMirrorSite(connected.cluster, []);
    const { imageDigestMirrors } = digestMirrorSet({ ...site, port: 9690 }).spec;
    expect(imageDigestMirrors.map((each) => each.mirrorSourcePolicy)).to.deep.equal(['NeverContactSource', undefined]);
    expect(await find(9690)).to.deep.equal([
      `warning MirrorSet/quay.io its mirrors for tags no longer count for ${payload}/ocp-v4.0-art-dev`,
    ]);
  });

  it('warns of obstacles between nodes and the mirrors', async () => {
    await start('4.14.1');
    const own = ['registries.conf', 'registries.conf.d/999-ours.conf'].map((name) => `/etc/containers/${name}`);
    const files = [...own, '/etc/motd', '/etc/containers/registries.config'].map((path) => ({ path }));
    const written = { config: { storage: { files } } };
    const annotations = { 'machineconfiguration.openshift.io/generated-by-controller-version': 'a' };
    put({ apiVersion: machines, kind: 'MachineConfig', metadata: { name: '99-ours' }, spec: written });
    put({ apiVersion: machines, kind: 'MachineConfig', metadata: { name: '01-base', annotations }, spec: written });
    const policy = { apiVersion: 'operator.openshift.io/v1alpha1', kind: 'ImageContentSourcePolicy' };
    put({ ...policy, metadata: { name: 'old' }, spec: {} });
    const registrySources = { allowedRegistries: ['*.example.com', `${payload}/ocp-release`] };
    put({ apiVersion: config, kind: 'Image', metadata: { name: 'cluster' }, spec: { registrySources } });
    put({ apiVersion: config, kind: 'Proxy', metadata: { name: 'cluster' }, status: { httpsProxy: 'http://p:3128' } });
    expect(await find(9690)).to.deep.equal([
      'warning ImageContentSourcePolicy/old 4.14.1 may ignore mirror sets beside it',
      `warning Image/cluster does not allow images of ${payload}/ocp-v4.0-art-dev`,
      'warning Proxy/cluster a machine config controller before August 2026 asks it for the mirrors, and ' +
        'ignores noProxy',
      'warning ClusterVersion/version 4.14.1 reboots every node when the CA of the mirrors changes',
      `warning MachineConfig/99-ours writes ${own.join(', ')}`,
    ]);
  });

  it('warns if no controller reads the metadata that the mirrors keep', async () => {
    for (const version of ['4.21.9', '4.22.0-rc.1']) {
      await start(version);
      putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors: ['localhost:9690/x'] }, 'metadata');
      const found = (await find(undefined)).filter((each) => each.includes('ClusterVersion'));
      const message = `the machine config controller of ${version} reads no metadata of mirrors`;
      expect(found).to.deep.equal(version === '4.21.9' ? [`warning ClusterVersion/version ${message}`] : []);
      await connected.close();
    }
    await start();
  });

  it('warns of sources that the site blocks, and of nothing that a site without a proxy has', async () => {
    await start();
    const registrySources = { blockedRegistries: [`${payload}/ocp-release`] };
    put({ apiVersion: config, kind: 'Image', metadata: { name: 'cluster' }, spec: { registrySources } });
    put({ apiVersion: config, kind: 'Proxy', metadata: { name: 'cluster' }, status: {} });
    expect(await find(9690)).to.deep.equal([`warning Image/cluster does not allow images of ${payload}/ocp-release`]);
  });

  it('warns of a node that was added', async () => {
    await start();
    const mirrors = ['localhost', '192.0.2.9', '192.0.2.11'].map((host) => `${host}:9690/x`);
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors });
    put(node('master-1', 'master', { addresses: [{ type: 'InternalIP', address: '192.0.2.12' }] }));
    report('master-0', '4.20.3');
    report('master-1', '4.20.3');
    expect(await find(undefined)).to.deep.equal([
      'warning Node/master-1 nodes do not pull from its mirror at 192.0.2.12',
    ]);
  });

  it('warns of a mirror without the running release, and of a node without one', async () => {
    await start();
    const mirrors = ['localhost:9690/x', '192.0.2.11:9690/x'];
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors });
    expect(await find(undefined)).to.deep.equal(['warning Node/master-0 its agent reports no mirror']);
    report('master-0', '4.20.2');
    expect(await find(undefined)).to.deep.equal(['warning Node/master-0 its mirror does not have 4.20.3']);
    report('master-0', '4.20.3');
    expect(await find(undefined)).to.deep.equal([]);
    reportMirror(connected.server, 'master-0', { versions: ['4.20.3'], lacking: ['openshift-release-dev/x@sha256:1'] });
    expect(await find(undefined)).to.deep.equal([
      'warning Node/master-0 its mirror was asked for images that it lacks: openshift-release-dev/x@sha256:1',
    ]);
  });

  it('does not count on the mirrors for images by tag', async () => {
    await start();
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', 'quay.io/shop', {
      mirrors: ['localhost:9690/x', '192.0.2.11:9690/x'],
    });
    report('master-0', '4.20.3');
    const template = (image: string) => ({ template: { spec: podSpec({ image }) } });
    put(workload('Deployment', 'tagged', 'shop', template('quay.io/shop/web:1')));
    put(workload('Deployment', 'exact', 'shop', template(`quay.io/shop/web@sha256:${'c'.repeat(64)}`)));
    expect(await find(undefined)).to.deep.equal([
      'info Deployment/tagged a node that loses its images does not get back quay.io/shop/web:1',
    ]);
  });

  it('asks installed mirrors, and tells another service from a mirror that it cannot reach', async () => {
    await start('4.20.3', '127.0.0.1');
    const hosts = ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4'];
    for (const [index, address] of hosts.entries())
      put(node(`master-${index}`, 'master', { addresses: [{ type: 'InternalIP', address }] }));
    for (const index of hosts.keys()) report(`master-${index}`, '4.20.3');
    await using authority = await makeAuthority();
    await using another = await makeAuthority();
    await using mirror = await serve(hosts[0], 0, authority);
    const { port } = mirror;
    await using _stale = await serve(hosts[1], port, another);
    await using plain = createServer().listen(port, hosts[2]);
    await once(plain, 'listening');
    const mirrors = ['localhost', ...hosts].map((host) => `${host}:${port}/x`);
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors });
    expect(await find(undefined)).to.deep.equal([]);
    expect(await find(9690)).to.deep.equal([
      `warning ConfigMap/oc-upgrade-bundle-mirror-ca does not have localhost..${port}`,
    ]);
    const metadata = { name: 'oc-upgrade-bundle-mirror-ca', namespace: 'openshift-config' };
    put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { [`localhost..${port}`]: authority.certificate } });
    const [second = '', third = '', fourth = '', ...rest] = await find(9690);
    expect(second).to.match(/^warning Node\/master-1 its mirror is not trusted: the certificate of 127\.0\.0\.2:/);
    expect(third).to.match(
      /^warning Node\/master-2 its mirror is not trusted: 127\.0\.0\.3:.* speaks http, not https$/,
    );
    expect(fourth).to.match(/^info Node\/master-3 its mirror was not asked: 127\.0\.0\.4:.* cannot be reached: /);
    expect(rest).to.deep.equal([]);
  });

  it('says that the CA of installed mirrors may not be read', async () => {
    const allow = ({ name }: Attempt): boolean => name !== 'oc-upgrade-bundle-mirror-ca';
    await start('4.20.3', '127.0.0.1', { tokens: new Map([['t', 'reader']]), allow });
    report('master-0', '4.20.3');
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors: ['localhost:1/x', '127.0.0.1:1/x'] });
    expect(await find(9690)).to.deep.equal([
      'info ConfigMap/oc-upgrade-bundle-mirror-ca may not be read: the mirrors were not asked',
    ]);
  });

  it('names the workloads whose images no mirror gives back', async () => {
    await start();
    const digest = `sha256:${'c'.repeat(64)}`;
    const template = (image: string) => ({ template: { spec: podSpec({ image }) } });
    put(workload('Deployment', 'tagged', 'shop', template('quay.io/shop/web:1')));
    put(pod('tagged-1', 'shop', podSpec({ image: 'quay.io/shop/web:1' }), 'Deployment/tagged'));
    const { containers } = podSpec({ image: 'quay.io/shop/web:3' }) as { containers: [Json] };
    put(pod('foreign', 'shop', { containers: [...containers, { ...containers[0], name: 'same' }] }, 'Widget/other'));
    put(workload('Deployment', 'other', 'shop', template(`quay.io/shop/web@${digest}`)));
    put(workload('Deployment', 'built', 'shop', template('image-registry.openshift-image-registry.svc:5000/shop/a:1')));
    put(workload('Deployment', 'mirrored', 'shop', template(`registry.redhat.io/a/b@${digest}`)));
    // Only images by digest come from mirrors.
    put(workload('Deployment', 'site', 'shop', template('registry.redhat.io/a/b:1')));
    put(workload('Deployment', 'unmirrored', 'shop', template(`registry.example.org/a@${digest}`)));
    putSet('ImageDigestMirrorSet', 'empty', 'registry.example.org', { mirrors: [] });
    put(workload('Deployment', 'stopped', 'shop', { ...template('quay.io/shop/web:2'), replicas: 0 }));
    putSet('ImageDigestMirrorSet', 'site', 'registry.redhat.io');
    put({ apiVersion: machines, kind: 'MachineOSConfig', metadata: { name: 'infra' } });
    const lost = 'a node that loses its images does not get back';
    expect(await find(9690)).to.have.members([
      'warning MachineOSConfig/infra builds an operating system',
      `info Deployment/tagged ${lost} quay.io/shop/web:1`,
      `info Pod/foreign ${lost} quay.io/shop/web:3`,
      `info Deployment/other ${lost} quay.io/shop/web@${digest}`,
      `info Deployment/site ${lost} registry.redhat.io/a/b:1`,
      `info Deployment/unmirrored ${lost} registry.example.org/a@${digest}`,
    ]);
    put(workload('Deployment', 'operator', 'shop', template(`${payload}/ocp-release@${digest}`)));
    const ofRelease = `info Deployment/operator ${lost} ${payload}/ocp-release@${digest}`;
    expect(await find(9690)).not.to.include(ofRelease);
    putSet('ImageDigestMirrorSet', 'oc-upgrade-bundle', payload, { mirrors: ['localhost:9690/x'] }, 'metadata');
    expect(await find(undefined)).to.include(ofRelease);
  });
});
