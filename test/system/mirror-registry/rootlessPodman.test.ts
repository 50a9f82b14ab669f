import { copyFile, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { HostUser } from '../../fakes/mirror-registry/hostUser.ts';
import { makeFixture, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { PodmanHost } from '../../fakes/mirror-registry/podmanHost.ts';
import { makeStandInReleases, type StandInReleases } from '../../fakes/mirror-registry/standInReleases.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { requirePeer, type RunResult } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';

const executable = executableOf('oc-adm_mirror_registry');
const port = 18444;
const volumes = 'home/quay/.local/share/containers/storage/volumes';

// A user’s own registry: real podman with subordinate users, and the user’s systemd.
describe('a mirror registry under rootless podman', function () {
  requirePeer(this, 'podman', 'skopeo', 'openssl', 'curl', 'newuidmap', 'slirp4netns', 'python3');
  let host: PodmanHost;
  let user: HostUser;
  let fixture: Fixture;
  let releases: StandInReleases;

  before(async function () {
    await requireRoot(this);
    host = await PodmanHost.start();
    if (!host.hasSystemd) {
      console.error('SKIPPED “a mirror registry under rootless podman”: systemd does not start in a namespace here');
      this.skip();
    }
    fixture = await makeFixture({
      age: '2.0.7',
      scope: 'user',
      hostname: `localhost:${port}`,
      publish: `127.0.0.1:${port}:8443`,
    });
    await installCertificates(fixture, { host: 'localhost', days: 20, caDays: 100 });
    user = await HostUser.add(host, join(fixture.root, 'home/quay'));
    const probe = await user.run('podman', ['unshare', 'true']);
    if (probe.code !== 0) {
      console.error(`SKIPPED “a mirror registry under rootless podman”: podman has no users here: ${probe.stderr}`);
      this.skip();
    }
    releases = await makeStandInReleases(host.folder, async (archive) => {
      await copyFile(archive, join(fixture.root, 'home/quay/old.tar'));
      await user.runSuccessfully('podman', ['load', '--quiet', '-i', '/home/quay/old.tar']);
      await rm(join(fixture.root, 'home/quay/old.tar'));
    });
    const secret = join(fixture.root, 'home/quay/secret');
    await writeFile(secret, 'strongpassword');
    await user.runSuccessfully('podman', ['secret', 'create', 'redis_pass', '/home/quay/secret']);
    for (const unit of ['quay-pod', 'quay-redis', 'quay-app']) {
      await user.runSuccessfully('systemctl', ['--user', 'restart', `${unit}.service`]);
      // systemd restarts a container that finds no pod only after 30 s.
      await user.runSuccessfully('sh', ['-c', 'until podman pod exists quay-pod; do sleep 0.1; done']);
    }
    const url = `https://localhost:${port}/v2/`;
    await user.runSuccessfully('curl', ['-ksS', '--retry', '20', '--retry-all-errors', '--retry-delay', '1', url]);
  });
  after(async () => {
    // There are none if the suite is skipped.
    await (host as PodmanHost | undefined)?.stop();
    await (fixture as Fixture | undefined)?.remove();
  });

  const call = (...args: string[]): Promise<RunResult> => user.run(process.execPath, [executable, ...args]);

  const runningImages = async (): Promise<string[]> =>
    (await user.runSuccessfully('podman', ['ps', '--format', '{{.Image}}'])).trim().split('\n').sort();

  const inVolume = (name: string, path: string): string => join(fixture.root, volumes, name, '_data', path);

  /** Returns the versions of Quay that used the database. */
  function listMigrations(): unknown[] {
    using database = new DatabaseSync(inVolume('sqlite-storage', 'quay_sqlite.db'));
    return database
      .prepare('SELECT DISTINCT image FROM migration')
      .all()
      .map(({ image }) => image);
  }

  /** Returns the content and the owners of all files that a rollback restores. */
  async function snapshot(): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const folder of ['.config/systemd/user', 'quay-install/quay-config', 'quay-install/quay-rootCA']) {
      for (const name of await readdir(join(fixture.root, 'home/quay', folder))) {
        const path = join(fixture.root, 'home/quay', folder, name);
        const { mode, uid, gid } = await stat(path);
        found[path] = [mode, uid, gid, await readFile(path, 'utf8')].join(' ');
      }
    }
    return found;
  }

  it('is upgraded and rolled back, with a database that only podman’s users can read', async () => {
    await user.runSuccessfully('podman', ['unshare', 'chmod', '700', `/${volumes}/sqlite-storage/_data`]);
    await user.runSuccessfully('podman', [
      'unshare',
      'chmod',
      '600',
      `/${volumes}/sqlite-storage/_data/quay_sqlite.db`,
    ]);
    const before = await snapshot();
    const status = await call('status');
    expect(status.stdout, status.stderr).to.include('Quay 3.12.10, SQLite, user scope');
    const planned = await call('plan', `--bundle=${releases.bundle}`);
    expect(planned.stdout, planned.stderr).to.include('restart quay-pod, quay-redis, quay-app');
    const { code, stderr } = await call('upgrade', `--bundle=${releases.bundle}`);
    expect(code, stderr).to.equal(0);
    expect(await runningImages()).to.deep.equal(Object.values(releases.fresh).sort());
    expect(listMigrations()).to.deep.equal(['v3.12.10', 'v3.12.18']);
    const again = await call('upgrade', `--bundle=${releases.bundle}`);
    expect(again.stdout, again.stderr).to.include('there is nothing to do');
    const back = await call('rollback');
    expect([back.code, await snapshot(), listMigrations()], back.stderr).to.deep.equal([0, before, ['v3.12.10']]);
    expect(await runningImages()).to.deep.equal(Object.values(releases.old).sort());
    const { uid, mode } = await stat(inVolume('sqlite-storage', 'quay_sqlite.db'));
    expect([uid, mode & 0o777]).to.deep.equal([101000, 0o600]);
  });

  it('is backed up with the content of its images, and restored; its certificates are renewed', async () => {
    const content = `/${volumes}/quay-storage/_data`;
    const fill = `mkdir -p ${content}/sha256/aa && echo blob >${content}/sha256/aa/blob && chown -R 1001:0 ${content}`;
    await user.runSuccessfully('podman', ['unshare', 'sh', '-ec', fill]);
    const backup = await call('backup', '--output=/home/quay/backup.tar', '--images');
    expect(backup.code, backup.stderr).to.equal(0);
    const before = await snapshot();
    const renewed = await call('certs', 'renew', '--force');
    expect([renewed.code, renewed.stdout.includes('is healthy with the new')], renewed.stderr).to.deep.equal([0, true]);
    expect(await snapshot()).not.to.deep.equal(before);
    await rm(inVolume('quay-storage', 'sha256'), { recursive: true });
    const { code, stderr } = await call('restore', '/home/quay/backup.tar');
    expect([code, await snapshot()], stderr).to.deep.equal([0, before]);
    expect((await stat(inVolume('quay-storage', 'sha256/aa/blob'))).uid).to.equal(101000);
  });

  it('is uninstalled with its data', async () => {
    const { code, stderr } = await call('uninstall', '--remove-data', '--yes');
    expect(code, stderr).to.equal(0);
    for (const args of [
      ['ps', '-aq'],
      ['pod', 'ls', '-q'],
      ['volume', 'ls', '-q'],
      ['secret', 'ls', '-q'],
    ]) {
      expect((await user.runSuccessfully('podman', args)).trim(), args.join(' ')).to.equal('');
    }
    expect(await readdir(join(fixture.root, 'home/quay/.config/systemd/user'))).to.deep.equal([]);
    expect(await readdir(join(fixture.root, 'home/quay'))).not.to.include('quay-install');
  });
});
