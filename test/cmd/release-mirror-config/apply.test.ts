import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { parse } from 'yaml';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { ImportingServer } from '../../fakes/kubernetes/importingServer.ts';
import { runExecutable, type Workshop } from '../../support/content/creation.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import type { KubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer } from '../../support/peers.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { findCommands, runPrinted } from '../../support/program/printedCommands.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';
import { type Mirroring, pullWhole, readTagLinks } from '../../support/release/mirroring.ts';
import { openMirrorSite, type MirrorSite } from '../../support/release/mirrorSite.ts';

const managed = 'openshift-config-managed';

describe('oc adm-release-mirror-config and a cluster', () => {
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
  const stored = () => server.find('v1', 'ConfigMap', nameOf(), managed);
  const mirrorSets = (kind = 'ImageDigestMirrorSet') => {
    const served = server.kinds.find((known) => known.kind === kind);
    return served ? server.objects.list(served, '') : [];
  };
  const writes = () =>
    server.requests.filter(({ method, path }) => method !== 'GET' && !path.endsWith('/selfsubjectaccessreviews'));
  const apply = (...args: string[]): Promise<Execution> => site.apply(...args);

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
