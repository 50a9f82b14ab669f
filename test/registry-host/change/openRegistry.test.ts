import { expect } from 'chai';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { takeStateLock } from '../../../lib/registry-host/installation/stateFolder.ts';
import { startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer } from '../../support/peers.ts';

describe('lockRegistry', function () {
  requirePeer(this, 'docker-registry', 'openssl');

  it('lets no command change a registry that another run changes', async () => {
    await using registry = await startMirrorRegistry();
    const { root, quayRoot } = registry.fixture;
    await using _lock = await takeStateLock(new HostFiles(root), { quayRoot: { value: quayRoot, file: '', line: 0 } });
    const before = await registry.snapshot(true);
    for (const command of [
      'certs renew',
      'upgrade',
      'rollback',
      'rollback --abandon',
      'rollback --drop-backups --yes',
    ]) {
      const { code, stderr } = await registry.call(command);
      expect([code, stderr.split('\n')[0]?.includes('(busy)')], command + stderr).to.deep.equal([1, true]);
    }
    expect([await registry.snapshot(true), registry.host.calls]).to.deep.equal([before, []]);
  });
});
