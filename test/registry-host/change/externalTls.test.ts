import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Installation } from '../../../lib/registry-host/installation/installation.ts';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { requirePeer } from '../../support/peers.ts';

describe('a registry behind a proxy that serves TLS', function () {
  let folder: string;
  let bundle: TestRegistryBundle;
  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'external-tls-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    bundle = await makeRegistryBundle(folder);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  for (const [what, containerPort] of [
    ['HTTP on port 8080, because Quay has no key', 8080],
    ['TLS on port 8443, because Quay has a key', 8443],
  ] as const) {
    it(`is recognised, checked and upgraded: ${what}`, async () => {
      // Clients connect to the proxy, by another name.
      const configuration = 'EXTERNAL_TLS_TERMINATION: true\n';
      await using registry = await startMirrorRegistry({ configuration, hostname: 'proxy.example.com' }, containerPort);
      const { host } = registry;
      const found = JSON.parse((await registry.call('status', ['-o', 'json'])).stdout) as Installation;
      expect(found).to.include({ externalTls: true, servesTls: containerPort === 8443 });
      expect([found.port.value, found.remarks, found.additions.map(({ value }) => value)]).to.deep.equal([
        host.port,
        [],
        ['--memory 4g'],
      ]);
      const before = await registry.snapshot();
      host.healthOf = (image) => (image === bundle.quay ? { ...healthy, status: 503 } : healthy);
      const failed = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
      expect([failed.code, host.running], failed.stderr).to.deep.equal([3, imagesOf('2.0.7').quay]);
      expect(await registry.snapshot()).to.deep.equal(before);
      host.healthOf = () => healthy;
      const { code, stderr } = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
      expect([code, host.running], stderr).to.deep.equal([0, bundle.quay]);
      const again = await registry.call('upgrade', [`--bundle=${bundle.path}`]);
      expect(again.stdout, again.stderr).to.include('there is nothing to do');
    });
  }
});
