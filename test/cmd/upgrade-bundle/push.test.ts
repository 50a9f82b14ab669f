import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { findCommands, readWords, runPrinted } from '../../support/program/printedCommands.ts';

describe('push --apply-config', () => {
  let bundle: TestBundle;
  let registry: TestRegistry;
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;
  let path: string;
  before(async () => {
    bundle = await makeBundle();
    path = join(bundle.folder, `the site's "bundles"`, 'upgrade.tar');
    await mkdir(join(path, '..'));
    await copyFile(bundle.path, path);
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    registry = await startRegistry();
    server = await startApiServer({ openshift: '4.14.3' });
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = await kubeconfigs.write({ file: 'site config', cluster: { server: server.url } });
  });
  afterEach(async () => {
    await registry.stop();
    await server.stop();
    await kubeconfigs.remove();
  });
  const place = () => `${registry.host}/site/release`;
  const push = (...args: string[]): Promise<Execution> =>
    executeProgram('oc-adm_upgrade_bundle', [
      'push',
      path,
      `--to=${place()}`,
      '--insecure',
      `--kubeconfig=${kubeconfig}`,
      ...args,
      `--signature-keyring=${bundle.keyFile}`,
      `--trust-fingerprint=${bundle.key.fingerprint}`,
    ]);
  const nameOf = () => `sha256-${hexOf(bundle.release.digest)}`;
  const storedSets = () => {
    const served = server.kinds.find(({ kind }) => kind === 'ImageDigestMirrorSet');
    return served ? server.objects.list(served, '') : [];
  };

  it('prints a command that works when it is pasted, and that applies signatures and mirror set', async () => {
    const { code, stdout } = await push();
    expect(code).to.equal(0);
    const commands = findCommands(stdout);
    expect(commands).to.have.length(2);
    const [again = '', update = ''] = commands;
    const pasted = await runPrinted(again);
    expect(pasted.stderr).to.equal('');
    expect(pasted.code).to.equal(0);
    expect(pasted.stdout)
      .to.match(/^Nothing to do/)
      .and.contain(`configmap/${nameOf()} created\n`)
      .and.match(/^imagedigestmirrorset\/release-mirror-\w{8} created$/m);
    const [set] = storedSets();
    const sources = [...new Set([bundle.release.releaseRepository, bundle.release.componentRepository])].map(
      (repository) => `quay.io/${repository}`,
    );
    expect(set?.['spec']).to.deep.equal({
      imageDigestMirrors: sources.toSorted().map((source) => ({ mirrors: [place()], source })),
    });
    expect(await readWords(update)).to.deep.equal([
      'oc',
      'adm',
      'upgrade',
      '--allow-explicit-upgrade',
      `--to-image=${place()}@${bundle.release.digest}`,
      `--kubeconfig=${kubeconfig}`,
    ]);
    expect(findCommands(pasted.stdout)).to.deep.equal([update]);
  });

  it('counts missing blobs in a dry run, and pushes and applies nothing', async () => {
    const { revision } = server.objects;
    const dry = await push('--apply-config', '--dry-run=server', '-o', 'json');
    expect(dry.code, dry.stderr).to.equal(0);
    expect(registry.content.repositories.get('site/release')?.tags.size ?? 0).to.equal(0);
    expect(server.objects.revision).to.equal(revision);
    const counts = (text: string) => {
      const { blobs, bytes, tags } = JSON.parse(text) as Record<string, object>;
      return { blobs, bytes, tags };
    };
    expect(counts((await push('-o', 'json')).stdout)).to.deep.equal(counts(dry.stdout));
    const again = await push('--dry-run');
    expect(again.stdout)
      .to.match(/^Nothing to do/)
      .and.to.contain('0 missing (0 B)');
  });

  it('asks the cluster before anything is pushed', async () => {
    await server.stop();
    const { code, stderr } = await push('--apply-config', '--request-timeout=2s');
    expect(code).to.equal(1);
    expect(stderr).to.contain('error (');
    expect(registry.requests).to.deep.equal([]);
  });

  it('keeps an object with other content and fails, and lists the applied objects as JSON', async () => {
    const metadata = { name: nameOf(), namespace: 'openshift-config-managed' };
    server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, binaryData: { [`${nameOf()}-1`]: 'b3RoZXI=' } });
    const { code, stdout, stderr } = await push('--apply-config', '-o', 'json');
    expect(code).to.equal(1);
    expect(stderr).to.contain('--overwrite replaces it');
    const { applied } = JSON.parse(stdout) as { applied: { object: string; outcome: string }[] };
    expect(applied.map(({ outcome }) => outcome)).to.deep.equal(['conflict', 'created']);
    const replaced = await push('--apply-config', '--overwrite');
    expect(replaced.stdout).to.contain(`configmap/${nameOf()} configured\n`);
    expect(replaced.code).to.equal(0);
  });
});
