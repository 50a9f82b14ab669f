import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { parse } from 'yaml';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { updateServiceKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { ImportingServer } from '../../fakes/kubernetes/importingServer.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import { openWorkshop, runExecutable, type Workshop } from '../../support/content/creation.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer } from '../../support/peers.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { findCommands, runPrinted } from '../../support/program/printedCommands.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';
import { Mirroring, pullWhole, readTagLinks } from '../../support/release/mirroring.ts';
import { until } from '../../support/until.ts';

const managed = 'openshift-config-managed';

/** A workshop and a cluster. `kubeconfig` is the option that names the cluster. */
interface Site {
  readonly workshop: Workshop;
  readonly mirroring: Mirroring;
  readonly server: TestApiServer;
  readonly kubeconfigs: KubeconfigFolder;
  readonly kubeconfig: string;
  close(): Promise<void>;
}

async function openSite(options: ApiServerOptions & Parameters<typeof openWorkshop>[0] = {}): Promise<Site> {
  const small = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1 };
  const workshop = await openWorkshop({ ...options, release: { ...small, ...options.release } });
  const server = await startApiServer({ openshift: '4.14.3', kinds: [updateServiceKind], ...options });
  server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-update-service' } });
  const kubeconfigs = await makeKubeconfigFolder();
  const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  const close = async (): Promise<void> => {
    await workshop.close();
    await server.stop();
    await kubeconfigs.remove();
  };
  return { workshop, mirroring: new Mirroring(workshop), server, kubeconfigs, kubeconfig, close };
}

