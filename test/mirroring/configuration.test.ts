import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { expect } from 'chai';
import { hexOf } from '../../lib/content/oci/reference.ts';
import type { TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { runExecutable, type Workshop, addRelease } from '../support/content/creation.ts';
import type { Execution } from '../support/program/execution.ts';
import type { Mirroring } from '../support/release/mirroring.ts';
import { openMirrorSite, type MirrorSite } from '../support/release/mirrorSite.ts';
import { until } from '../support/until.ts';

const managed = 'openshift-config-managed';

describe('applyConfiguration', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let server: TestApiServer;
  let kubeconfig: string;
  let site: MirrorSite;

  const open = async (options: Parameters<typeof openMirrorSite>[0] = {}): Promise<void> => {
    site = await openMirrorSite(options);
    ({ workshop, mirroring, server, kubeconfig } = site);
  };
  afterEach(() => site.close());
  const nameOf = (): string => `sha256-${hexOf(workshop.release.digest)}`;
  const stored = () => server.find('v1', 'ConfigMap', nameOf(), managed);
  const writes = () =>
    server.requests.filter(({ method, path }) => method !== 'GET' && !path.endsWith('/selfsubjectaccessreviews'));
  const apply = (...args: string[]): Promise<Execution> => site.apply(...args);

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

  it('applies each signature of a mirror directory with several architectures', async () => {
    await open();
    const small = { components: ['cli'], layers: 1, baseLayers: 1 };
    const other = await addRelease(workshop, { ...small, arch: 'aarch64', seed: 'arm' });
    await mirroring.succeed(['--to-dir=mirror'], `${workshop.release.pullspec},${other.pullspec}`);
    const key = await workshop.write('key.asc', workshop.key.publicKey);
    for (const [path, outcome] of [
      ['mirror', 'created'],
      ['mirror/config', 'unchanged'],
    ] as const) {
      const { code, stdout, stderr } = await apply(path, `--signature-keyring=${key}`);
      expect(code, stderr).to.equal(0);
      expect(stdout.trim().split('\n')).to.have.members(
        [workshop.release, other].map(({ digest }) => `configmap/sha256-${hexOf(digest)} ${outcome}`),
      );
    }
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
});
