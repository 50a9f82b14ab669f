import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeRegistryBundle } from '../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { startMirrorRegistry, type RunningRegistry } from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';

describe('upgradeRegistry on a disk that is nearly full', function () {
  let folder: string;
  let bundle: { path: string; quay: string };
  let registry: RunningRegistry;
  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'full-disk-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    await requireRoot(this);
    bundle = await makeRegistryBundle(folder);
  });
  after(() => (folder ? rm(folder, { recursive: true, force: true }) : undefined));
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(async () => {
    await runSuccessfully('umount', [registry.at('')]);
    await registry.stop();
  });

  /** Moves the registry’s folder to a disk of `size` KiB. */
  async function moveToDisk(size: number): Promise<void> {
    const aside = join(folder, 'aside');
    await runSuccessfully('cp', ['-a', registry.at(''), aside]);
    await runSuccessfully('mount', ['-t', 'tmpfs', '-o', `size=${size}k`, 'tmpfs', registry.at('')]);
    await runSuccessfully('cp', ['-a', `${aside}/.`, registry.at('')]);
    await rm(aside, { recursive: true });
  }

  // There is no space for the backup, then none for the database or the journal, then none for the new files.
  for (const size of [44, 60, 128, 140, 144, 152, 164]) {
    it(`is done, or changes nothing to the byte, with a disk of ${size} KiB`, async () => {
      await moveToDisk(size);
      const before = await registry.snapshot();
      const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
      expect([0, 1, 3], stderr).to.include(code);
      expect(registry.host.running).to.equal(code === 0 ? bundle.quay : imagesOf('2.0.7').quay);
      if (code !== 0) expect(await registry.snapshot()).to.deep.equal(before);
      else expect((await registry.call('rollback')).code).to.equal(0);
      expect(await registry.snapshot()).to.deep.equal(before);
    });
  }
});
