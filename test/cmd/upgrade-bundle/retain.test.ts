import { expect } from 'chai';
import { upgradeBundleDefinition } from '../../../lib/update/record/upgradeBundleDefinition.ts';
import { node, reportMirror } from '../../fakes/cluster/site.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { digestOfFile, runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';

const config = 'config.openshift.io/v1';
const record = { apiVersion: 'upgrade-bundle.openshift.io/v1alpha1', kind: 'UpgradeBundle' };
const name = 'retain-4.19.4-x86-64';

describe('oc adm-upgrade-bundle retain', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let bundle: TestBundle;

  before(async () => {
    bundle = await makeBundle({ version: '4.19.4' });
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    server = await startApiServer({ openshift: '4.19.4' });
    server.put(upgradeBundleDefinition());
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    server.put(node('master-0', 'master'));
    server.put(node('master-1', 'master'));
    server.put(node('worker-0', 'worker'));
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    setRunning('4.19.4', bundle.release.pullspec);
  });
  afterEach(async () => {
    await server.stop();
    await kubeconfigs.remove();
  });
  const setRunning = (version: string, image: string, state = 'Completed'): void => {
    const history = [{ state, version, image }];
    const status = { desired: { version, image }, history };
    server.put({ apiVersion: config, kind: 'ClusterVersion', metadata: { name: 'version' }, status });
  };
  const installMirrors = (): void => {
    const mirrors = ['localhost:9690/a', '192.0.2.5:9690/a'];
    const spec = { imageDigestMirrors: [{ source: 'quay.io/a', mirrors }] };
    server.put({ apiVersion: config, kind: 'ImageDigestMirrorSet', metadata: { name: 'oc-upgrade-bundle' }, spec });
  };
  const complete = (phase = 'Completed'): void => {
    server.put({ ...find(), status: { phase } });
  };
  const find = () => server.find(record.apiVersion, record.kind, name);
  const trust = () => [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  const retain = (...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, 'retain', [kubeconfig, ...args]);

  it('changes nothing in a dry run, also if it would replace an earlier record', async () => {
    for (const mode of ['client', 'server']) {
      const { revision } = server.objects;
      const { stdout, stderr } = await retain(bundle.path, ...trust(), `--dry-run=${mode}`);
      expect(stdout, stderr)
        .to.match(new RegExp(`^upgradebundle/${name} created \\(.*dry run\\)\\n`))
        .and.not.to.contain('Follow it');
      expect(server.objects.revision).to.equal(revision);
    }
    await retain(bundle.path, ...trust());
    complete('Failed');
    const { revision } = server.objects;
    for (const mode of ['client', 'server'])
      expect((await retain(bundle.path, ...trust(), `--dry-run=${mode}`)).stdout).to.match(/ created \(/);
    expect(server.objects.revision).to.equal(revision);
  });

  it('allows the bundle of the running release, and names the mirrors that get it', async () => {
    installMirrors();
    reportMirror(server, 'master-0', { versions: ['4.19.4'] });
    reportMirror(server, 'master-1', { versions: ['4.19.3'] });
    const { code, stdout, stderr } = await retain(bundle.path, ...trust());
    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal(
      `upgradebundle/${name} created\n` +
        'The cluster runs 4.19.4. Every node loads and pins its images, and these mirrors get it: master-1.\n' +
        `The agents look for it now. Follow it: oc adm-upgrade-bundle status -w ${kubeconfig}\n`,
    );
    const stated = { version: '4.19.4', releaseDigest: bundle.release.digest, digest: await digestOfFile(bundle.path) };
    expect(find()?.['spec']).to.deep.include({ bundle: stated });
    expect((await retain(bundle.path, ...trust())).stdout).to.match(/^upgradebundle\/\S+ unchanged\n/);
  });

  it('changes nothing if every mirror has the release, and repairs a mirror that lost content', async () => {
    installMirrors();
    await retain(bundle.path, ...trust());
    complete();
    for (const host of ['master-0', 'master-1']) reportMirror(server, host, { versions: ['4.19.4'] });
    const done = await retain(bundle.path, ...trust());
    expect(done.stdout).to.equal(
      `upgradebundle/${name} unchanged\nThe cluster runs 4.19.4, and every mirror has it.\n`,
    );
    // The mirrors of the cluster keep whole bundles.
    reportMirror(server, 'master-1', { versions: ['4.19.4'], content: 'metadata' });
    const again = JSON.parse((await retain(bundle.path, ...trust(), '-o', 'json')).stdout) as object;
    expect(again).to.deep.equal({
      outputVersion: 1,
      name,
      outcome: 'created',
      version: '4.19.4',
      lacking: ['master-1'],
    });
    expect(find()?.['status']).to.equal(undefined);
  });

  it('repairs unreadable content of a mirror, also if it has the release', async () => {
    installMirrors();
    await retain(bundle.path, ...trust());
    complete();
    reportMirror(server, 'master-0', { versions: ['4.19.4'] });
    reportMirror(server, 'master-1', { versions: ['4.19.4'], lacking: [`sha256:${'a'.repeat(64)}`] });
    const again = JSON.parse((await retain(bundle.path, ...trust(), '-o', 'json')).stdout) as object;
    expect(again).to.deep.include({ outcome: 'created', lacking: ['master-1'] });
    expect(find()?.['status']).to.equal(undefined);
  });

  it('says that no copy stays without mirrors, and keeps the record of the update', async () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    const update = { ...record, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: { digest } } };
    server.put({ ...update, status: { phase: 'Completed' } });
    expect((await retain(bundle.path, ...trust())).stdout).to.contain(
      '\nThe cluster runs 4.19.4. Every node loads and pins its images, and no copy stays: it has no mirrors ' +
        '(install --mirror).\n',
    );
    complete();
    expect((await retain(bundle.path, ...trust())).stdout).to.equal(
      `upgradebundle/${name} unchanged\n` +
        'The cluster runs 4.19.4. Every node has its images pinned, and no copy stays: it has no mirrors ' +
        '(install --mirror).\n',
    );
    const printed = JSON.parse((await retain(bundle.path, ...trust(), '-o', 'json')).stdout) as object;
    expect(printed).to.deep.equal({
      outputVersion: 1,
      name,
      outcome: 'unchanged',
      phase: 'Completed',
      version: '4.19.4',
    });
    complete('Failed');
    expect((await retain(bundle.path, ...trust())).stdout).to.match(/ created\n/);
    expect(server.find(record.apiVersion, record.kind, '4.19.4-x86-64')).not.to.equal(undefined);
  });

  it('states the running release of a bundle that only a digest names, so that agents refuse another one', async () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    await retain('--device=/dev/sdb', `--digest=${digest}`);
    const made = server.find(record.apiVersion, record.kind, 'retain-aaaaaaaaaaaa');
    const stated = { digest, file: '/dev/sdb', version: '4.19.4', releaseDigest: bundle.release.digest };
    expect(made?.['spec']).to.deep.include({ bundle: stated });
  });

  it('refuses a bundle of another release, and names the running one', async () => {
    setRunning('4.19.3', bundle.release.pullspec);
    const later = await retain(bundle.path, ...trust());
    expect(later.code).to.equal(1);
    expect(later.stderr).to.match(
      / runs 4\.19\.3, and the bundle is of 4\.19\.4\nhint: .* oc adm-upgrade-bundle apply\.\n/,
    );
    setRunning('4.19.4', `quay.io/release@sha256:${'2'.repeat(64)}`);
    expect((await retain(bundle.path, ...trust())).stderr).to.match(
      new RegExp(` runs 4\\.19\\.4 as sha256:2+, and the bundle has it as ${bundle.release.digest}\nhint: `),
    );
    setRunning('4.19.4', bundle.release.pullspec, 'Partial');
    expect((await retain(bundle.path, ...trust())).stderr).to.match(/^error \(not-ready\): .* installs a release/m);
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.deep.equal([]);
  });
});
