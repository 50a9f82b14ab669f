import { readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer } from '../../support/peers.ts';

describe('the needs of a registry', function () {
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

  it('is named if podman 6 will not have it, before a change', async () => {
    const { host, fixture } = registry;
    // The values of podman 4.3.1 of Debian.
    host.podmanInfo = { host: { cgroupVersion: 'v1', networkBackend: 'cni' }, version: { Version: '4.3.1' } };
    await fixture.write('/etc/containers/containers.conf', '[network]\nfirewall_driver = "iptables"\n');
    const { stdout } = await registry.call('plan', ['--version=2.0.11', '-o', 'json']);
    const { warnings } = JSON.parse(stdout) as { warnings: string[] };
    expect(warnings.filter((each) => each.includes('podman 6'))).to.deep.equal(
      [
        'this host has cgroup v1, with which podman 6 does not start: boot it with cgroup v2 first',
        'podman has the network backend cni, which podman 6 does not have: change to netavark first',
        'containers.conf has the firewall driver iptables, which podman 6 does not have: use nftables',
        'podman keeps its state in BoltDB, which podman 6 moves to SQLite at the first boot',
      ].map((words) => `before podman 4.3.1 is updated to 6: ${words}`),
    );
    // The values of podman 6.1.1.
    host.podmanInfo = {
      host: { cgroupVersion: 'v2', databaseBackend: 'sqlite', networkBackend: 'netavark', rootlessNetworkCmd: 'pasta' },
      version: { Version: '6.1.1' },
    };
    expect((await registry.call('plan', ['--version=2.0.11'])).stdout).not.to.contain('podman 6');
  });

  it('is a network that podman 6 does not have, which blocks', async () => {
    const { host, fixture } = registry;
    const path = `${fixture.unitFolder}/quay-app.service`;
    const text = await readFile(join(fixture.root, path), 'utf8');
    await fixture.write(
      path,
      text.replace('podman run ', 'podman run --network=slirp4netns:port_handler=slirp4netns '),
    );
    const words =
      `${path}:${1 + text.slice(0, text.indexOf('podman run ')).split('\n').length - 1} has slirp4netns, which ` +
      'podman 6 does not have: use pasta';
    expect((await registry.call('plan', ['--version=2.0.11'])).stdout).to.contain(
      `before podman 5.4.2 is updated to 6: ${words}`,
    );
    host.podmanInfo = { host: { cgroupVersion: 'v2', databaseBackend: 'sqlite' }, version: { Version: '6.1.1' } };
    expect((await registry.call('plan', ['--version=2.0.11'])).stdout).to.contain(`BLOCKED: ${words}`);
  });

  it('is said if podman 6 refuses the host', async () => {
    registry.host.fails = (call) => call.startsWith('podman info');
    registry.host.failure = 'level=fatal msg="Cgroups v1 not supported"';
    const { code, stderr } = await registry.call('plan', ['--version=2.0.11']);
    expect(code).to.equal(0);
    expect(stderr).to.contain('Cgroups v1 not supported').and.to.contain('podman 6 needs cgroup v2');
    const upgraded = await registry.call('upgrade', ['--version=2.0.11']);
    expect([upgraded.code, upgraded.stderr.includes('hint: podman 6 needs cgroup v2')]).to.deep.equal([1, true]);
  });

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
