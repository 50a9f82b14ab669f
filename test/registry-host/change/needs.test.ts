import { readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer } from '../../support/peers.ts';

describe('what a registry needs', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  beforeEach(async () => {
    registry = await startMirrorRegistry({ storage: 'quay-storage' });
    const { host } = registry;
    host.volumes.add('quay-storage');
    for (const name of ['quay/quay-rhel8:v3.12.18', 'rhel8/redis-6:1-1766406130']) {
      host.images.set(`registry.redhat.io/${name}`, `new-${name}`);
    }
  });
  afterEach(() => registry.stop());

  for (const [what, remove, words] of [
    [
      'a secret with another password',
      (each: RunningRegistry) => each.host.secrets.set('redis_pass', 'other'),
      'the podman secret redis_pass differs',
    ],
    [
      'a missing volume',
      (each: RunningRegistry) => each.host.volumes.delete('quay-storage'),
      'podman has no volume quay-storage',
    ],
    [
      'a missing folder of the database',
      (each: RunningRegistry) => rename(join(each.fixture.root, 'srv/db'), join(each.fixture.root, 'srv/elsewhere')),
      'there is no folder /srv/db',
    ],
  ] as const) {
    it(`is compared before anything stops: ${what}`, async () => {
      await remove(registry);
      const plan = await registry.call('plan', ['--version=2.0.11']);
      expect(plan.stdout, plan.stderr).to.include(`BLOCKED: ${words}`);
      const { code, stderr } = await registry.call('upgrade', ['--version=2.0.11']);
      expect([code, stderr.includes(words)], stderr).to.deep.equal([1, true]);
      expect(registry.host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    });
  }

  it('is not taken as missing if podman cannot tell whether it has a secret', async () => {
    const { host } = registry;
    host.fails = (call) => call.startsWith('podman secret inspect redis_pass');
    const { code, stderr } = await registry.call('upgrade', ['--version=2.0.11']);
    expect([code, stderr.includes('podman secret inspect failed')], stderr).to.deep.equal([1, true]);
    expect(host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
  });

  it('is a unit that is missing: status and plan name it, and upgrade writes it again', async () => {
    const { fixture } = registry;
    const name = `${fixture.unitFolder}/quay-redis.service`;
    const path = join(fixture.root, name);
    const [, installed = ''] = /ExecStart=([^]*?)\n\n/.exec(await readFile(path, 'utf8')) ?? [];
    expect((await registry.call('upgrade')).code).to.equal(0);
    await rm(path);
    const status = await registry.call('status');
    expect(status.stdout).to.include('quay-redis.service is missing, which other units require');
    const plan = await registry.call('plan');
    expect(plan.stdout)
      .to.include(`write ${name} again, which is missing`)
      .and.to.include('restart quay-redis, quay-app');
    const { code, stderr } = await registry.call('upgrade');
    expect(code, stderr).to.equal(0);
    const [, written = ''] = /ExecStart=(.*)/.exec(await readFile(path, 'utf8')) ?? [];
    const wordsOf = (text: string): string[] => text.split(/[\s\\]+/).sort();
    expect(wordsOf(written)).to.deep.equal(wordsOf(installed));
    expect(registry.host.calls).to.include('systemctl enable quay-redis.service');
    expect((await registry.call('plan')).stdout).to.include('there is nothing to do');
  });
});