describe('oc adm-release-mirror-config and a cluster', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;

  let site: Site;

  const open = async (options: Parameters<typeof openSite>[0] = {}): Promise<void> => {
    site = await openSite(options);
    ({ workshop, mirroring, server, kubeconfigs, kubeconfig } = site);
  };
  afterEach(() => site.close());
  const nameOf = (): string => `sha256-${hexOf(workshop.release.digest)}`;
  const stored = () => server.find('v1', 'ConfigMap', nameOf(), managed);
  const mirrorSets = (kind = 'ImageDigestMirrorSet') => {
    const served = server.kinds.find((known) => known.kind === kind);
    return served ? server.objects.list(served, '') : [];
  };
  const writes = () =>
    server.requests.filter(({ method, path }) => method !== 'GET' && !path.endsWith('/selfsubjectaccessreviews'));
  const apply = (...args: string[]): Promise<Execution> =>
    runExecutable('oc-adm_release_mirror_config', workshop.folder, [
      'apply',
      ...args,
      kubeconfig,
      `--trust-fingerprint=${workshop.key.fingerprint}`,
    ]);

  it('applies the configuration once the images are there, and finds it unchanged after that', async () => {
    await open();
    const { registry, release } = workshop;
    const args = [`--to=${registry.host}/site/release`, '--apply-config', kubeconfig];
    const stdout = await mirroring.succeed(args);
    expect(stdout)
      .to.contain(`configmap/${nameOf()} created\n`)
      .and.match(/^imagedigestmirrorset\/release-mirror-\w{8} created$/m)
      .and.not.contain('name: example');
    expect(stored()?.['binaryData']).to.have.all.keys(`${nameOf()}-1`);
    const [set] = mirrorSets();
    const source = `${release.registry}/${release.componentRepository}`;
    expect(JSON.stringify(set?.['spec'])).to.contain(source).and.contain(`${registry.host}/site/release`);
    const count = writes().length;
    expect(await mirroring.succeed(args)).to.contain(`configmap/${nameOf()} unchanged\n`);
    expect(writes()).to.have.length(count);
  });

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

  it('brings only the signature, without images and without a network', async () => {
    await open();
    await mirroring.succeed(['--to-dir=mirror']);
    await Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
    const source = `file://openshift/release:${workshop.release.tag}`;
    const stdout = await mirroring.succeed(
      ['--from-dir=mirror', '--apply-release-image-signature', kubeconfig],
      source,
    );
    expect(stdout).to.equal(`configmap/${nameOf()} created\n`);
    expect(writes()).to.have.length(1);
  });

  it('keeps different objects, shows the differences, and replaces them on request', async () => {
    await open();
    await mirroring.succeed(['--to-dir=mirror']);
    const metadata = { name: nameOf(), namespace: managed };
    server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, binaryData: { [`${nameOf()}-1`]: 'b3RoZXI=' } });
    const { code, stdout, stderr } = await apply('mirror');
    expect(code).to.equal(1);
    expect(stdout).to.equal(`configmap/${nameOf()} conflict\n`);
    expect(stderr).to.match(/exists with other content and is left alone; --overwrite replaces it:\n .*binaryData/);
    expect(stderr).to.match(/error \([a-z-]+\): 1 of 1 objects were not applied: configmap\/sha256-\w+ conflict/);
    expect(stderr).not.to.contain('The rest is done.');
    expect(stored()?.['binaryData']).to.deep.equal({ [`${nameOf()}-1`]: 'b3RoZXI=' });
    expect((await apply('mirror', '--overwrite')).stdout).to.equal(`configmap/${nameOf()} configured\n`);
    expect((await apply('mirror/config')).stdout).to.equal(`configmap/${nameOf()} unchanged\n`);
  });

  it('continues after an object that fails, and exits with 1 at the end', async () => {
    await open();
    await mkdir(mirroring.path('config'));
    const configMap = (name: string, namespace: string): string =>
      JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data: { a: 'b' } });
    await writeFile(mirroring.path('config/a.json'), configMap('first', 'nowhere'));
    await writeFile(mirroring.path('config/b.yaml'), configMap('second', 'default'));
    await writeFile(mirroring.path('config/c.yaml'), configMap('signatures-managed', managed));
    const refused = await apply('config');
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.match(
      /^error \([a-z-]+\): config is neither a bundle nor a mirror directory: a\.json is not a signature/m,
    );
    expect(refused.stderr).to.contain('--allow-unsigned');
    expect(server.requests).to.have.length(0);
    const { code, stdout, stderr } = await apply('config', '--allow-unsigned');
    expect(code).to.equal(1);
    expect(stdout).to.equal('configmap/first failed\nconfigmap/second created\nconfigmap/signatures-managed skipped\n');
    expect(stderr).to.contain('warning: configmap/first: ').and.contain('“nowhere”');
    expect(stderr).to.contain('The rest is done.');
    expect(stderr).to.contain('warning: configmap/signatures-managed belongs to the version operator');
  });

  it('applies nothing of a folder with files that are not configuration of a release', async () => {
    await open();
    await mirroring.succeed(['--to-dir=mirror']);
    const namespaced = (kind: string, namespace: string) => ({
      apiVersion: 'v1',
      kind,
      metadata: { name: 'x', namespace },
    });
    for (const object of [
      namespaced('Secret', 'default'),
      namespaced('ConfigMap', 'kube-system'),
      { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'x' } },
      { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle', metadata: { name: 'x' } },
    ]) {
      await writeFile(mirroring.path('mirror/config/more.json'), JSON.stringify(object));
      for (const folder of ['mirror', 'mirror/config']) {
        const { code, stdout, stderr } = await apply(folder, '--allow-unsigned');
        expect(code, object.kind).to.equal(1);
        expect(stdout).to.equal('');
        expect(stderr).to.contain('config/more.json');
      }
    }
    await mkdir(mirroring.path('plain'));
    await writeFile(mirroring.path('plain/secret.json'), JSON.stringify(namespaced('Secret', 'default')));
    const { stderr } = await apply('plain', '--allow-unsigned');
    expect(stderr).to.contain('secret/x (secret.json)').and.contain('ImageDigestMirrorSet');
    expect(server.requests).to.have.length(0);
  });

  it('applies nothing that is signed by an unknown key or forged', async () => {
    await open();
    await mirroring.succeed(['--to-dir=mirror']);
    const bundle = await workshop.make();
    const run = (...args: string[]): Promise<Execution> =>
      runExecutable('oc-adm_release_mirror_config', workshop.folder, ['apply', ...args, kubeconfig]);
    for (const path of ['mirror', 'mirror/config', bundle]) {
      const { code, stderr } = await run(path);
      expect(code, path).to.equal(1);
      expect(stderr).to.contain(workshop.key.fingerprint);
    }
    const path = mirroring.path(`mirror/config/signature/sha256/${hexOf(workshop.release.digest).slice(0, 16)}.yaml`);
    const text = await readFile(path, 'utf8');
    await writeFile(path, text.replace('annotations:', 'annotations:\n    evil: "1"'));
    const { code, stderr } = await apply('mirror');
    expect(code).to.equal(0);
    expect(stderr).not.to.contain('error');
    expect(JSON.stringify(stored())).not.to.contain('evil');
  });

  it('applies signatures out of a folder without a release if the key is there', async () => {
    await open();
    await mirroring.succeed(['--config-to-dir=config']);
    expect((await apply('config')).stderr).to.contain('which no trusted key has signed');
    const key = await workshop.write('key.asc', workshop.key.publicKey);
    expect((await apply('config', `--signature-keyring=${key}`)).stdout).to.equal(`configmap/${nameOf()} created\n`);
    await writeFile(mirroring.path('config/more.yaml'), 'kind: ConfigMap');
    expect((await apply('config', `--signature-keyring=${key}`)).stderr).to.contain('more.yaml');
  });

  it('applies mirror sets only if their registry is named', async () => {
    await open();
    const { registry } = workshop;
    await mirroring.succeed(['--to-dir=mirror']);
    await mirroring.succeed([`--to=${registry.host}/site/release`, '--config-to-dir=mirror/config']);
    const { code, stderr } = await apply('mirror');
    expect(code).to.equal(1);
    expect(stderr).to.contain(`Allow ${registry.host} only`);
    expect(writes()).to.have.length(0);
    const { stdout } = await apply('mirror', `--mirror-registry=${registry.host}`);
    expect(stdout)
      .to.contain(`configmap/${nameOf()} created\n`)
      .and.match(/imagedigestmirrorset\/release-mirror-\w{8} created/);
  });

  it('prints commands that work as they are, from the first to the last', async () => {
    await open();
    const { registry } = workshop;
    const advised = (stdout: string, what: string): string[] =>
      (new RegExp(`(?<=^ {4}oc adm-release-mirror-config )${what}.*$`, 'm').exec(stdout)?.[0] ?? '').split(' ');
    const run = (args: readonly string[]): Promise<Execution> =>
      runExecutable('oc-adm_release_mirror_config', workshop.folder, args);
    const first = await mirroring.succeed(['--to-dir=mirror', kubeconfig]);
    const upload = advised(first, '--from-dir').map((word) =>
      word.replace('REGISTRY/REPOSITORY', `${registry.host}/a/b`),
    );
    const uploaded = await run([...upload, '--insecure', '--config-to-dir=config', kubeconfig]);
    expect(uploaded.code, uploaded.stderr).to.equal(0);
    for (const text of [first, uploaded.stdout]) {
      expect(text).to.match(new RegExp(`oc adm upgrade .* ${kubeconfig}$`, 'm'));
    }
    expect(uploaded.stdout).not.to.contain('--allow-unsigned');
    for (const command of [advised(first, 'apply'), advised(uploaded.stdout, '.* --apply-config')]) {
      const applied = await run(command);
      expect(applied.code, applied.stderr).to.equal(0);
      expect(applied.stdout).to.match(/ created$/m);
    }
    expect(mirrorSets()).to.have.length(1);
  });

  it('advises a command that proves the configuration of a registry again, without --allow-unsigned', async () => {
    await open();
    const { registry } = workshop;
    for (const args of [[`--to=${registry.host}/a/b`, '--to-dir=for config'], ['--config-to-dir=config']]) {
      const stdout = await mirroring.succeed([...args, kubeconfig]);
      expect(stdout).not.to.contain('--allow-unsigned');
      const [command = ''] = findCommands(stdout, 'oc adm-release-mirror-config');
      const applied = await runPrinted(command, { cwd: workshop.folder });
      expect(applied.code, applied.stderr).to.equal(0);
      expect(applied.stdout).to.match(new RegExp(`^configmap/${nameOf()} (?:created|unchanged)$`, 'm'));
    }
    expect(mirrorSets()).to.have.length(1);
  });

  it('applies a folder that -f names, and manifests from the standard input', async () => {
    await open();
    await mkdir(mirroring.path('config'));
    const metadata = { name: 'x', namespace: 'default' };
    const input = JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata });
    await writeFile(mirroring.path('config/x.json'), input);
    expect((await apply('-f', 'config', '--allow-unsigned')).stdout).to.equal('configmap/x created\n');
    const pipe = (...args: string[]): Promise<Execution> =>
      executeProgram('oc-adm_release_mirror_config', ['apply', ...args, kubeconfig], {
        cwd: workshop.folder,
        stdin: input,
      });
    expect((await pipe('-', '--allow-unsigned')).stdout).to.equal('configmap/x unchanged\n');
    expect((await pipe('-f', '-')).stderr).to.contain('the standard input is neither a bundle nor a mirror directory');
    for (const args of [[], ['config', '-f', 'config']]) expect((await apply(...args)).code).to.equal(2);
  });

  it('applies the objects of a bundle, and names the absent ones', async () => {
    await open();
    const bundle = await workshop.make();
    expect((await apply(bundle)).stdout).to.equal(`configmap/${nameOf()} created\n`);
    // A USB drive has the files beside a bundle too.
    const unchanged = await apply(dirname(bundle));
    expect(unchanged.stdout, unchanged.stderr).to.equal(`configmap/${nameOf()} unchanged\n`);
    await mkdir(mirroring.path('bare/v2'), { recursive: true });
    for (const [path, words] of [
      ['absent', 'there is no absent'],
      ['absent.tar', 'there is no'],
      ['bare', 'a mirror directory without a “config” folder'],
    ] as const) {
      const { code, stderr } = await apply(path);
      expect(code, path).to.equal(1);
      expect(stderr).to.contain(words).and.contain('hint: ');
    }
  });

  it('resumes after an interruption, or a failure of the cluster', async () => {
    await open();
    await mkdir(mirroring.path('config'));
    for (const name of ['first', 'second', 'third']) {
      const metadata = { name, namespace: 'default' };
      await writeFile(
        mirroring.path(`config/${name}.json`),
        JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata }),
      );
    }
    const isSecond = () => server.find('v1', 'ConfigMap', 'first', 'default') !== undefined;
    const held = server.fault(({ method }) => method === 'POST' && isSecond(), { noAnswer: 'hold' });
    const interruption = new AbortController();
    const args = ['apply', 'config', '--allow-unsigned', kubeconfig];
    const running = runExecutable('oc-adm_release_mirror_config', workshop.folder, args, {}, interruption.signal);
    await until(() => held.hits > 0);
    interruption.abort();
    const { code, stderr } = await running;
    expect(code).to.equal(130);
    expect(stderr).to.contain('hint: Run the same command again: it skips what is done.');
    server.clearFaults();
    const lost = server.fault(({ method }) => method === 'POST', { noAnswer: 'reset' }, { times: 1 });
    const broken = await apply('config', '--allow-unsigned');
    expect(lost.hits).to.equal(1);
    expect(broken.code).to.equal(0);
    expect(broken.stdout).to.equal('configmap/first unchanged\nconfigmap/second created\nconfigmap/third created\n');
  });

  it('shows what it would do in a dry run, and prints JSON', async () => {
    await open();
    await mirroring.succeed(['--to-dir=mirror']);
    expect((await apply('mirror', '--dry-run')).stdout).to.equal(`configmap/${nameOf()} created (dry run)\n`);
    expect((await apply('mirror', '--dry-run=server')).stdout).to.equal(
      `configmap/${nameOf()} created (server dry run)\n`,
    );
    expect(stored()).to.equal(undefined);
    const outcomes = JSON.parse((await apply('mirror', '-o', 'json')).stdout) as object[];
    expect(outcomes).to.have.length(1);
    expect(outcomes[0]).to.include({ object: `configmap/${nameOf()}`, outcome: 'created' });
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
      const applied = await apply('mirror', `--mirror-registry=${registry.host}`);
      expect(applied.stdout, applied.stderr).to.match(created);
    }
  });

  it('exits with 1 for a kind that the cluster does not serve, and for a folder of which nothing is applied', async () => {
    await open({ kinds: [] });
    await mkdir(mirroring.path('config'));
    const metadata = { name: 'service', namespace: 'openshift-update-service' };
    const service = { apiVersion: 'updateservice.operator.openshift.io/v1', kind: 'UpdateService', metadata, spec: {} };
    await writeFile(mirroring.path('config/a.json'), JSON.stringify(service));
    const { code, stdout, stderr } = await apply('config', '--allow-unsigned');
    expect(code).to.equal(1);
    expect(stdout).to.equal('updateservice/service failed\n');
    expect(stderr).to.contain('does not serve UpdateService').and.contain('cincinnati-operator');
    const operators = { name: 'signatures-managed', namespace: managed };
    await writeFile(
      mirroring.path('config/a.json'),
      JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: operators }),
    );
    const skipped = await apply('config', '--allow-unsigned');
    expect(skipped.stderr).to.contain(
      'error (partial): 1 of 1 objects were not applied: configmap/signatures-managed skipped',
    );
    expect(skipped.code).to.equal(1);
  });

  it('has the cluster import the images into an image stream', async () => {
    await open();
    await using importing = new ImportingServer();
    await importing.start();
    const config = await kubeconfigs.write({ file: 'importing', cluster: { server: importing.url } });
    const args = ['--to-image-stream=release', `--kubeconfig=${config}`];
    expect(await mirroring.succeed(args)).to.equal('3 images imported into imagestream/release\n');
    const { release } = workshop;
    const made = importing.imports.flatMap(({ spec }) => spec.images.map(({ from, to }) => [to.name, from.name]));
    const components = [...release.images].map(([name, { pullspec }]) => [name, pullspec]);
    expect(made).to.have.deep.members([['release', release.pullspec], ...components]);
    const tried = await mirroring.succeed([...args, '--dry-run']);
    expect(tried).to.contain('3 images imported into imagestream/release (dry run)\n');
  });

  it('says that no cluster is configured, or that it does not answer, before images are copied', async () => {
    await open();
    const stderr = await mirroring.fail(['--to-dir=mirror', '--apply-config', '--kubeconfig=absent']);
    expect(stderr).to.contain('absent');
    await server.stop();
    await mirroring.fail(['--to-dir=mirror', '--apply-release-image-signature', kubeconfig, '--request-timeout=2s']);
    expect(await readdir(workshop.folder)).not.to.include('mirror');
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
      metadata: { name: nameOf(), namespace: managed },
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

  it('finds the image of a version by the updates of the cluster, or by a graph', async () => {
    await open();
    const { release, signatures } = workshop;
    const version = server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
    const status = { availableUpdates: [{ version: release.version, image: release.pullspec }] };
    server.put({ ...version, metadata: { name: 'version' }, status });
    await mirroring.succeed(['--config-to-dir=known', kubeconfig], release.version);
    const graph = { nodes: [{ version: release.version, payload: release.pullspec }], edges: [] };
    (signatures.files as Map<string, string>).set('/graph', JSON.stringify(graph));
    await mirroring.succeed(['--config-to-dir=graph', `--graph-url=${signatures.url}/graph`], release.version);
    const file = `signature/sha256/${hexOf(release.digest).slice(0, 16)}.yaml`;
    for (const folder of ['known', 'graph']) {
      expect(await readFile(mirroring.path(folder, file), 'utf8')).to.contain(nameOf());
    }
    const stderr = await mirroring.fail(['--to-dir=mirror', `--graph-url=${signatures.url}/graph`], 1, '4.12.5');
    expect(stderr)
      .to.match(/no release 4\.12\.5/)
      .and.contain('4.12.4');
  });

  describe('with graph data', () => {
    const components = ['cluster-version-operator', 'cli', 'etcd'];
    const updateService = () =>
      server.find(
        'updateservice.operator.openshift.io/v1',
        'UpdateService',
        'update-service',
        'openshift-update-service',
      );

    it('makes everything that an update service needs', async function () {
      requirePeer(this, 'docker-registry', 'skopeo');
      await using site = await startDockerRegistry({ inMemory: true });
      await open({ release: { components } });
      const archive = await workshop.write('graph-data.tar', '');
      await writeFile(archive, makeArchive(soundFiles));
      const to = `${site.host}/site/release`;
      const args = [`--to=${to}`, '--config-to-dir=config', '--apply-config', kubeconfig, `--graph-data=${archive}`];
      const stdout = await mirroring.succeed(args);
      await pullWhole(`${to}:${workshop.release.tag}-graph-data`, mirroring.path('graph'));
      expect(stdout).to.contain('Updateservice config/update-service/updateservice.yaml created\n');
      expect(stdout).to.contain('updateservice/update-service created\n').and.contain('policyEngineURI');
      const { spec } = parse(await readFile(mirroring.path('config/update-service/updateservice.yaml'), 'utf8')) as {
        spec: Record<string, string>;
      };
      expect(spec['releases']).to.equal(to);
      await pullWhole(String(spec['graphDataImage']), mirroring.path('again'));
      expect(updateService()?.['spec']).to.deep.equal(spec);
    });

    it('mirrors the image to a disconnected site', async () => {
      await open({ release: { components } });
      const { registry, release } = workshop;
      const archive = await workshop.write('graph-data.tar.gz', '');
      await writeFile(archive, gzipSync(makeArchive(soundFiles)));
      await mirroring.succeed(['--to-dir=mirror', `--graph-data=${archive}`]);
      expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.include(`${release.tag}-graph-data`);
      expect(await readdir(mirroring.path('mirror/config'))).to.deep.equal(['signature']);
      const source = `file://openshift/release:${release.tag}`;
      const to = `--to=${registry.host}/site/release`;
      await mirroring.succeed(['--from-dir=mirror', to, '--apply-config', kubeconfig], source);
      const { graphDataImage } = (updateService()?.['spec'] ?? {}) as { graphDataImage?: string };
      expect(graphDataImage).to.match(/\/site\/release@sha256:/);
      expect(registry.content.repositories.get('site/release')?.tags.get(`${release.tag}-graph-data`)).to.equal(
        graphDataImage?.split('@')[1],
      );
    });
  });
});

/** The image configuration of the cluster, and the registries in the ConfigMap of their CAs. */
interface Trust {
  readonly spec: unknown;
  readonly keys: readonly string[];
}

describe('oc adm-release-mirror-config with the CA of a registry', () => {
  let site: Site;
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
    site = await openSite({ release: { components: ['cluster-version-operator', 'cli', 'etcd'] } });
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
