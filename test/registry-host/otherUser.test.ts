import { spawnSync } from 'node:child_process';
import {
  chown,
  lchown,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startMirrorRegistry, type RunningRegistry } from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';

const user = 1234;
const secret = 'root:$6$secret\n';

async function plantLink(target: string, path: string): Promise<void> {
  await rm(path, { recursive: true, force: true });
  await symlink(target, path);
  await lchown(path, user, user);
}

// The folder of the registry belongs to an unprivileged user, and root runs the program.
describe('the folder of a registry, against the user who owns it', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    registry = await startMirrorRegistry();
    await registry.fixture.write('/etc/shadow', secret, 0o600);
    await mkdir(registry.at('quay-config/extra_ca_certs'), { recursive: true });
    await runSuccessfully('chown', ['-R', `${user}:${user}`, registry.at('')]);
  });
  afterEach(() => registry.stop());

  const output = (): string => join(registry.fixture.root, 'out.backup');
  const shadow = (): string => join(registry.fixture.root, 'etc/shadow');

  /** Runs the commands, which must fail for a reason, without any trace of the secret. */
  async function expectRefusals(commands: readonly string[], reason: RegExp, place: string): Promise<void> {
    for (const command of commands) {
      const { code, stdout, stderr } = await registry.call(
        command,
        command === 'backup' ? [`--output=${output()}`] : [],
      );
      expect([code, reason.test(stderr)], `${command}, ${place}: ${stdout}${stderr}`).to.deep.equal([1, true]);
      expect(stdout + stderr).not.to.include('secret');
    }
    expect(await readdir(registry.fixture.root)).not.to.include('out.backup');
    expect(await readFile(shadow(), 'utf8')).to.equal(secret);
  }

  it('packs no file that a link among the extra CAs leads to', async () => {
    await plantLink(shadow(), registry.at('quay-config/extra_ca_certs/a.crt'));
    await expectRefusals(['backup'], /a\.crt is a symbolic link of another user, 1234/, 'a.crt');
    await plantLink(join(registry.fixture.root, 'etc'), registry.at('quay-config/extra_ca_certs'));
    await expectRefusals(['backup'], /extra_ca_certs is a symbolic link of another user, 1234/, 'extra_ca_certs');
  });

  it('reads no file through a link, with any command', async () => {
    for (const name of ['quay-config/config.yaml', 'quay-config/ssl.cert', 'quay-rootCA/rootCA.pem', 'quay-config']) {
      const place = registry.at(name);
      await rename(place, `${place}.aside`);
      await plantLink(name === 'quay-config' ? 'quay-config.aside' : shadow(), place);
      const always = ['plan', 'certs status', 'certs trust', 'certs renew', 'backup'];
      const isConfiguration = name.endsWith('.yaml') || name === 'quay-config';
      const commands = [...(isConfiguration ? ['status'] : []), ...always];
      await expectRefusals(commands, /is a symbolic link of another user, 1234/, name);
      await rm(place);
      await rename(`${place}.aside`, place);
    }
  });

  it('waits for no pipe, and reads no large file', async () => {
    for (const name of ['quay-config/ssl.cert', 'quay-config/config.yaml', 'quay-config/extra_ca_certs/a.crt']) {
      const place = registry.at(name);
      const kept = await readFile(place).catch(() => undefined);
      const commands = name.endsWith('a.crt') ? ['backup'] : ['certs status', 'certs renew', 'backup'];
      if (name.endsWith('.yaml')) commands.push('status');
      await rm(place, { force: true });
      expect(spawnSync('mkfifo', [place]).status).to.equal(0);
      await expectRefusals(commands, /is not a regular file/, name);
      await rm(place);
      await writeFile(place, '');
      await truncate(place, 1_500_000_000);
      await expectRefusals(commands, /exceeds the limit of 4194304 bytes/, name);
      await rm(place);
      if (kept) await writeFile(place, kept);
    }
  });

  it('packs no more certificates than memory can hold', async () => {
    for (let index = 0; index < 17; index += 1) {
      const place = registry.at(`quay-config/extra_ca_certs/${index}.crt`);
      await writeFile(place, '');
      await truncate(place, 4 * 1024 * 1024);
    }
    await expectRefusals(['backup'], /quay-config exceed 64\.0 MiB/, 'many files');
  });

  it('removes no data behind a link', async () => {
    const data = join(registry.fixture.root, 'var/lib/others');
    await mkdir(join(data, 'images'), { recursive: true });
    await writeFile(join(data, 'images/precious'), '');
    await rename(join(registry.fixture.root, 'srv'), join(registry.fixture.root, 'srv.aside'));
    await plantLink('/var/lib/others', join(registry.fixture.root, 'srv'));
    const { code, stderr } = await registry.call('uninstall', ['--remove-data', '--yes']);
    expect([code, stderr.includes('symbolic link of another user')], stderr).to.deep.equal([1, true]);
    expect(await readdir(join(data, 'images'))).to.deep.equal(['precious']);
    expect(registry.host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
  });

  it('gives a restored secret to no other user', async () => {
    expect((await registry.call('backup', [`--output=${output()}`])).code).to.equal(0);
    for (const name of ['ssl.key', 'config.yaml']) await chown(registry.at(`quay-config/${name}`), 0, 0);
    await rm(registry.at('quay-config/ssl.key'));
    await rm(registry.at('quay-rootCA/rootCA.key'));
    const { code, stderr } = await registry.call('restore', [output(), '--force']);
    expect(code, stderr).to.equal(0);
    const modes = ['quay-config/ssl.key', 'quay-rootCA/rootCA.key', 'quay-config/ssl.cert'].map(async (name) => {
      const { mode } = await stat(registry.at(name));
      return (mode & 0o777).toString(8);
    });
    expect(await Promise.all(modes)).to.deep.equal(['640', '600', '644']);
  });
});
