import { mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import type { UninstallPlan } from '../../../lib/registry-host/change/uninstall.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';

describe('uninstall', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  beforeEach(async () => {
    const dropIns = { 'quay-app.service.d/50-own.conf': '[Service]\nNice=5\n' };
    registry = await startMirrorRegistry({ storage: 'quay-storage', dropIns });
    const { host, fixture } = registry;
    host.secrets.set('redis_pass', 'strongpassword').set('another', 'y');
    host.volumes.add('quay-storage').add('another');
    await fixture.write(`${fixture.unitFolder}/sshd.service`, '[Service]\n');
  });
  afterEach(() => registry.stop());

  const call = (...args: string[]): Promise<RunResult> => registry.call('uninstall', args);

  /** Returns the rest of the registry: names in podman, and files. */
  async function listRest(): Promise<{ held: string[]; files: string[] }> {
    const { host } = registry;
    const held = [...host.pods, ...host.containers, ...host.secrets.keys(), ...host.volumes];
    const ours = /^\/(?:etc\/systemd|root\/quay-install|srv)\//;
    return { held, files: Object.keys(await registry.snapshot()).filter((path) => ours.test(path)) };
  }

  it('lists everything first, and then removes it except the data', async () => {
    const before = await registry.snapshot(true);
    const shown = await call('--dry-run');
    expect(shown.code, shown.stderr).to.equal(0);
    for (const line of [
      'unit quay-app.service',
      'unit quay-redis.service',
      'unit quay-pod.service',
      'pod quay-pod',
      'container quay-app',
      'container quay-redis',
      'secret redis_pass',
      'file /etc/systemd/system/quay-app.service',
      'file /etc/systemd/system/quay-app.service.d/50-own.conf',
    ]) {
      expect(shown.stdout.split('\n')).to.include(`would remove ${line}`);
    }
    for (const line of ['volume quay-storage', 'folder /srv/db', 'folder /root/quay-install/quay-config']) {
      expect(shown.stdout.split('\n')).to.include(`would keep ${line}`);
    }
    expect(shown.stdout).to.match(/\n\n--remove-data removes what would be kept\.\n$/);
    const plan = JSON.parse((await call('--dry-run', '-o', 'json')).stdout) as UninstallPlan;
    expect(plan.unitFiles.at(-1)).to.equal('/etc/systemd/system/quay-app.service');
    expect(await registry.snapshot(true)).to.deep.equal(before);
    expect(registry.host.running).not.to.equal(undefined);

    const { code, stdout, stderr } = await call();
    expect([code, stdout.includes('with --remove-data --yes')], stderr).to.deep.equal([0, true]);
    const { held, files } = await listRest();
    expect(held).to.have.members(['another', 'quay-storage', 'another']);
    expect(files.filter((path) => path.startsWith('/etc'))).to.deep.equal(['/etc/systemd/system/sshd.service']);
    const data = Object.keys(before).filter((path) => /^\/(?:srv|root)\//.test(path));
    expect(files.filter((path) => !path.startsWith('/etc'))).to.deep.equal(data);
    const status = await registry.call('status');
    expect(status.stderr).to.include('was uninstalled, and its data was kept: /srv/db').and.to.include('quay-storage');
  });

  it('finds the data that an earlier run kept, and removes it', async () => {
    expect((await call()).code).to.equal(0);
    const again = await call();
    expect([again.code, again.stdout.includes('kept volume quay-storage')], again.stderr).to.deep.equal([0, true]);
    const { code, stderr } = await call('--remove-data', '--yes');
    expect(code, stderr).to.equal(0);
    const { held, files } = await listRest();
    expect([held, files]).to.deep.equal([['another', 'another'], ['/etc/systemd/system/sshd.service']]);
    expect((await call('--remove-data', '--yes')).stderr).to.include('there is no mirror registry on this host');
  });

  it('removes data only with --yes, and lists it without', async () => {
    const before = await registry.snapshot(true);
    const { code, stdout, stderr } = await call('--remove-data');
    expect([code, stdout.includes('would remove volume quay-storage')], stderr).to.deep.equal([0, true]);
    expect(stdout).to.include('Nothing was removed. To remove this, run the same command with --yes.');
    expect(await registry.snapshot(true)).to.deep.equal(before);
    expect(registry.host.running).not.to.equal(undefined);
  });

  it('leaves nothing with --remove-data, the names of kept images included', async () => {
    const { host, fixture } = registry;
    for (const name of ['quay/quay-rhel8:v3.12.18', 'rhel8/redis-6:1-1766406130']) {
      host.images.set(`registry.redhat.io/${name}`, `new-${name}`);
    }
    expect((await registry.call('upgrade', ['--version=2.0.11'])).code).to.equal(0);
    const { code, stderr } = await call('--remove-data', '--yes');
    expect(code, stderr).to.equal(0);
    const { held, files } = await listRest();
    expect([held, files]).to.deep.equal([['another', 'another'], ['/etc/systemd/system/sshd.service']]);
    expect([...host.images.keys()].filter((name) => name.startsWith('localhost/'))).to.deep.equal([]);
    expect(await readdir(join(fixture.root, 'root'))).to.deep.equal([]);
    expect(await readdir(join(fixture.root, 'srv'))).to.deep.equal([]);
  });

  // Among the first units, the containers, the secrets, the volumes, and before the last reload.
  for (const commands of [7, 9, 10, 11, 12, 13, 14, 15, 16]) {
    it(`is finished by the next run after its ${commands}th command failed`, async () => {
      registry.host.failsAfter = commands;
      const failed = await call('--remove-data', '--yes');
      registry.host.failsAfter = Infinity;
      if (failed.code !== 0) {
        const again = await call('--remove-data', '--yes');
        // Only the reload was left.
        if (again.code !== 0) expect(again.stderr).to.include('there is no mirror registry on this host');
      }
      expect(await listRest()).to.deep.equal({
        held: ['another', 'another'],
        files: ['/etc/systemd/system/sshd.service'],
      });
    });
  }

  for (const step of [0, 1, 4, 7, 8, 10]) {
    it(`is finished by the next run after it was killed at its ${step}th removal of a file`, async () => {
      const killed = await registry.call('uninstall', ['--remove-data', '--yes'], step);
      expect(killed.code, killed.stderr).to.equal(-1);
      const again = await call('--remove-data', '--yes');
      if (again.code !== 0) expect(again.stderr).to.include('there is no mirror registry on this host');
      const { held, files } = await listRest();
      expect([held, files]).to.deep.equal([['another', 'another'], ['/etc/systemd/system/sshd.service']]);
    });
  }

  it('removes the pod of the first installer, which has no unit for it', async () => {
    await rm(join(registry.fixture.root, registry.fixture.unitFolder, 'quay-pod.service'));
    const { code, stdout, stderr } = await call();
    expect([code, stdout.includes('removed pod quay-pod')], stderr).to.deep.equal([0, true]);
    expect([...registry.host.pods]).to.deep.equal([]);
  });

  it('works when the configuration is missing, and refuses while an upgrade is unfinished', async () => {
    registry.host.isBroken = true;
    expect((await registry.call('certs renew')).code).to.equal(4);
    registry.host.isBroken = false;
    const calls = registry.host.calls.length;
    const refused = await call();
    expect([refused.code, refused.stderr.includes('is unfinished')], refused.stderr).to.deep.equal([1, true]);
    expect(registry.host.calls.slice(calls).filter((line) => /disable|\brm\b/.test(line))).to.deep.equal([]);
    expect((await registry.call('rollback')).code).to.equal(0);
    await rm(registry.at('quay-config/config.yaml'));
    const { code, stderr } = await call('--remove-data', '--yes');
    expect(code, stderr).to.equal(0);
    expect((await listRest()).files).to.deep.equal(['/etc/systemd/system/sshd.service']);
  });

  it('stops nothing if the units are on a read-only disk', async function () {
    const folder = join(registry.fixture.root, registry.fixture.unitFolder);
    const mounted = await run('mount', ['--bind', folder, folder]);
    if (mounted.code !== 0) this.skip();
    try {
      await runSuccessfully('mount', ['-o', 'remount,bind,ro', folder]);
      const before = await listRest();
      const { code, stderr } = await call('--remove-data', '--yes');
      expect([code, stderr.includes('cannot be written')], stderr).to.deep.equal([1, true]);
      expect(await listRest()).to.deep.equal(before);
      expect(registry.host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    } finally {
      await runSuccessfully('umount', [folder]);
    }
    expect((await call()).code).to.equal(0);
  });

  it('removes no folder that has more than the registry, and follows no link', async () => {
    const { fixture } = registry;
    const unit = `${fixture.unitFolder}/quay-app.service`;
    const dropIn = (storage: string): Promise<void> =>
      fixture.write(
        `${unit}.d/60-storage.conf`,
        `[Service]\nExecStart=\nExecStart=/usr/bin/podman run --name quay-app -v ` +
          `${fixture.quayRoot}/quay-config:/quay-registry/conf/stack:Z -v ${storage}:/datastorage quay\n`,
      );
    for (const storage of ['/srv', '/etc', '/root']) {
      await dropIn(storage);
      const { code, stderr } = await call('--remove-data', '--yes');
      expect([code, stderr.includes('has more than the registry')], stderr).to.deep.equal([1, true]);
    }
    await dropIn('/srv/images');
    await mkdir(join(fixture.root, 'opt'), { recursive: true });
    await writeFile(join(fixture.root, 'opt/precious'), '');
    await symlink('/opt', join(fixture.root, 'srv/images'));
    const linked = await call('--remove-data', '--yes');
    expect([linked.code, linked.stderr.includes('has more')], linked.stderr).to.deep.equal([1, true]);
    expect(await readdir(join(fixture.root, 'opt'))).to.deep.equal(['precious']);
    expect(registry.host.calls.filter((line) => /disable|\brm\b/.test(line))).to.deep.equal([]);
  });
});
