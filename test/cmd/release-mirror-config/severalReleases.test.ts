import { readdir, readFile, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { openWorkshop, runExecutable, sign, type Workshop } from '../../support/content/creation.ts';
import { startDockerRegistry } from '../../support/dockerRegistry.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { findCommands, runPrinted } from '../../support/program/printedCommands.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { Mirroring, pullWhole } from '../../support/release/mirroring.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';

describe('oc adm-release-mirror-config of two releases and an additional image', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  let both: string;

  before(async () => {
    workshop = await openWorkshop({ release: { components: ['cli', 'etcd'] } });
    mirroring = new Mirroring(workshop);
    const { host: registry, content } = workshop.registry;
    old = buildRelease({
      version: '4.12.3',
      components: ['cli', 'etcd'],
      seed: 'old',
      registry,
      verification: { publicKey: workshop.key.publicKey, stores: [workshop.signatures.url] },
    });
    old.addTo(content);
    await sign(workshop, [old.digest]);
    both = `${old.pullspec},${workshop.release.pullspec}`;
  });
  after(() => workshop.close());

  const count = (text: string, part: string): number => text.split(part).length - 1;
  /** Runs a printed command, with options that every command of the test needs. */
  const follow = async (command = '', ...options: string[]): Promise<string> => {
    const env = { PATH: process.env['PATH'], HOME: workshop.folder };
    const { code, stdout, stderr } = await runPrinted([command, ...options].join(' '), { cwd: workshop.folder, env });
    expect(code, stderr).to.equal(0);
    return stdout;
  };

  it('prints instructions once for all, which work from top to bottom', async function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    const { host: registry, content } = workshop.registry;
    const tool = extraImage({ registry, repository: 'tools/debug', seed: 'a' });
    tool.addTo(content);
    await using site = await startDockerRegistry({ inMemory: true });
    await using server = await startApiServer({ openshift: '4.20.3' });
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    const onDisk = await mirroring.succeed(['--to-dir=mirror', `--additional-image=${tool.tagged}`], both);
    for (const title of ['To upload local images', 'To apply the configuration', 'To update a cluster']) {
      expect(count(onDisk, title), title).to.equal(1);
    }
    expect(count(onDisk, 'file://openshift/release:sha256-*')).to.equal(1);
    const [upload = ''] = findCommands(onDisk, 'oc adm-release-mirror-config');
    const target = upload.replace('REGISTRY/REPOSITORY', `${site.host}/site/release`);
    const inRegistry = await follow(target, '--insecure', '--config-to-dir=config');
    expect(count(inRegistry, 'kind: ImageDigestMirrorSet')).to.equal(1);
    expect(count(inRegistry, 'imageDigestSources:')).to.equal(1);
    for (const { tag } of [old, workshop.release]) {
      await pullWhole(`${site.host}/site/release:${tag}`, mirroring.path(`copy-${tag}`));
    }
    await pullWhole(`${site.host}/site/tools/debug:v1`, mirroring.path('copy-tool'));
    await follow(findCommands(onDisk, 'oc adm-release-mirror-config apply')[0], kubeconfig);
    await follow(findCommands(inRegistry, 'oc adm-release-mirror-config')[0], kubeconfig);
    expect(server.find('v1', 'ConfigMap', `sha256-${hexOf(old.digest)}`, 'openshift-config-managed')).not.to.equal(
      undefined,
    );
    const upgrades = findCommands(inRegistry, 'oc adm upgrade');
    expect(upgrades.map((command) => command.replace(/^.*@/, ''))).to.deep.equal([
      `${old.digest} # 4.12.3`,
      `${workshop.release.digest} # 4.12.4`,
    ]);
  });

  it('applies the configuration of both from a directory, which their signatures cover', async () => {
    const { host } = workshop.registry;
    await using server = await startApiServer({ openshift: '4.20.3' });
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    const trusting = [kubeconfig, `--trust-fingerprint=${workshop.key.fingerprint}`, `--mirror-registry=${host}`];
    const apply = (...args: string[]): Promise<Execution> =>
      runExecutable('oc-adm_release_mirror_config', workshop.folder, ['apply', 'both', ...trusting, ...args]);
    await mirroring.succeed(['--to-dir=both'], both);
    await mirroring.succeed([`--to=${host}/site/both`, '--config-to-dir=both/config'], both);
    const { code, stdout, stderr } = await apply('--dry-run');
    expect(code, stderr).to.equal(0);
    const created = [old, workshop.release].map(({ digest }) => `configmap/sha256-${hexOf(digest)} created (dry run)`);
    expect(stdout.split('\n')).to.include.members(created);
    expect(stdout).to.match(/^imagedigestmirrorset\/release-mirror-\w{8} created/m);
    const [name = ''] = await readdir(mirroring.path('both/config/mirrors'));
    const file = mirroring.path('both/config/mirrors', name);
    await writeFile(file, (await readFile(file, 'utf8')).replace(/source: .*/, 'source: quay.io/foreign/image'));
    const refused = await apply();
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.contain(name);
    expect(server.requests.filter(({ method }) => method !== 'GET')).to.have.length(0);
  });

  it('prints one list as JSON, and one mapping', async () => {
    const results = JSON.parse(await mirroring.succeed(['--to-dir=listed', '-o', 'json'], both)) as object[];
    expect(results).to.have.length(2);
    expect(results[1]).to.include({ version: '4.12.4', dryRun: 'none' });
    const to = ['--to=registry.test/a/b', '--to-mirror', '-o', 'json'];
    const { mapping } = JSON.parse(await mirroring.succeed(to, both)) as { mapping: object[] };
    for (const { pullspec: source, tag } of [old, workshop.release])
      expect(mapping).to.deep.include({ source, target: `registry.test/a/b:${tag}` });
  });

  it('prints them for the releases that are done if a later one fails', async () => {
    const missing = old.pullspec.replace(old.digest, workshop.release.images.get('etcd')?.digest ?? '');
    const { code, stdout } = await mirroring.run(['--to-dir=half'], `${old.pullspec},${missing}`);
    expect(code).to.equal(1);
    expect(count(stdout, 'To upload local images')).to.equal(1);
    expect(stdout).to.contain(`file://openshift/release:${old.tag} --to=`);
  });
});
