import { existsSync } from 'node:fs';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { parse } from 'yaml';
import { mirrorSetManifest } from '../../../lib/config/mirrorSets.ts';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { PluginError } from '../../../lib/errors.ts';
import { adaptMirrorSets, applyToCluster } from '../../../lib/mirroring/mirror/clusterConfig.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startApiServer, type TestApiServer, type ApiServerOptions } from '../../fakes/kubernetes/apiServer.ts';
import { type Authority, makeAuthority } from '../../support/certificates.ts';
import { startCluster } from '../../support/cluster.ts';
import { type Workshop, runExecutable } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import type { KubeconfigFolder } from '../../support/kubeconfig.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';
import type { Mirroring } from '../../support/release/mirroring.ts';
import { openMirrorSite } from '../../support/release/mirrorSite.ts';
import type { MirrorSite } from '../../support/release/mirrorSite.ts';

describe('the configuration of a mirror in a cluster', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let site: MirrorSite;

  const open = async (options: Parameters<typeof openMirrorSite>[0] = {}): Promise<void> => {
    site = await openMirrorSite(options);
    ({ workshop, mirroring, server, kubeconfigs, kubeconfig } = site);
  };
  afterEach(() => site.close());
  const nameOf = (): string => `sha256-${hexOf(workshop.release.digest)}`;
  const mirrorSets = (kind = 'ImageDigestMirrorSet') => {
    const served = server.kinds.find((known) => known.kind === kind);
    return served ? server.objects.list(served, '') : [];
  };
  const writes = () =>
    server.requests.filter(({ method, path }) => method !== 'GET' && !path.endsWith('/selfsubjectaccessreviews'));
  const applying = (): string[] => ['--apply-config', '--overwrite', kubeconfig, '--config-to-dir=config'];

  it('takes no mirror away, neither in the cluster nor in a folder, whichever options are given', async () => {
    await open();
    const { registry } = workshop;
    const options = applying();
    const mirrors = async (): Promise<string[]> => {
      const files = await readdir(mirroring.path('config/mirrors'));
      const texts = await Promise.all(files.map((name) => readFile(mirroring.path('config/mirrors', name), 'utf8')));
      const inFolder = texts.map((text) => parse(text) as Record<string, object>);
      expect(inFolder.map(({ spec }) => spec)).to.have.deep.members(mirrorSets().map((set) => set['spec']));
      return [...JSON.stringify(inFolder).matchAll(/"mirrors":\["([^"]+)"\]/g)].map(([, mirror = '']) => mirror);
    };
    await mirroring.succeed([`--to=${registry.host}/site/\${version}`, ...options]);
    expect(new Set(await mirrors())).to.deep.equal(new Set([`${registry.host}/site/4.12.4`]));
    await mirroring.succeed([`--to=${registry.host}/site/next`, ...options]);
    const releases = `--to-release-image=${registry.host}/site/releases:4.12.4`;
    await mirroring.succeed([`--to=${registry.host}/site/\${version}`, releases, ...options]);
    expect(await mirrors()).to.include.members(
      ['4.12.4', 'next', 'releases'].map((name) => `${registry.host}/site/${name}`),
    );
  });

  it('keeps mirrors of an object of an earlier version, and of an edited one, and names them', async () => {
    await open();
    const { registry } = workshop;
    const options = applying();
    await mirroring.succeed([`--to=${registry.host}/site/next`, ...options]);
    await rm(mirroring.path('config'), { recursive: true });
    const edited = mirrorSets().find((set) => JSON.stringify(set).includes('/site/next'));
    const entry = { source: 'quay.io/a/b', mirrors: ['registry.test/a/b'] };
    for (const name of [edited?.metadata.name ?? '', 'release-mirror']) {
      server.put({
        apiVersion: 'config.openshift.io/v1',
        kind: 'ImageDigestMirrorSet',
        metadata: { name },
        spec: { imageDigestMirrors: [entry] },
      });
    }
    const name = `imagedigestmirrorset/${edited?.metadata.name ?? ''}`;
    const words = `${name} keeps mirrors that the manifest does not have; oc edit removes them:`;
    for (const outcome of ['configured', 'unchanged']) {
      const { stdout, stderr } = await mirroring.run([`--to=${registry.host}/site/next`, ...options]);
      expect(stdout).to.contain(`${name} ${outcome}\n`);
      expect(stderr).to.contain(`${words}\n  quay.io/a/b → registry.test/a/b\n`);
    }
    const json = await mirroring.succeed([`--to=${registry.host}/site/next`, ...options, '-o=json']);
    const { applied } = JSON.parse(json) as { applied: { object: string; kept?: string[] }[] };
    expect(applied.find(({ object }) => object === name)?.kept).to.deep.equal(['quay.io/a/b → registry.test/a/b']);
    const kept = mirrorSets().filter((set) => JSON.stringify(set).includes(JSON.stringify(entry.source)));
    expect(kept.map(({ metadata }) => metadata.name)).to.have.members(['release-mirror', edited?.metadata.name]);
  });

  it('makes the kind of mirror set that the cluster accepts, and says which', async () => {
    await open({ openshift: '4.12.0' });
    const { registry } = workshop;
    const to = `--to=${registry.host}/site/release`;
    const old = await mirroring.run([to, '--apply-config', '--config-to-dir=config', kubeconfig]);
    expect(old.code, old.stderr).to.equal(0);
    expect(old.stdout).to.match(/^imagecontentsourcepolicy\/release-mirror-\w{8} created$/m);
    expect(old.stderr).to.match(
      /does not serve ImageDigestMirrorSet: ImageContentSourcePolicy takes the place of Image/,
    );
    expect(await readdir(mirroring.path('config/mirrors'))).to.match(/^imagecontentsourcepolicy/);
    // Older patches refuse both kinds together. Newer ones accept the requested kind.
    await mirroring.succeed(['--to-dir=mirror']);
    await mirroring.succeed([`${to}-next`, '--config-to-dir=mirror/config']);
    for (const [version, kind] of [
      ['4.14.2', 'imagecontentsourcepolicy'],
      ['4.14.3', 'imagedigestmirrorset'],
    ] as const) {
      await using newer = await startApiServer({ openshift: version });
      newer.put({
        apiVersion: 'operator.openshift.io/v1alpha1',
        kind: 'ImageContentSourcePolicy',
        metadata: { name: 'earlier' },
        spec: { repositoryDigestMirrors: [] },
      });
      kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: newer.url } })}`;
      const created = new RegExp(`^${kind}/release-mirror-\\w{8} created$`, 'm');
      expect(await mirroring.succeed([to, '--apply-config', kubeconfig])).to.match(created);
      const applied = await runExecutable('oc-adm_release_mirror_config', workshop.folder, [
        'apply',
        'mirror',
        `--mirror-registry=${registry.host}`,
        kubeconfig,
        `--trust-fingerprint=${workshop.key.fingerprint}`,
      ]);
      expect(applied.stdout, applied.stderr).to.match(created);
    }
  });

  it('finds missing rights and unwritable files before images are copied', async () => {
    let forbidden = 'create imagedigestmirrorsets';
    await open({ allow: ({ verb, resource }) => `${verb} ${resource}` !== forbidden });
    const { registry } = workshop;
    const to = `--to=${registry.host}/site/release`;
    const refused = [to, '--apply-config', '--overwrite', kubeconfig];
    expect(await mirroring.fail(refused)).to.match(/to create imagedigestmirrorset\/release-mirror-\w{8}$/m);
    forbidden = 'get configmaps';
    expect(await mirroring.fail(refused)).to.contain(`to get configmap/${nameOf()}\n`);
    server.put({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: nameOf(), namespace: 'openshift-config-managed' },
      data: { a: 'b' },
    });
    forbidden = 'update configmaps';
    expect(await mirroring.fail(refused)).to.contain(`to update configmap/${nameOf()}\n`);
    await writeFile(mirroring.path('file'), '');
    for (const folder of ['/proc/nowhere', 'file', 'file/config']) {
      expect(await mirroring.fail([to, `--config-to-dir=${folder}`])).to.match(
        /error \([a-z-]+\): .* cannot be written/,
      );
    }
    expect(registry.content.repositories.has('site/release')).to.equal(false);
    expect(writes()).to.have.length(0);
  });

  it('reports the mirrored images even if the cluster then denies access', async () => {
    await open();
    const refused = { answer: { status: 401, body: '{"kind":"Status","reason":"Unauthorized"}' } };
    server.fault(() => existsSync(mirroring.path('mirror/v2')), refused);
    const { code, stdout, stderr } = await mirroring.run(['--to-dir=mirror', '--apply-config', kubeconfig]);
    expect(code, stderr).to.equal(1);
    expect(stdout).to.contain('\nSuccess\n').and.contain('oc adm-release-mirror-config apply mirror/config');
  });
});

/** The image configuration of the cluster, and the registries in the ConfigMap of their CAs. */
interface Trust {
  readonly spec: unknown;
  readonly keys: readonly string[];
}

describe('the CA of a registry in a cluster', () => {
  let site: MirrorSite;
  let authority: Authority;
  /** What the cluster trusts without a ConfigMap of its own, and with one. */
  let first: Trust;
  const later: Trust[] = [];
  let [advised, applied, repeated] = ['', '', ''];

  const image = { apiVersion: 'config.openshift.io/v1', kind: 'Image', metadata: { name: 'cluster' } };
  const trustOf = (name: string): Trust => ({
    spec: site.server.find('config.openshift.io/v1', 'Image', 'cluster')?.['spec'],
    keys: Object.keys(site.server.find('v1', 'ConfigMap', name, 'openshift-config')?.['data'] ?? {}),
  });
  const registryKey = (): string => site.workshop.registry.host.replace(':', '..');

  before(async () => {
    site = await openMirrorSite({ release: { components: ['cluster-version-operator', 'cli', 'etcd'] } });
    authority = await makeAuthority();
    const { mirroring, workshop, server, kubeconfig } = site;
    const archive = await workshop.write('graph-data.tar', '');
    await writeFile(archive, makeArchive(soundFiles));
    server.put({ ...image, spec: { registrySources: { allowedRegistries: ['quay.io'] } } });
    const args = [
      `--to=${workshop.registry.host}/site/release`,
      `--graph-data=${archive}`,
      '--config-to-dir=config',
      `--certificate-authority=${authority.certificateFile}`,
    ];
    advised = await mirroring.succeed(args);
    applied = await mirroring.succeed([...args, '--apply-config', kubeconfig]);
    first = trustOf('mirror-registry-ca');
    repeated = await mirroring.succeed([...args, '--apply-config', kubeconfig]);

    server.put({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'ours', namespace: 'openshift-config' },
      data: { 'other.test..5000': 'PEM' },
    });
    server.put({ ...image, spec: { additionalTrustedCA: { name: 'ours' } } });
    for (const options of [[], ['--overwrite']]) {
      await mirroring.succeed([...args, '--apply-config', ...options, kubeconfig]);
      later.push(trustOf('ours'));
    }
  });
  after(async () => {
    await authority.remove();
    await site.close();
  });

  it('advises to trust it before the update', () => {
    expect(advised.indexOf('additionalTrustedCA')).to.be.within(1, advised.indexOf('oc adm upgrade'));
  });

  it('adds it to the trusted CAs of the cluster', () => {
    expect(applied).to.contain('image/cluster configured\n').and.not.contain('To make the cluster trust');
    expect(first.keys).to.have.members(['updateservice-registry', registryKey()]);
    expect(first.spec).to.deep.equal({
      registrySources: { allowedRegistries: ['quay.io'] },
      additionalTrustedCA: { name: 'mirror-registry-ca' },
    });
  });

  it('finds it unchanged after that', () => {
    expect(repeated).to.contain('image/cluster unchanged\n');
  });

  it('adds it to another ConfigMap of the cluster, and keeps its content', () => {
    for (const { spec, keys } of later) {
      expect(spec).to.deep.equal({ additionalTrustedCA: { name: 'ours' } });
      expect(keys).to.have.members(['other.test..5000', 'updateservice-registry', registryKey()]);
    }
    expect(later).to.have.length(2);
  });
});

describe('adaptMirrorSets', () => {
  const manifest = mirrorSetManifest('idms', [{ source: 'quay.io/a/b', mirrors: ['r.test/a/b'] }]);
  const policy = {
    apiVersion: 'operator.openshift.io/v1alpha1',
    kind: 'ImageContentSourcePolicy',
    metadata: { name: 'earlier' },
    spec: { repositoryDigestMirrors: [] },
  };
  const tagSet = { apiVersion: 'config.openshift.io/v1', kind: 'ImageTagMirrorSet', metadata: { name: 'x' }, spec: {} };

  async function kindIn(
    openshift: string,
    objects: readonly object[],
    own = manifest,
    options: ApiServerOptions = {},
  ): Promise<string | undefined> {
    await using connected = await startCluster({ openshift, ...options });
    for (const object of objects) connected.server.put(object as Json);
    const [adapted] = await adaptMirrorSets(connected.cluster, [own], connected.context);
    return adapted?.object.kind;
  }

  it('keeps the kind if the cluster has no objects of the other one', async () => {
    expect(await kindIn('4.13.0', [])).to.equal('ImageDigestMirrorSet');
    expect(await kindIn('4.13.0', [policy])).to.equal('ImageContentSourcePolicy');
  });

  it('keeps the kind from the first patch that accepts both', async () => {
    expect(await kindIn('4.13.26', [policy])).to.equal('ImageContentSourcePolicy');
    for (const version of ['4.13.27', '4.14.3', '4.15.0'])
      expect(await kindIn(version, [policy]), version).to.equal('ImageDigestMirrorSet');
  });

  it('converts the older kind if the cluster has sets for tags', async () => {
    const older = mirrorSetManifest('icsp', [{ source: 'quay.io/a/b', mirrors: ['r.test/a/b'] }]);
    expect(await kindIn('4.14.2', [], older)).to.equal('ImageContentSourcePolicy');
    expect(await kindIn('4.14.2', [tagSet], older)).to.equal('ImageDigestMirrorSet');
  });

  it('keeps the kind if the user may not list objects of the other one', async () => {
    const allow = ({ resource }: Attempt): boolean => resource !== 'imagecontentsourcepolicies';
    const tokens = new Map([['t', 'bob']]);
    expect(await kindIn('4.13.0', [policy], manifest, { allow, tokens })).to.equal('ImageDigestMirrorSet');
  });
});

describe('applyToCluster', () => {
  const manifest = mirrorSetManifest('idms', [{ source: 'quay.io/a/b', mirrors: ['r.test/a/b'] }]);
  const apply = (failure: Error, manifests = [manifest]) =>
    applyToCluster({ openCluster: () => Promise.reject(failure) }, manifests, { overwrite: false }, makeContext());

  it('returns the error of the cluster, because the images are mirrored', async () => {
    const failure = new PluginError('unreachable', 'x');
    expect(await apply(failure)).to.deep.equal({ applied: [], failure });
  });

  it('throws an interruption, and errors of this program', async () => {
    await failureOf(apply(new PluginError('interrupted', 'x')), 'interrupted');
    expect(await apply(new TypeError('x')).catch((error: unknown) => error)).to.be.instanceOf(TypeError);
  });

  it('asks no cluster if there is nothing to apply', async () => {
    expect(await apply(new TypeError('x'), [])).to.deep.equal({ applied: [] });
  });
});
