import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { parseDigest } from '../../../lib/content/oci/reference.ts';
import type { RegistryRelease, TargetImages } from '../../../lib/registry-host/releases/images.ts';
import { changesOf, openInstallerRelease } from '../../../lib/registry-host/releases/installerRelease.ts';
import { openRegistryRelease } from '../../../lib/registry-host/releases/registryRelease.ts';
import { makeInstallerArchive } from '../../fakes/mirror-registry/installerArchive.ts';
import { startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('openInstallerRelease', function () {
  const context = makeContext();
  const { quay, redis, pause } = imagesOf('2.0.11');
  let folder: string;
  let archive: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'installer-'));
    archive = await makeInstallerArchive(folder, { quay, redis, pause });
  });
  after(() => rm(folder, { recursive: true, force: true }));

  const open = (path: string, given?: TargetImages): Promise<RegistryRelease> =>
    openRegistryRelease(path, () => Promise.reject(new Error('no registry')), context, given);

  it('reads the versions and the architecture of an installer', async () => {
    const release = await open(archive);
    expect(release).to.include({ kind: 'installer', version: '2.0.11', arch: 'x86_64' });
    expect(Object.values(release.images).map(({ image }) => image)).to.deep.equal([quay, redis, pause]);
    await failureOf(release.check(parseDigest(`sha256:${'0'.repeat(64)}`), context), 'digest-mismatch');
    const sum = (await runSuccessfully('sha256sum', [archive])).split(' ')[0] ?? '';
    await release.check(parseDigest(`sha256:${sum}`), context);
  });

  it('takes the archive of images alone too, with names that are given', async () => {
    await runSuccessfully('tar', ['-xzf', archive, '-C', folder, 'image-archive.tar']);
    const alone = join(folder, 'image-archive.tar');
    expect((await failureOf(open(alone), 'usage')).settings).to.include('version');
    expect((await open(alone, { quay, redis, pause })).images.redis.image).to.equal(redis);
  });

  it('reports an archive that is truncated, or lacks an image', async () => {
    const bytes = await readFile(archive);
    const cut = join(folder, 'cut.tar.gz');
    await writeFile(cut, bytes.subarray(0, bytes.length / 2));
    await failureOf(openInstallerRelease(cut, {}, context), 'invalid-file');
    await mkdir(join(folder, 'lacking'));
    await writeFile(join(folder, 'lacking/quay.tar'), Buffer.alloc(1024));
    const lacking = join(folder, 'lacking.tar');
    await runSuccessfully('tar', ['-cf', lacking, '-C', join(folder, 'lacking'), 'quay.tar']);
    expect((await failureOf(open(lacking, { quay }), 'invalid-file')).message).to.include('no redis.tar');
  });

  it('gives podman the paths of the programs of each Quay', () => {
    const pathOf = (version: string): string => changesOf('quay', `q/quay-rhel8:${version}`)[1] ?? '';
    expect([pathOf('v3.12.10'), pathOf('v3.12.14'), pathOf('v3.12.18')].map((text) => text.slice(0, 14))).to.deep.equal(
      ['ENV PATH=/app/', 'ENV PATH=/opt/', 'ENV PATH=/opt/'],
    );
  });

  it('upgrades a registry without a network', async function () {
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    await using registry = await startMirrorRegistry();
    const { code, stderr } = await registry.call('upgrade', [`--bundle=${archive}`]);
    expect(code, stderr).to.equal(0);
    expect(registry.host.running).to.equal(quay);
    const first = registry.host.calls.findIndex((line) => line.startsWith('systemctl'));
    expect(registry.host.calls.findLastIndex((line) => line.includes('import'))).to.be.lessThan(first);
    const before = await registry.snapshot(true);
    const again = await registry.call('upgrade', [`--bundle=${archive}`]);
    expect(again.stdout, again.stderr).to.include('there is nothing to do');
    expect(await registry.snapshot(true)).to.deep.equal(before);
  });
});
