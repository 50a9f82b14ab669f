import { spawn } from 'node:child_process';
import { chmod, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  mirrorRegistryExecutable,
  startMirrorRegistry,
  type RunningRegistry,
} from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully, type RunResult } from '../support/peers.ts';

const user = 1234;

// As the user who runs the registry. The folder of the database belongs to a subordinate user,
// which only podman can use.
describe('a registry in the scope of a user', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    registry = await startMirrorRegistry({ scope: 'user' });
    const { root } = registry.fixture;
    await runSuccessfully('chown', ['-R', `${user}:${user}`, root]);
    await runSuccessfully('chown', ['-R', '101001:101001', join(root, 'srv/db')]);
    await chmod(join(root, 'srv/db'), 0o700);
  });
  afterEach(() => registry.stop());

  function callAsUser(command: string, ...args: string[]): Promise<RunResult> {
    const { root, home } = registry.fixture;
    const programs = ['podman', 'systemctl'].map((name) => `--${name}=${root}/programs/${name}`);
    const words = [mirrorRegistryExecutable, command, `--root=${root}`, `--user-home=${home}`, '--health-timeout=2'];
    const child = spawn(process.execPath, [...words, ...programs, ...args], { uid: user, gid: user, cwd: '/' });
    return new Promise((resolve) => {
      let [stdout, stderr] = ['', ''];
      child.stdout.on('data', (chunk) => (stdout += String(chunk)));
      child.stderr.on('data', (chunk) => (stderr += String(chunk)));
      child.on('close', (code) => {
        resolve({ code: code ?? -1, stdout, stderr });
      });
    });
  }

  it('has its database copied, measured and restored through podman unshare', async () => {
    const before = await registry.snapshot();
    const { host } = registry;
    for (const image of [
      'registry.redhat.io/quay/quay-rhel8:v3.12.18',
      'registry.redhat.io/rhel8/redis-6:1-1766406130',
    ]) {
      host.images.set(image, `new-${image}`);
    }
    const { code, stderr } = await callAsUser('upgrade', '--version=2.0.11');
    expect(code, stderr).to.equal(0);
    expect(host.calls.some((line) => line.startsWith('podman unshare find'))).to.equal(true);
    const back = await callAsUser('rollback');
    expect(back.code, back.stderr).to.equal(0);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('is refused to root, with and without a restart', async () => {
    const before = await registry.snapshot();
    for (const args of [[], ['--no-restart'], ['--scope=user']]) {
      const { code, stderr } = await registry.call('certs renew', args);
      expect([code, stderr.includes(`belongs to another user, ${user}`)], stderr).to.deep.equal([1, true]);
    }
    expect([await registry.snapshot(), registry.host.calls]).to.deep.equal([before, []]);
    expect((await registry.call('plan')).code).to.equal(0);
  });
});

describe('a registry on a mounted disk', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  it('has its symbolic links resolved inside that disk', async () => {
    await using registry = await startMirrorRegistry({ quayRoot: '/opt/quay-install' });
    const { root } = registry.fixture;
    await runSuccessfully('mv', [join(root, 'opt'), join(root, 'var-opt')]);
    // As on hosts with /opt in another place: an absolute link, which on this machine leads elsewhere.
    await symlink('/var-opt', join(root, 'opt'));
    const before = await readFile(join(root, 'var-opt/quay-install/quay-config/ssl.cert'), 'utf8');
    const { code, stderr } = await registry.call('certs renew', ['--no-restart']);
    expect(code, stderr).to.equal(0);
    expect(await readFile(join(root, 'var-opt/quay-install/quay-config/ssl.cert'), 'utf8')).not.to.equal(before);
  });
});
