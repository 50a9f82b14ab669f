import { mkdir, readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { parseAllDocuments } from 'yaml';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { TestContent } from '../../support/content/image.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import { addAttachment, attachmentTag } from '../../support/release/attachments.ts';
import { extraImage, type ExtraImage } from '../../support/release/extraImage.ts';
import { listTags, Mirroring, pullWhole } from '../../support/release/mirroring.ts';

describe('oc adm-release-mirror-config --additional-image', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  const site = useDockerRegistry();
  let [tool, operator]: ExtraImage[] = [];

  beforeEach(async () => {
    workshop = await openWorkshop();
    mirroring = new Mirroring(workshop);
    const { host: registry, content } = workshop.registry;
    tool = extraImage({ registry, repository: 'tools/debug', seed: 'a' });
    operator = extraImage({ registry, repository: 'osus/operator', seed: 'b' });
    const contents = new TestContent();
    addAttachment(contents, { registry, repository: 'tools/debug', digest: tool.digest });
    for (const each of [tool, operator, contents]) each.addTo(content);
  });
  afterEach(() => workshop.close());

  const images = (): string[] => [
    `--additional-image=${tool?.tagged ?? ''}`,
    `--additional-image=${operator?.pullspec ?? ''}`,
  ];
  const files = async (folder: string): Promise<{ kind: string; spec: object }[]> => {
    const names = (await readdir(mirroring.path(folder))).sort();
    const texts = await Promise.all(names.map((name) => readFile(mirroring.path(folder, name), 'utf8')));
    return texts.map((text) => parseAllDocuments(text)[0]?.toJS() as { kind: string; spec: object });
  };
  const entry = (from: string, to: string) => ({
    source: `${workshop.registry.host}/${from}`,
    mirrors: [`${site.host}/${to}`],
  });

  it('puts each into a repository beside that of the release, with its signature and its mirrors', async () => {
    const to = `--to=${site.host}/site/release`;
    const { code, stdout, stderr } = await mirroring.run([to, '--config-to-dir=config', ...images()]);
    expect(code, stderr).to.equal(0);
    expect(stderr).to.contain('warning: 2 images not covered by the release signature');
    expect(await listTags(`${site.host}/site/tools/debug`)).to.have.members([
      'v1',
      attachmentTag(tool?.digest ?? 'sha256:'),
    ]);
    expect(stdout).to.contain(`${tool?.digest ?? ''} ${site.host}/site/tools/debug:v1\n`);
    await pullWhole(`${site.host}/site/osus/operator@${operator?.digest ?? ''}`, mirroring.path('operator'));
    expect((await files('config/mirrors')).map(({ kind, spec }) => [kind, spec])).to.deep.include.members([
      ['ImageDigestMirrorSet', { imageDigestMirrors: [entry('osus/operator', 'site/osus/operator')] }],
      ['ImageTagMirrorSet', { imageTagMirrors: [entry('tools/debug', 'site/tools/debug')] }],
    ]);
    expect(stdout).to.contain('kind: ImageTagMirrorSet');
  });

  it('takes them along in a directory, which verify reads, and from it without a network', async () => {
    await mirroring.succeed(['--to-dir=mirror', ...images()]);
    await Promise.all([workshop.registry.stop(), workshop.signatures.stop()]);
    const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
    const verified = await runProgram(workshop.folder, 'verify', ['mirror', trust]);
    expect(verified.code, verified.stdout + verified.stderr).to.equal(0);
    expect(verified.stdout).to.contain(tool?.digest);
    const args = ['--from-dir=mirror', `--to=${site.host}/again/release`];
    const config = ['--config-to-dir=mirror/config'];
    await mirroring.succeed([...args, ...config], workshop.release.version);
    await mkdir(mirroring.path('copies'));
    await pullWhole(`${site.host}/again/tools/debug:v1`, mirroring.path('copies/tool'));
    expect(await listTags(`${site.host}/again/tools/debug`)).to.include(attachmentTag(tool?.digest ?? 'sha256:'));
    expect((await files('mirror/config/mirrors')).map(({ kind }) => kind)).to.have.members([
      'ImageDigestMirrorSet',
      'ImageDigestMirrorSet',
      'ImageTagMirrorSet',
    ]);
    const again = await runProgram(workshop.folder, 'verify', ['mirror', trust]);
    expect(again.code, again.stdout + again.stderr).to.equal(0);
    const missing = await mirroring.fail([...args, '--additional-image=quay.io/a/b:v2'], 1, workshop.release.version);
    expect(missing).to.contain('does not have quay.io/a/b:v2 beside the release');
  });

  it('refuses two images that would get the same name, and needs a destination', async () => {
    expect(await mirroring.fail(['--config-to-dir=c', ...images()], 2)).to.match(/--additional-image needs --to/);
    const second = await startRegistry();
    const other = extraImage({ registry: second.host, repository: 'tools/debug', seed: 'c' });
    other.addTo(second.content);
    const both = [...images(), `--additional-image=${other.tagged}`];
    const stderr = await mirroring.fail([`--to=${site.host}/x/release`, ...both], 2);
    await second.stop();
    expect(stderr).to.match(/tools\/debug:v1\S+ and \S+ would both become \S+\/x\/tools\/debug:v1/);
  });
});
