import { X509Certificate } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { mock } from 'node:test';
import { expect } from 'chai';
import { applyObjects } from '../../../lib/cluster/apply/serverSideApply.ts';
import type { StoredObject } from '../../../lib/cluster/objects/storedObject.ts';
import type { KubernetesObject } from '../../../lib/config/manifest.ts';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { readConfigFile } from '../../../lib/readiness/nodes/imageRetention.ts';
import { BundleCache, type CachedBundle } from '../../../lib/update/agent/bundleCache.ts';
import { accountPolicies } from '../../../lib/update/install/accountPolicies.ts';
import { agentAccess } from '../../../lib/update/install/agentAccess.ts';
import { issueMirrorCertificates } from '../../../lib/update/mirror/mirrorCertificates.ts';
import { MirrorControl } from '../../../lib/update/mirror/mirrorControl.ts';
import {
  authorityConfigs,
  authorityMap,
  digestMirrorSet,
  mirrorAccess,
  type MirrorPlan,
} from '../../../lib/update/mirror/mirrorObjects.ts';
import { runMirrorServer } from '../../../lib/update/mirror/mirrorServer.ts';
import { userOf } from '../../../lib/update/record/accountAccess.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import type { ApiObject } from '../../fakes/kubernetes/apiObjects.ts';
import { readRights } from '../../fakes/kubernetes/apiRights.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import { connectTo, startCluster, type ConnectedCluster, type StartedCluster } from '../../support/cluster.ts';
import { flipByte, makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { streamRelease } from '../../support/release/streams.ts';
import { until } from '../../support/until.ts';

const hosts = ['127.0.0.1', '127.0.0.2'];
const day = 86_400_000;

describe('MirrorControl', () => {
  let site: RolloutSite;
  let connected: ConnectedCluster;
  let made: TestBundle;
  let authority: Authority;
  let secrets: string;
  let end: AbortController;
  let open: AsyncDisposableStack;

  before(async () => {
    made = await makeBundle();
    authority = await makeAuthority();
    const { certificate, key } = await authority.issue({ hosts });
    secrets = await mkdtemp(join(tmpdir(), 'mirror-'));
    const files = { 'tls.crt': certificate, 'tls.key': key, 'ca.crt': authority.certificate };
    for (const [name, content] of Object.entries(files)) await writeFile(join(secrets, name), content);
  });
  after(async () => {
    await made.remove();
    await authority.remove();
    await rm(secrets, { recursive: true });
  });
  beforeEach(async () => {
    site = await RolloutSite.start();
    connected = await connectTo(site.server);
    end = new AbortController();
    open = new AsyncDisposableStack();
    open.defer(() => site.close());
    open.defer(() => connected.close());
  });
  afterEach(async () => {
    end.abort();
    await open.disposeAsync();
    await rm(join(secrets, 'port'), { force: true });
  });
  const nodes = (addresses: readonly string[] = hosts): StoredObject[] =>
    addresses.map((address, index) => {
      const metadata = { name: `cp-${index}`, labels: { 'node-role.kubernetes.io/master': '' } };
      const status = { addresses: [{ type: 'InternalIP', address }] };
      return { apiVersion: 'v1', kind: 'Node', metadata, status };
    });

  /** Starts the mirror of a node, and returns its folder and port. */
  async function startMirror(host: string, port = 0): Promise<{ folder: string; port: number; done: Promise<void> }> {
    const folder = await mkdtemp(join(tmpdir(), 'mirror-'));
    const context = { ...makeContext(), signal: end.signal };
    return await new Promise((resolve) => {
      const onListening = (url: string): void => resolve({ folder, port: Number(new URL(url).port), done });
      const done = runMirrorServer({ host, port, folder, certificates: secrets, interval: 10, onListening }, context);
      open.defer(async () => {
        await done;
        await rm(folder, { recursive: true });
      });
    });
  }
  /** Retains the bundle in a folder, as the agent of the node does. */
  async function retain(folder: string, { path, folder: device, keyFile, key } = made): Promise<CachedBundle> {
    const trust = {
      keyrings: [keyFile],
      fingerprints: [key.fingerprint],
      allowUnsigned: false,
      fetchFile: () => Promise.resolve(undefined),
    };
    const cache = new BundleCache(folder, trust);
    const digest = digestOf(await readFile(path));
    const verified = await cache.verify({ path, device }, digest, makeContext());
    const copy = await cache.keep(verified, makeContext());
    for (const each of [verified, copy]) if (each) open.use(each.bundle);
    return verified;
  }

  it('holds an update until each mirror has every image and its signatures', async () => {
    const first = await startMirror('127.0.0.1');
    const second = await startMirror('127.0.0.2', first.port);
    const urls = hosts.map((host) => `https://${host}:${first.port}`);
    const { facts } = await retain(first.folder);
    const control = new MirrorControl(secrets, makeContext());
    const ask = () => control.findLack(connected.cluster, { nodes: nodes(), pools: [] }, facts);
    site.configureMirror(authority.certificate);
    expect(await ask()).to.equal(undefined, 'the cluster has no mirrors');
    await writeFile(join(secrets, 'port'), String(first.port));
    await until(async () => !(await ask())?.includes(`${urls[0]} lacks quay.io/`));
    expect(await ask()).to.match(
      new RegExp(`^the mirror ${urls[1]} lacks quay.io/.*; .* lacks signatures of quay.io/`),
    );
    await retain(second.folder);
    await until(async () => (await ask()) === undefined);

    // A signature whose content is corrupt is withdrawn as soon as it is read.
    const fetchText = (path: string): Promise<string> =>
      new Promise((resolve, reject) => {
        const asked = get(`${urls[1]}/v2/a/${path}`, { ca: authority.certificate, agent: false }, (response) => {
          text(response).then(resolve, reject);
        });
        asked.on('error', reject);
      });
    const manifest = await fetchText(`manifests/${attachmentTag(made.release.digest)}`);
    const [layer] = (JSON.parse(manifest) as { layers: { digest: Digest }[] }).layers;
    const { digest } = layer ?? expect.fail();
    await flipByte(replicaPath(second.folder, facts.digest), digest);
    // The server opens the changed file again, and may answer for a moment that it lacks all of it.
    const lack = new RegExp(`^the mirror ${urls[1]} lacks signatures of quay.io/`);
    await until(async () => {
      await fetchText(`blobs/${digest}`).catch(() => '');
      return lack.test((await ask()) ?? '');
    });

    end.abort();
    await Promise.all([first.done, second.done]);
    expect(await ask()).to.include(`the mirror ${urls[0]} does not answer`);
  });

  it('asks a mirror of metadata for the images that the machine config controller reads', async () => {
    await using own = await makeBundle(streamRelease);
    const mirror = await startMirror('127.0.0.1');
    await writeFile(join(secrets, 'port'), String(mirror.port));
    await writeFile(join(secrets, 'content'), 'metadata');
    open.defer(() => rm(join(secrets, 'content')));
    const { facts } = await retain(mirror.folder, own);
    await rm(replicaPath(mirror.folder, facts.digest));
    site.configureMirror(authority.certificate);
    const control = new MirrorControl(secrets, makeContext());
    const ask = (streams: typeof facts.streams) =>
      control.findLack(connected.cluster, { nodes: nodes(['127.0.0.1']), pools: [] }, { ...facts, streams });
    const streams = facts.streams ?? expect.fail();
    await until(async () => (await ask(streams)) === undefined);
    const [stream = expect.fail()] = streams.availableStreams;
    const availableStreams = [{ ...stream, osImage: `quay.io/a@${digestOf('another')}` }];
    expect(await ask({ ...streams, availableStreams })).to.include('lacks quay.io/a@');
    await rm(replicaPath(mirror.folder, facts.digest).replace(/tar$/, 'json'));
    await until(async () => (await ask(streams))?.includes('lacks quay.io/'));
    expect(await ask(undefined), 'the controller reads no image').to.equal(undefined);
  });

  it('holds an update while a mirror fails at a signature, which ends the pull of a runtime', async () => {
    const { certificate: cert, key } = await authority.issue({ hosts });
    const mirror = await startRegistry({ tls: { cert, key } });
    open.defer(() => mirror.stop());
    await writeFile(join(secrets, 'port'), new URL(mirror.url).port);
    mirror.fault(/manifests\/sha256:/, { answer: { status: 200 } });
    mirror.fault(/manifests\/sha256-/, { answer: { status: 500 } });
    site.configureMirror(authority.certificate);
    const { metadata } = site.facts ?? expect.fail('there are no facts');
    const control = new MirrorControl(secrets, makeContext());
    expect(
      await control.findLack(connected.cluster, { nodes: nodes(['127.0.0.1']), pools: [] }, { metadata }),
    ).to.equal(
      `the mirror ${mirror.url.replace('localhost', '127.0.0.1')} responds with 500 for the signature ` +
        `of ${metadata.release}`,
    );
  });

  it('holds an update until the cluster is configured for the mirrors', async () => {
    await writeFile(join(secrets, 'port'), '9690');
    const control = new MirrorControl(secrets, makeContext());
    const metadata = (site.facts ?? expect.fail()).metadata;
    const ask = () =>
      control.findLack(connected.cluster, { nodes: [], pools: site.all('MachineConfigPool') }, { metadata });
    const spec = {
      imageRegistryBundleUserData: [{ file: 'r.example.com', data: Buffer.from('another CA').toString('base64') }],
    };
    const metadataOf = (name: string) => ({ metadata: { name } });
    const [set, config] = [
      { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', ...metadataOf('site'), spec: {} },
      {
        apiVersion: 'machineconfiguration.openshift.io/v1',
        kind: 'ControllerConfig',
        ...metadataOf('machine-config-controller'),
        spec,
      },
    ];
    for (const each of [set, config]) site.server.put(each);
    expect(await ask()).to.equal(
      'there is no ImageDigestMirrorSet oc-upgrade-bundle; the ControllerConfig lacks their CA; nodes of the pools ' +
        'master, worker lack their CA',
    );
    site.configureMirror(authority.certificate);
    expect(await ask()).to.equal(undefined);
  });

  describe('and the certificate', () => {
    const address = '192.0.2.1';
    let context: TestContext;
    let control: MirrorControl;
    beforeEach(async () => {
      site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle' } });
      const issued = { addresses: [address], networks: ['192.0.2.0/24'], port: 9690 };
      // Two thirds of its time are over.
      const options = { mayCreate: true, now: new Date(Date.now() - 250 * day) };
      await issueMirrorCertificates(connected.cluster, issued, options);
      context = makeContext();
      control = new MirrorControl(secrets, context);
    });
    afterEach(() => mock.reset());
    const secret = (): ApiObject =>
      site.server.find('v1', 'Secret', 'mirror-serving', 'oc-upgrade-bundle') ?? expect.fail('there is no Secret');
    const read = (): X509Certificate => {
      const { 'tls.crt': certificate = '' } = secret()['data'] as Record<string, string>;
      return new X509Certificate(Buffer.from(certificate, 'base64'));
    };
    const renew = (...addresses: string[]): Promise<void> =>
      control.renew(connected.cluster, { nodes: nodes(addresses), pools: [] });

    it('renews it in time, which it checks once an hour', async () => {
      const old = secret();
      const { serialNumber, validToDate } = read();
      await renew(address);
      expect(read().validToDate.getTime()).to.be.greaterThan(validToDate.getTime() + 240 * day);
      expect(context.lines).to.deep.equal(['info: the certificate of the mirrors was renewed']);
      site.server.put(old);
      await renew(address);
      expect(read().serialNumber).to.equal(serialNumber);
      const later = performance.now() + 3601_000;
      mock.method(performance, 'now', () => later);
      await renew(address);
      expect(read().serialNumber).not.to.equal(serialNumber);
    });

    it('renews it when control plane nodes come or go, within its networks', async () => {
      await renew(address);
      const { serialNumber } = read();
      const before = context.lines.length;
      await renew(address, '192.0.2.2', '198.51.100.1');
      expect(read().subjectAltName).to.include('192.0.2.2').and.not.to.include('198.51.100.1');
      expect(read().serialNumber).not.to.equal(serialNumber);
      expect(context.lines.slice(before)).to.deep.equal([
        'info: the certificate of the mirrors was renewed',
        'warn: the CA of the mirrors does not permit 198.51.100.1, so no node pulls from there. For a CA that ' +
          'permits them, remove the mirrors and install them again',
      ]);
      await renew(address);
      expect(context.lines).to.have.length(before + 2);
    });

    it('renews nothing without nodes, for a cluster without mirrors, and after their removal', async () => {
      const { serialNumber } = read();
      await renew();
      await new MirrorControl(join(secrets, 'none'), context).renew(connected.cluster, {
        nodes: nodes([address]),
        pools: [],
      });
      expect(read().serialNumber).to.equal(serialNumber);
      site.remove('Secret', 'mirror-ca', 'oc-upgrade-bundle');
      await renew(address);
      expect(site.all('Secret').map(({ metadata }) => metadata.name)).not.to.include('mirror-ca');
      expect(context.lines).to.deep.equal([]);
    });
  });

  describe('with mirrors for some control plane nodes', () => {
    const plan: MirrorPlan = {
      port: 9690,
      content: 'all',
      addresses: ['192.0.2.5', '192.0.2.11'],
      roles: ['master', 'worker'],
      sources: ['ocp-release', 'ocp-v4.0-art-dev'].map((name) => `quay.io/openshift-release-dev/${name}`),
      siteMirrors: [],
      trustedAuthorities: 'ours',
    };
    const image = { apiVersion: 'config.openshift.io/v1', kind: 'Image', metadata: { name: 'cluster' } };
    let administrator: StartedCluster;
    let controller: ConnectedCluster;
    let access: KubernetesObject[];

    beforeEach(async () => {
      const tokens = new Map([
        ['t', 'system:admin'],
        ['c', userOf('controller')],
      ]);
      access = [...agentAccess(), ...mirrorAccess({ ...plan, hasPolicies: true })];
      const allow = (attempt: Attempt): boolean => attempt.user === 'system:admin' || readRights(access)(attempt);
      administrator = await startCluster({ openshift: '4.20.3', tokens, allow, policies: true });
      open.use(administrator);
      const { cluster, server, context } = administrator;
      controller = await connectTo(server, { user: { token: 'c' } });
      open.use(controller);
      for (const name of ['oc-upgrade-bundle', 'openshift-config'])
        server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
      for (const policy of accountPolicies()) server.put({ ...policy });
      server.put({ ...image, spec: { additionalTrustedCA: { name: 'ours' } } });
      const map = { name: 'ours', namespace: 'openshift-config' };
      server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata: map, data: { 'r.example.com': 'theirs' } });
      const names = { addresses: plan.addresses, networks: ['192.0.2.0/24'], port: 9690 };
      const issued = await issueMirrorCertificates(cluster, names, { mayCreate: true, now: new Date() });
      const ca = issued?.authority ?? '';
      const objects = [authorityMap(plan, ca), ...authorityConfigs(plan, ca), digestMirrorSet(plan)];
      await applyObjects(cluster, objects, { overwrite: false, manager: 'oc-upgrade-bundle-mirror' }, context);
    });
    const pools = (updated: string): StoredObject[] =>
      plan.roles.map((name) => ({
        apiVersion: 'machineconfiguration.openshift.io/v1',
        kind: 'MachineConfigPool',
        metadata: { name },
        status: {
          conditions: [{ type: 'Updated', status: updated }],
          configuration: { source: [{ name: `98-${name}-oc-upgrade-bundle-mirror` }] },
        },
      }));
    const readSet = (): string[][] => {
      const set = administrator.server.find('config.openshift.io/v1', 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
      const { imageDigestMirrors } = set?.['spec'] as { imageDigestMirrors: { mirrors: string[] }[] };
      return imageDigestMirrors.map(({ mirrors }) => mirrors);
    };
    const hostsOf = (name: string): string[] =>
      ['localhost', '192.0.2.12', '192.0.2.11', '192.0.2.5'].map(
        (host) => `${host}:9690/openshift-release-dev/${name}`,
      );

    it('adds the addresses of new ones once the pools are up to date, and keeps the others', async () => {
      const { server } = administrator;
      const control = new MirrorControl(secrets, controller.context);
      const present = nodes(['192.0.2.12', '192.0.2.11', '198.51.100.1']);
      const before = readSet();
      await control.renew(controller.cluster, { nodes: present, pools: pools('False') });
      expect(readSet()).to.deep.equal(before);
      await control.renew(controller.cluster, { nodes: present, pools: pools('True') });
      expect(readSet()).to.deep.equal([hostsOf('ocp-release'), hostsOf('ocp-v4.0-art-dev')]);
      const keys = ['192.0.2.11..9690', '192.0.2.12..9690', '192.0.2.5..9690', 'localhost..9690', 'r.example.com'];
      const map = server.find('v1', 'ConfigMap', 'ours', 'openshift-config');
      expect(Object.keys(map?.['data'] as object).sort()).to.deep.equal(keys);
      for (const role of plan.roles) {
        const name = `98-${role}-oc-upgrade-bundle-mirror`;
        const config = server.find('machineconfiguration.openshift.io/v1', 'MachineConfig', name);
        const file = config && readConfigFile(config, '/etc/containers/certs.d/192.0.2.12:9690/ca.crt');
        expect(file).to.match(/^-----BEGIN CERTIFICATE/);
      }
      const { data } = server.find('v1', 'Secret', 'mirror-serving', 'oc-upgrade-bundle') ?? expect.fail();
      const leaf = Buffer.from((data as Record<string, string>)['tls.crt'] ?? '', 'base64');
      expect(new X509Certificate(leaf).subjectAltName).to.include('192.0.2.12').and.to.include('192.0.2.5');
    });

    it('asks for another installation if it may not add them', async () => {
      access = [...agentAccess(), ...mirrorAccess({ ...plan, hasPolicies: false })];
      const control = new MirrorControl(secrets, controller.context);
      const before = readSet();
      await control.renew(controller.cluster, { nodes: nodes(['192.0.2.12']), pools: pools('True') });
      expect(readSet()).to.deep.equal(before);
      expect(controller.context.lines.join('\n')).to.include('install the mirrors again to add 192.0.2.12');
    });
  });
});
