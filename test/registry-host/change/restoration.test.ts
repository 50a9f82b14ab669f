import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer } from '../../support/peers.ts';

describe('the restoration of a registry', function () {
  let folder: string;
  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'restoration-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
  });
  after(() => rm(folder, { recursive: true, force: true }));

  it('stops the newer Quay before it overwrites its database', async () => {
    const bundle = await makeRegistryBundle(folder);
    const registry = await startMirrorRegistry();
    try {
      const { host, fixture } = registry;
      host.healthOf = (image) => (image === bundle.quay ? { ...healthy, status: 503 } : healthy);
      host.lastRow = 'written at its end';
      const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
      expect(code, stderr).to.equal(3);
      using database = new DatabaseSync(join(fixture.root, 'srv/db/quay_sqlite.db'), { readOnly: true });
      const rows = database.prepare('SELECT image FROM migration').all();
      // The old Quay has written its row before the backup.
      expect(rows.map(({ image }) => image)).to.deep.equal(['written at its end']);
    } finally {
      await registry.stop();
    }
  });

  it('restarts nothing if the change fails before it stops anything', async () => {
    const bundle = await makeRegistryBundle(folder);
    await using registry = await startMirrorRegistry();
    const { host } = registry;
    // As podman does on a full disk.
    host.fails = (call) => call.startsWith('podman tag') && call.includes('/rollback:');
    const begun = host.calls.length;
    const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
    expect(code, stderr).to.equal(3);
    const calls = host.calls.slice(begun).filter((line) => line.startsWith('systemctl'));
    expect(calls).to.deep.equal(['systemctl start quay-app.service']);
  });

  it('follows a healthy registry that still runs the old image', async () => {
    const bundle = await makeRegistryBundle(folder);
    await using registry = await startMirrorRegistry();
    registry.host.fixedImage = registry.host.running;
    const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
    expect([code, stderr.includes(`the container quay-app does not run ${bundle.quay}`)], stderr).to.deep.equal([
      3,
      true,
    ]);
  });

  it('does not wait for a registry that it does not restart', async () => {
    await using registry = await startMirrorRegistry();
    expect((await registry.call('certs renew')).code).to.equal(0);
    // It still serves the renewed certificate.
    const { code, stderr } = await registry.call('rollback', ['--no-restart']);
    expect(code, stderr).to.equal(0);
  });
});
