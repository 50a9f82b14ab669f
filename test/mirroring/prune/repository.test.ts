import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, digestIn } from '../../../lib/content/oci/reference.ts';
import { startChangeProxy } from '../../support/changeProxy.ts';
import { addRelease, openWorkshop, runExecutable, type Workshop } from '../../support/content/creation.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { Mirroring } from '../../support/release/mirroring.ts';
import type { TestRelease } from '../../support/release/release.ts';

describe('PrunedRepository', function () {
  requirePeer(this, 'docker-registry');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry({ inMemory: false });

  before(async () => {
    const small = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1, attachments: () => false };
    workshop = await openWorkshop({ release: small });
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { ...small, version: '4.12.3', seed: 'old' });
    await mirroring.succeed(['--to-dir=both'], both());
    await mirroring.succeed([`--to=${site.host}/both`], both());
  });
  beforeEach(() => cp(mirroring.path('both'), mirroring.path('mirror'), { recursive: true, verbatimSymlinks: true }));
  afterEach(() => rm(mirroring.path('mirror'), { recursive: true, force: true }));
  after(() => workshop.close());

  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const prune = (...args: string[]): Promise<Execution> =>
    runExecutable('oc-adm_release_mirror_config', workshop.folder, ['prune', '--insecure', ...args]);

  it('fails if a registry accepts each DELETE and deletes nothing', async () => {
    const to = 'unwilling';
    await site.addTo(to, 'both');
    await using proxy = await startChangeProxy(site.host, (method) => (method === 'DELETE' ? 202 : undefined));
    const { code, stdout, stderr } = await prune(`--to=${proxy.host}/${to}`, '--keep=4.12.4', '--yes');
    expect(code, stdout).to.equal(1);
    expect(stderr).to.contain(`still has ${old.digest}, although it answered that it deleted it`);
  });

  it('keeps the blobs of images without a tag in a directory', async () => {
    const [own] = [...old.images.values()];
    const folder = mirroring.path('mirror/v2/openshift/release');
    const digest = digestIn(own?.pullspec ?? '');
    const manifest = JSON.parse(await readFile(join(folder, 'manifests', digest), 'utf8')) as {
      layers: { digest: string }[];
    };
    const copy = Buffer.from(JSON.stringify({ ...manifest, annotations: { own: 'yes' } }));
    await writeFile(join(folder, 'manifests', digestOf(copy)), copy);
    expect((await prune('--to-dir=mirror', '--keep=4.12.4', '--yes')).code).to.equal(0);
    expect(await readdir(join(folder, 'manifests'))).not.to.include(digest);
    const blobs = await readdir(join(folder, 'blobs'));
    expect(blobs).to.include.members(manifest.layers.map((layer) => layer.digest));
  });

  it('removes nothing if the manifest of an image that stays is corrupt', async () => {
    const [own] = [...workshop.release.images.values()];
    const digest = digestIn(own?.pullspec ?? '');
    const folder = mirroring.path('mirror/v2/openshift/release');
    const before = await readdir(join(folder, 'blobs'));
    await writeFile(join(folder, 'manifests', digest), '{}');
    const { code, stderr } = await prune('--to-dir=mirror', '--keep=4.12.4', '--yes');
    expect(code).to.equal(1);
    expect(stderr).to.contain(`the manifest ${digest} in`).and.contain('is corrupt, and it stays');
    expect(await readdir(join(folder, 'blobs'))).to.have.members(before);
  });
});
