import { createHash } from 'node:crypto';
import { chmod, chown, lchown, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../lib/node/machine/hostCommands.ts';
import { copyDatabase } from '../../lib/registry-host/change/database.ts';
import { startMirrorRegistry, type RunningRegistry } from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully } from '../support/peers.ts';
import { failureOf } from '../support/program/failure.ts';

const user = 1234;

// The folder of the registry belongs to an unprivileged user, and root runs the program.
describe('a registry in the folder of an ordinary user, changed by root', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  let registry: RunningRegistry;
  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    registry = await startMirrorRegistry();
    await runSuccessfully('chown', ['-R', `${user}:${user}`, registry.at('')]);
  });
  afterEach(() => registry.stop());

  const target = (): string => join(registry.fixture.root, 'etc/cron.d/job');

  /** Writes a journal of a rollback that writes `path`, as the user would. */
  async function plant(path: string, owner: number, change: object = {}): Promise<void> {
    const state = registry.at('.oc-mirror-registry');
    const id = '000001-20260101T000000Z';
    const backup = join(state, 'backups', id);
    await mkdir(backup, { recursive: true, mode: 0o700 });
    const content = '* * * * * root id\n';
    const sha256 = createHash('sha256').update(content).digest('hex');
    const journal = {
      id,
      title: 'the upgrade',
      phase: 'restoring',
      restart: [],
      containers: [],
      names: [],
      replaced: [],
      files: [{ path, old: { mode: 0o644, uid: 0, gid: 0, sha256 } }],
      wasHealthy: false,
      ...change,
    };
    await writeFile(join(backup, '0.old'), content, { mode: 0o600 });
    await writeFile(join(backup, '0.new'), content, { mode: 0o600 });
    await writeFile(join(state, 'journal.json'), JSON.stringify(journal), { mode: 0o600 });
    for (const each of ['', 'backups', 'journal.json', `backups/${id}`, `backups/${id}/0.old`, `backups/${id}/0.new`]) {
      await chown(join(state, each), owner, owner);
    }
  }

  it('trusts no journal that the user wrote', async () => {
    await registry.fixture.write('/etc/cron.d/job', 'old\n');
    await plant('/etc/cron.d/job', user);
    for (const command of ['certs renew', 'rollback', 'upgrade']) {
      const { code, stderr } = await registry.call(command, ['--force']);
      expect([code, stderr.includes('cannot be trusted')], stderr).to.deep.equal([1, true]);
    }
    expect(await readFile(target(), 'utf8')).to.equal('old\n');
    expect((await registry.call('plan')).stderr).to.include('cannot be trusted');
  });

  it('trusts no state that other users can write, nor one behind their link', async () => {
    expect((await registry.call('certs renew')).code).to.equal(0);
    const state = registry.at('.oc-mirror-registry');
    await chmod(state, 0o770);
    const open = await registry.call('rollback');
    expect([open.code, open.stderr.includes('mode 770')], open.stderr).to.deep.equal([1, true]);
    await chmod(state, 0o700);
    await rename(state, `${state}-moved`);
    await symlink(`${state}-moved`, state);
    await lchown(state, user, user);
    const linked = await registry.call('rollback');
    expect([linked.code, linked.stderr.includes('symbolic link of another user')], linked.stderr).to.deep.equal([
      1,
      true,
    ]);
  });

  it('writes only files of the installation, for any journal', async () => {
    await registry.fixture.write('/etc/cron.d/job', 'old\n');
    for (const path of ['/etc/cron.d/job', `${registry.fixture.quayRoot}/quay-config/../../../etc/cron.d/job`]) {
      await plant(path, 0);
      const { code, stderr } = await registry.call('rollback', ['--force']);
      expect([code, stderr.includes('not a journal of this registry')], stderr).to.deep.equal([1, true]);
    }
    await plant(join(registry.fixture.unitFolder, 'quay-app.service'), 0, { restart: ['sshd'] });
    expect((await registry.call('rollback', ['--force'])).stderr).to.include('names sshd');
    await plant(join(registry.fixture.unitFolder, 'quay-app.service'), 0, { id: '../../etc' });
    expect((await registry.call('rollback', ['--force'])).code).to.equal(1);
    expect(await readFile(target(), 'utf8')).to.equal('old\n');
  });

  it('follows no link of the user, neither to a file nor to a folder', async () => {
    await registry.fixture.write('/etc/cron.d/job', 'old\n');
    for (const name of ['ssl.cert', 'ssl.key']) {
      const place = registry.at(`quay-config/${name}`);
      await rename(place, `${place}.aside`);
      await symlink(target(), place);
      await lchown(place, user, user);
      const own = await makeOwn();
      const { code, stderr } = await registry.call('certs renew', [...own, '--force']);
      expect(code, stderr).to.equal(1);
      expect(await readFile(target(), 'utf8')).to.equal('old\n');
      await rm(place);
      await rename(`${place}.aside`, place);
    }
    await rename(registry.at('quay-config'), registry.at('aside'));
    await symlink('aside', registry.at('quay-config'));
    await lchown(registry.at('quay-config'), user, user);
    const refused = await registry.call('certs renew');
    expect([refused.code, refused.stderr.includes('symbolic link of another user')], refused.stderr).to.deep.equal([
      1,
      true,
    ]);
    expect(registry.host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
  });

  async function makeOwn(): Promise<string[]> {
    const [cert, key] = [join(registry.fixture.root, 'own.cert'), join(registry.fixture.root, 'own.key')];
    await runSuccessfully('openssl', [
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-days',
      '100',
      '-subj',
      '/CN=localhost',
      '-addext',
      'subjectAltName=DNS:localhost',
      '-keyout',
      key,
      '-out',
      cert,
    ]);
    return [`--ssl-cert=${cert}`, `--ssl-key=${key}`];
  }

  it('leaves no folder for a link of root’s own that leads elsewhere', async () => {
    await registry.fixture.write('/srv/elsewhere.cert', await readFile(registry.at('quay-config/ssl.cert'), 'utf8'));
    await rm(registry.at('quay-config/ssl.cert'));
    await symlink('/srv/elsewhere.cert', registry.at('quay-config/ssl.cert'));
    const before = await registry.snapshot();
    const { code, stderr } = await registry.call('certs renew');
    expect([code, stderr.includes('outside of')], stderr).to.deep.equal([1, true]);
    expect(await registry.snapshot()).to.deep.equal(before);
  });

  it('copies and restores no database through a link', async () => {
    const place = join(registry.fixture.root, 'srv/db/quay_sqlite.db');
    await registry.fixture.write('/etc/secret', 'secret\n');
    await rename(place, `${place}.aside`);
    await symlink(join(registry.fixture.root, 'etc/secret'), place);
    const { code, stderr } = await registry.call('upgrade', ['--version=2.0.11', '--force']);
    expect([code, stderr.includes('not a regular file')], stderr).to.deep.equal([1, true]);
    expect(await readFile(join(registry.fixture.root, 'etc/secret'), 'utf8')).to.equal('secret\n');
  });

  it('copies and restores no database through a folder that the user replaced by a link', async () => {
    const folder = join(registry.fixture.root, 'srv/db');
    await rename(folder, `${folder}.aside`);
    await symlink('db.aside', folder);
    await lchown(folder, user, user);
    const { signal } = new AbortController();
    const commands = new HostCommands({ podman: 'podman', systemctl: 'systemctl', environment: {}, signal }, 'system');
    const copy = copyDatabase(commands, folder, registry.at(''));
    expect((await failureOf(copy, 'not-readable')).message).to.include('symbolic link of another user');
  });

  it('removes no file on the way back that it did not write', async () => {
    expect((await registry.call('certs renew', ['--new-ca=prepare'])).code).to.equal(0);
    const [certificate, key] = [registry.at('quay-rootCA/next/rootCA.pem'), registry.at('quay-rootCA/next/rootCA.key')];
    await writeFile(certificate, 'precious\n');
    expect((await registry.call('rollback')).stderr).to.include('changed since');
    expect((await registry.call('rollback', ['--force'])).code).to.equal(0);
    expect(await readFile(certificate, 'utf8')).to.equal('precious\n');
    expect(await readdir(dirname(key))).to.deep.equal(['rootCA.pem']);
  });

  it('gives its own folder to no other user, and the certificates to their earlier owners', async () => {
    expect((await registry.call('certs renew')).code).to.equal(0);
    const state = registry.at('.oc-mirror-registry');
    for (const name of ['', ...(await readdir(state, { recursive: true }))]) {
      const { uid, mode } = await stat(join(state, name));
      expect([uid, mode & 0o077], name).to.deep.equal([0, 0]);
    }
    expect((await stat(registry.at('quay-config/ssl.cert'))).uid).to.equal(user);
  });
});
