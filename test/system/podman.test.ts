import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeInstallerArchive } from '../fakes/mirror-registry/installerArchive.ts';
import { makeFixture, type Fixture } from '../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates } from '../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { imagesOf } from '../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { PodmanHost } from '../fakes/mirror-registry/podmanHost.ts';
import { interpreter } from '../fakes/mirror-registry/standInImage.ts';
import { makeStandInReleases, type StandInReleases } from '../fakes/mirror-registry/standInReleases.ts';
import { requireRoot } from '../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully, type RunResult } from '../support/peers.ts';
import { executableOf } from '../support/program/executables.ts';

const executable = executableOf('oc-adm_mirror_registry');

// The command lines of the units, run by podman, with images that stand in for those of Red Hat.
describe('a mirror registry under podman', function () {
  requirePeer(this, 'podman', 'skopeo', 'openssl', 'curl', 'python3');
  let host: PodmanHost;
  let fixture: Fixture;
  let bundle: string;
  const old = imagesOf('2.0.7');
  let images: StandInReleases['fresh'];
  const retrying = ['-ksS', '--retry', '20', '--retry-all-errors', '--retry-delay', '1', 'https://localhost:18443/v2/'];

  before(async function () {
    await requireRoot(this);
    host = await PodmanHost.start();
    ({ fresh: images, bundle } = await makeStandInReleases(host.folder, (archive) =>
      host.runSuccessfully('podman', ['load', '--quiet', '-i', archive]),
    ));
    const probe = await host.run('podman', ['run', '--rm', `--entrypoint=${interpreter}`, old.quay, '--version']);
    if (probe.code !== 0) {
      console.error(`SKIPPED “a mirror registry under podman”: podman runs no containers here: ${probe.stderr}`);
      this.skip();
    }
    fixture = await makeFixture({
      age: '2.0.7',
      hostname: 'localhost:18443',
      publish: '127.0.0.1:18443:8443',
      quayRoot: '/mnt/quay-install',
    });
    await installCertificates(fixture, { host: 'localhost', days: 20, caDays: 100 });
    await mkdir(join(fixture.root, 'mnt'), { recursive: true });
    await host.mount(join(fixture.root, 'etc/systemd/system'), '/etc/systemd/system');
    await host.mount(join(fixture.root, 'mnt'), '/mnt');
    const secret = join(host.folder, 'secret');
    await writeFile(secret, 'strongpassword');
    await host.runSuccessfully('podman', ['secret', 'create', 'redis_pass', secret]);
    for (const unit of ['quay-pod', 'quay-redis', 'quay-app']) {
      await host.runSuccessfully('systemctl', ['restart', `${unit}.service`]);
      // systemd restarts a container that finds no pod only after 30 s.
      await host.runSuccessfully('sh', ['-c', 'until podman pod exists quay-pod; do sleep 0.1; done']);
    }
    await host.runSuccessfully('curl', retrying);
  });
  after(async () => {
    // There are none if the suite is skipped.
    await (host as PodmanHost | undefined)?.stop();
    await (fixture as Fixture | undefined)?.remove();
  });

  /** Waits longer for a healthy registry than a busy machine needs. */
  const call = (...args: string[]): Promise<RunResult> => callWithin(200, ...args);

  const callWithin = (seconds: number, ...args: string[]): Promise<RunResult> =>
    host.run(process.execPath, [executable, ...args, `--health-timeout=${seconds}`]);

  const runningImages = async (): Promise<string[]> =>
    (await host.runSuccessfully('podman', ['ps', '--format', '{{.Image}}'])).trim().split('\n').sort();

  /** Returns the versions of Quay that used the database. */
  function listMigrations(): unknown[] {
    using database = new DatabaseSync(join(host.folder, 'volumes/sqlite-storage/_data/quay_sqlite.db'));
    return database
      .prepare('SELECT DISTINCT image FROM migration')
      .all()
      .map(({ image }) => image);
  }

  it('is upgraded by the units’ own podman lines, without a network, and rolled back', async () => {
    expect(await runningImages()).to.deep.equal([old.pause, old.quay, old.redis].sort());
    const { code, stdout, stderr } = await call('upgrade', `--bundle=${bundle}`);
    expect(code, stderr).to.equal(0);
    expect(stdout).to.include('Done: the registry is healthy.');
    expect(await runningImages()).to.deep.equal(Object.values(images).sort());
    const url = 'https://localhost:18443/v2/';
    const root = '/mnt/quay-install/quay-rootCA/rootCA.pem';
    expect(await host.runSuccessfully('curl', ['-sS', '--cacert', root, url])).to.equal('{}');

    expect(listMigrations()).to.deep.equal(['v3.12.10', 'v3.12.18']);
    const names = await host.runSuccessfully('podman', ['images', '--format', '{{.Repository}}']);
    expect(names).not.to.include('openshift/release');
    const again = await call('upgrade', `--bundle=${bundle}`);
    expect(again.stdout, again.stderr).to.match(/^The mirror registry is up to date: there is nothing to do\.\n/);

    await host.runSuccessfully('podman', ['image', 'prune', '--all', '--force']);
    const back = await call('rollback');
    expect(back.code, back.stderr).to.equal(0);
    expect((await host.runSuccessfully('podman', ['ps', '--all', '--format', '{{.Names}}'])).trim()).not.to.include(
      'rollback',
    );
    expect(listMigrations()).to.deep.equal(['v3.12.10']);
    expect(await runningImages()).to.deep.equal([old.pause, old.quay, old.redis].sort());
  });

  it('brings back images that podman no longer has, and moves no name', async () => {
    const load = async (): Promise<string[]> => {
      const { code, stdout, stderr } = await host.run(process.execPath, [
        executable,
        'bundle',
        'load',
        bundle,
        '-ojson',
      ]);
      expect(code, stderr).to.equal(0);
      return (JSON.parse(stdout) as { images: { outcome: string }[] }).images.map(({ outcome }) => outcome);
    };
    const idOf = (image: string): Promise<string> =>
      host.runSuccessfully('podman', ['image', 'inspect', '--format', '{{.Id}}', image]);
    await load();
    const before = await idOf(images.quay);
    await host.runSuccessfully('podman', ['rmi', images.quay]);
    await host.runSuccessfully('podman', ['tag', old.redis, images.redis]);
    expect(await load()).to.deep.equal(['loaded', 'unnamed', 'present']);
    expect([await idOf(images.quay), await idOf(images.redis)]).to.deep.equal([before, await idOf(old.redis)]);
    const digest = `--digest=sha256:${'0'.repeat(64)}`;
    const other = await host.run(process.execPath, [executable, 'bundle', 'load', bundle, digest]);
    expect([other.code, other.stderr.includes('digest-mismatch')], other.stderr).to.deep.equal([1, true]);
    for (const image of Object.values(images)) await host.runSuccessfully('podman', ['untag', image, image]);
  });

  it('imports the files of an image out of the installer’s archive', async () => {
    const renamed = 'registry.access.redhat.com/ubi8/pause:8.10-7';
    const archive = await makeInstallerArchive(host.folder, { quay: old.quay, redis: old.redis, pause: renamed });
    const { code, stderr } = await call('upgrade', `--bundle=${archive}`, '--no-restart');
    expect(code, stderr).to.equal(0);
    const format = '{{json .Config.Entrypoint}} {{json .Config.Cmd}}';
    const found = await host.runSuccessfully('podman', ['image', 'inspect', '--format', format, renamed]);
    expect(found.trim()).to.equal('["sleep"] ["infinity"]');
    expect((await call('rollback', '--no-restart')).code).to.equal(0);
  });

  it('names the policy to change if the host rejects images without a signature', async () => {
    const policy = join(host.folder, 'policy.json');
    await writeFile(policy, '{"default": [{"type": "reject"}]}');
    await host.mount(policy, '/etc/containers/policy.json');
    try {
      const { code, stderr } = await call('upgrade', `--bundle=${bundle}`);
      expect(code, stderr).to.equal(1);
      expect(stderr).to.include('rejected by policy').and.to.include('insecureAcceptAnything');
      const [transports = ''] = /"transports": \{.*\}(?=\.$)/m.exec(stderr) ?? [];
      await writeFile(policy, `{"default": [{"type": "reject"}], ${transports}}`);
      const allowed = await call('upgrade', `--bundle=${bundle}`);
      expect(allowed.code, allowed.stderr).to.equal(0);
      expect((await call('rollback')).code).to.equal(0);
    } finally {
      await host.runSuccessfully('umount', ['/etc/containers/policy.json']);
    }
  });

  it('rolls back by itself if the new one is not healthy', async () => {
    const unit = join(fixture.root, 'etc/systemd/system/quay-app.service');
    const before = await readFile(unit, 'utf8');
    await writeFile(join(fixture.root, 'mnt/quay-install/quay-config/ill-v3.12.18'), '');
    const { code, stderr } = await callWithin(30, 'upgrade', `--bundle=${bundle}`);
    expect(code, stderr).to.equal(3);
    expect(await readFile(unit, 'utf8')).to.equal(before);
    expect(listMigrations()).to.deep.equal(['v3.12.10']);
    expect(await runningImages()).to.deep.equal([old.pause, old.quay, old.redis].sort());
  });

  it('is neither backed up nor upgraded while a person’s container runs, which its unit then replaces', async () => {
    await host.runSuccessfully('systemctl', ['stop', 'quay-app.service']);
    const own = ['--detach', '--replace', '--name=quay-app', old.pause];
    await host.runSuccessfully('podman', ['run', ...own]);
    const file = join(host.folder, 'unwritten.tar');
    const { code, stderr } = await host.run(process.execPath, [executable, 'backup', `--output=${file}`]);
    expect([code, stderr.includes('Stop it: podman stop quay-app.')], stderr).to.deep.equal([1, true]);
    expect(await readdir(host.folder)).not.to.include('unwritten.tar');
    // It is not healthy.
    const upgrade = await call('upgrade', `--bundle=${bundle}`, '--force');
    expect([upgrade.code, upgrade.stderr.includes('podman stop quay-app')], upgrade.stderr).to.deep.equal([3, true]);
    await host.runSuccessfully('curl', retrying);
    expect(await runningImages()).to.deep.equal([old.pause, old.quay, old.redis].sort());
  });

  it('is backed up with the content of its images, and restored', async () => {
    const images = join(host.folder, 'volumes/quay-storage/_data');
    await mkdir(join(images, 'sha256/aa'), { recursive: true });
    await writeFile(join(images, 'sha256/aa/blob'), 'content');
    await runSuccessfully('chown', ['-R', '1001:0', images]);
    const file = join(host.folder, 'backup.tar');
    const backup = await host.run(process.execPath, [executable, 'backup', `--output=${file}`, '--images']);
    expect(backup.code, backup.stderr).to.equal(0);
    const rows = listMigrations();
    {
      using database = new DatabaseSync(join(host.folder, 'volumes/sqlite-storage/_data/quay_sqlite.db'));
      database.exec("INSERT INTO migration VALUES ('pushed since')");
    }
    await rm(join(images, 'sha256'), { recursive: true });
    const { code, stderr } = await call('restore', file);
    expect(code, stderr).to.equal(0);
    expect(listMigrations()).to.deep.equal(rows);
    const { uid, gid } = await stat(join(images, 'sha256/aa/blob'));
    expect([uid, gid]).to.deep.equal([1001, 0]);
    expect(await runningImages()).to.deep.equal([old.pause, old.quay, old.redis].sort());
    const back = await call('rollback');
    expect([back.code, listMigrations()], back.stderr).to.deep.equal([0, [...rows, 'pushed since']]);
  });

  it('is uninstalled, and leaves nothing of itself on request', async () => {
    const list = async (...args: string[]): Promise<string[]> =>
      (await host.runSuccessfully('podman', [...args, '--format', '{{.Name}}']))
        .split('\n')
        .filter((name) => name !== '');
    await host.runSuccessfully('podman', ['volume', 'create', 'another']);
    const kept = await host.run(process.execPath, [executable, 'uninstall', '--dry-run']);
    expect(kept.stdout, kept.stderr)
      .to.include('would remove pod quay-pod')
      .and.to.include('would keep volume sqlite-storage');
    const { code, stderr } = await host.run(process.execPath, [executable, 'uninstall', '--remove-data', '--yes']);
    expect(code, stderr).to.equal(0);
    expect(await list('pod', 'ls')).to.deep.equal([]);
    expect(await list('volume', 'ls')).to.deep.equal(['another']);
    expect(await list('secret', 'ls')).to.deep.equal([]);
    expect((await host.runSuccessfully('podman', ['ps', '-aq'])).trim()).to.equal('');
    const names = await host.runSuccessfully('podman', ['images', '--format', '{{.Repository}}']);
    expect(names).not.to.include('oc-mirror-registry');
    expect(await readdir(join(fixture.root, 'etc/systemd/system'))).to.deep.equal([]);
    expect(await readdir(join(fixture.root, 'mnt'))).to.deep.equal([]);
  });
});
