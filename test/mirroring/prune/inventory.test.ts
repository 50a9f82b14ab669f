import { cp, readdir, rm, writeFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { addRelease, openWorkshop, runExecutable, type Workshop } from '../../support/content/creation.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { Mirroring, pullWhole, readTagLinks } from '../../support/release/mirroring.ts';
import type { TestRelease } from '../../support/release/release.ts';

/** A run of `prune` as JSON. */
interface Pruned {
  readonly repositories: { manifests: string[] }[];
  readonly files: string[];
}

describe('readInventory', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry({ inMemory: false });

  before(async () => {
    const small = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1 };
    workshop = await openWorkshop({ release: small });
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { ...small, version: '4.12.3', seed: 'old' });
    await mirroring.succeed(['--to-dir=both'], both());
  });
  beforeEach(() => cp(mirroring.path('both'), mirroring.path('mirror'), { recursive: true, verbatimSymlinks: true }));
  afterEach(() => rm(mirroring.path('mirror'), { recursive: true, force: true }));
  after(() => workshop.close());

  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const prune = (...args: string[]): Promise<Execution> =>
    runExecutable('oc-adm_release_mirror_config', workshop.folder, ['prune', '--insecure', ...args]);
  const succeed = async (...args: string[]): Promise<Pruned> => {
    const { code, stdout, stderr } = await prune(...args, '-o', 'json');
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout) as Pruned;
  };
  const tagsOf = ({ tag, images, digest }: TestRelease): string[] => [
    tag,
    attachmentTag(digest),
    ...[...images.keys()].map((name) => `${tag}-${name}`),
  ];

  it('finds the repositories of ${version}, and removes mirror sets that lead nowhere', async () => {
    const to = `--to=${site.host}/each/\${version}`;
    await mirroring.succeed([to, '--config-to-dir=config'], both());
    expect(await readdir(mirroring.path('config/mirrors'))).to.have.length(2);
    const done = await succeed(to, '--config-to-dir=config', '--keep=4.12.4-x86_64', '--yes');
    expect(done.files.filter((path) => path.includes('mirrors/'))).to.have.length(1);
    expect(await readdir(mirroring.path('config/mirrors'))).to.have.length(1);
    expect(await readdir(mirroring.path('config/signature/sha256'))).to.have.length(1);
    await pullWhole(`${site.host}/each/4.12.4:${workshop.release.tag}`, mirroring.path('copy'));
  });

  it('keeps a release whose payload cannot be read, and its images', async () => {
    const payload = JSON.parse(
      String(workshop.registry.content.repositories.get(old.releaseRepository)?.manifests.get(old.digest)?.bytes),
    ) as { layers: { digest: string }[] };
    const layer = payload.layers.at(-1)?.digest ?? '';
    await writeFile(mirroring.path('mirror/v2/openshift/release/blobs', layer), 'x');
    const done = await succeed('--to-dir=mirror', '--keep=4.12.4', '--yes');
    expect(done.repositories[0]?.manifests).to.deep.equal([]);
    expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.include.members(tagsOf(old));
    expect((await prune('--to-dir=mirror', '--keep=4.12.3')).stderr).to.contain('cannot be read');
  });

  it('keeps a release that another tag refers to', async () => {
    const before = [...(await readTagLinks(mirroring.path('mirror'))).keys()];
    const folder = mirroring.path('mirror/v2/openshift/release/manifests');
    await symlink(old.digest, join(folder, 'stable'));
    const plan = await prune('--to-dir=mirror', '--keep=4.12.4', '--yes');
    expect(plan.stdout).to.match(/^4\.12\.3-x86_64 +3 +keep: the tag stable refers to it too$/m);
    expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.have.members([...before, 'stable']);
  });
});
