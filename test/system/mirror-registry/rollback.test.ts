import { mkdirSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { healthy, type MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { requirePeer, run, runSuccessfully, type RunResult } from '../../support/peers.ts';

describe('rollBackRegistry', function () {
  let folder: string;
  let bundle: TestRegistryBundle;
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  const old = imagesOf('2.0.7').quay;

  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'rollback-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    bundle = await makeRegistryBundle(folder);
  });
  after(() => rm(folder, { recursive: true, force: true }));
  beforeEach(async () => {
    registry = await startMirrorRegistry();
    ({ host } = registry);
  });
  afterEach(() => registry.stop());

  const upgrade = (...args: string[]): Promise<RunResult> =>
    registry.call('upgrade', [`--bundle=${bundle.path}`, ...args]);

  /** Changes the database, as clients of the newer registry do. */
  function push(name: string): void {
    using database = new DatabaseSync(join(registry.fixture.root, 'srv/db/quay_sqlite.db'));
    database.prepare('INSERT INTO migration VALUES (?)').run(name);
  }

  function listRows(path: string): unknown[] {
    using database = new DatabaseSync(path, { readOnly: true });
    return database
      .prepare('SELECT image FROM migration')
      .all()
      .map(({ image }) => image);
  }

  const present = (): unknown[] => listRows(join(registry.fixture.root, 'srv/db/quay_sqlite.db'));

  it('stops nothing when podman no longer has the old images, and works once they are loaded again', async () => {
    expect((await upgrade()).code).to.equal(0);
    const [before, after] = [await registry.snapshot(), host.calls.length];
    const id = [...host.images].find(([name]) => name.startsWith('localhost/oc-mirror-registry/'))?.[1] ?? '';
    const names = [...host.images].filter(([, each]) => each === id).map(([name]) => name);
    host.removeImage(id);
    const { code, stderr } = await registry.call('rollback');
    expect([code, stderr.includes('no longer has')], stderr).to.deep.equal([1, true]);
    expect(host.calls.slice(after).filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    expect([host.running, await registry.snapshot()]).to.deep.equal([bundle.quay, before]);
    for (const name of names) host.images.set(name, id);
    expect((await registry.call('rollback')).code).to.equal(0);
    expect(host.running).to.equal(old);
  });

  it('keeps the old images by a name of its own, as long as their backup is kept', async () => {
    const kept = (): string[] =>
      [...host.images.keys()].filter((name) => name.startsWith('localhost/oc-mirror-registry/'));
    expect((await upgrade()).code).to.equal(0);
    expect(kept()).to.have.length(3);
    // The state after another image of the same name was loaded, and unused ones were pruned.
    host.images.delete(old);
    expect((await registry.call('rollback')).code).to.equal(0);
    expect([host.running, kept()]).to.deep.equal([old, []]);
    expect(host.images.get(old)).to.equal('old quay-app');
  });

  it('goes back after all unused images were pruned', async () => {
    expect((await upgrade()).code).to.equal(0);
    host.pruneImages();
    const { code, stderr } = await registry.call('rollback');
    expect([code, host.running], stderr).to.deep.equal([0, old]);
  });

  it('loads old images from the bundle that status names', async () => {
    expect((await upgrade()).code).to.equal(0);
    expect((await registry.call('upgrade', [`--bundle=${bundle.respun}`])).code).to.equal(0);
    const status = await registry.call('status');
    expect(status.stdout).to.include('it needs a bundle of release 2.0.11: rollback --bundle=FILE');
    for (const id of host.rollbackIds()) host.removeImage(id);
    const refused = await registry.call('rollback');
    expect([refused.code, refused.stderr.includes('--bundle')], refused.stderr).to.deep.equal([1, true]);
    const other = await registry.call('rollback', [`--bundle=${bundle.path}`, `--digest=sha256:${'0'.repeat(64)}`]);
    expect(other.code, other.stderr).to.equal(1);
    const { code, stderr } = await registry.call('rollback', [`--bundle=${bundle.path}`]);
    expect([code, host.running], stderr).to.deep.equal([0, bundle.quay]);
  });

  it('keeps the newer database, and lists beforehand the files that it restores', async () => {
    expect((await upgrade()).code).to.equal(0);
    push('pushed');
    const [before, calls] = [await registry.snapshot(true), host.calls.length];
    const shown = await registry.call('rollback', ['--dry-run']);
    expect(shown.code, shown.stderr).to.equal(0);
    expect(shown.stdout)
      .to.match(/before the upgrade of \d{4}-\d\d-\d\dT/)
      .and.to.include('quay-app.service')
      .and.to.include('restore the database')
      .and.to.include(`run ${old}`);
    expect(await registry.snapshot(true)).to.deep.equal(before);
    expect(host.calls.slice(calls).filter((line) => !/image|find/.test(line))).to.deep.equal([]);
    expect((await registry.call('rollback')).code).to.equal(0);
    expect(present()).to.deep.equal([]);
    const newer = registry.at('.oc-mirror-registry/newer-database/quay_sqlite.db');
    expect(listRows(newer)).to.deep.equal([bundle.quay, 'pushed']);
  });

  it('is finished once everything is restored, though the old certificate has expired since', async () => {
    expect((await upgrade()).code).to.equal(0);
    const [backup = ''] = await readdir(registry.at('.oc-mirror-registry/backups'));
    expect(backup).not.to.equal('');
    // The registry ran until the old certificate had expired.
    host.healthOf = (image) => (image === old ? { ...healthy, status: 503 } : healthy);
    const { code, stderr } = await registry.call('rollback');
    expect([code, stderr.includes('everything was restored')], stderr).to.deep.equal([4, true]);
    host.healthOf = () => healthy;
    push('pushed since');
    const status = await registry.call('status');
    expect(status.stdout).not.to.include('unfinished');
    const renewed = await registry.call('certs renew');
    expect(renewed.code, renewed.stderr).to.equal(0);
    expect(present()).to.deep.equal(['pushed since']);
  });

  it('restores nothing twice when the old registry does not start at first', async () => {
    expect((await upgrade()).code).to.equal(0);
    host.isBroken = true;
    expect((await registry.call('rollback')).code).to.equal(4);
    push('pushed since');
    const status = await registry.call('status');
    expect(status.stdout).to.include('the upgrade is unfinished (starting)');
    expect(JSON.parse((await registry.call('status', ['-o', 'json'])).stdout)).to.have.nested.property(
      'unfinished.phase',
      'starting',
    );
    host.isBroken = false;
    const { code, stderr } = await registry.call('rollback');
    expect(code, stderr).to.equal(0);
    expect([present(), host.running]).to.deep.equal([['pushed since'], old]);
  });

  it('starts the newer registry again when it fails before the first file is restored', async () => {
    expect((await upgrade()).code).to.equal(0);
    const stray = join(registry.fixture.root, 'srv/db/quay_sqlite.db-shm');
    const stop = 'systemctl stop quay-app.service';
    host.fails = (call) => {
      if (call === stop) mkdirSync(stray);
      return false;
    };
    const failed = await registry.call('rollback');
    expect([failed.code, failed.stderr.includes('is not a regular file')], failed.stderr).to.deep.equal([4, true]);
    const ours = host.calls.filter((line) => line.startsWith('systemctl'));
    expect(ours.slice(ours.lastIndexOf(stop))).to.deep.equal([stop, 'systemctl restart quay-app.service']);
    host.fails = () => false;
    await rm(stray, { recursive: true });
    expect((await registry.call('rollback')).code).to.equal(0);
    expect([host.running, present()]).to.deep.equal([old, []]);
  });

  it('gives an unfinished run up on --abandon, and keeps its backup', async () => {
    host.isBroken = true;
    expect((await upgrade()).code).to.equal(4);
    host.isBroken = false;
    const before = await registry.snapshot();
    const { code, stdout, stderr } = await registry.call('rollback', ['--abandon']);
    expect(code, stderr).to.equal(0);
    const [, backup = ''] = /is in (\S+);/.exec(stdout) ?? [];
    expect(await readdir(backup))
      .to.include('journal.json')
      .and.to.include('0.old');
    expect(await registry.snapshot()).to.deep.equal(before);
    expect((await registry.call('rollback', ['--abandon'])).stderr).to.include('is unfinished');
    expect((await upgrade('--force')).code).to.equal(0);
    expect(await readdir(backup)).to.include('journal.json');
  });

  it('stops nothing when its backup is corrupt', async () => {
    expect((await upgrade()).code).to.equal(0);
    const calls = host.calls.length;
    const [id = ''] = await readdir(registry.at('.oc-mirror-registry/backups'));
    const copy = registry.at(`.oc-mirror-registry/backups/${id}/quay_sqlite.db`);
    const bytes = await readFile(copy);
    await writeFile(copy, Buffer.from(bytes).fill(1, 2680, 2681));
    const flipped = await registry.call('rollback');
    expect([flipped.code, /database in .* is corrupt/.test(flipped.stderr)], flipped.stderr).to.deep.equal([1, true]);
    await writeFile(copy, bytes);
    await writeFile(registry.at(`.oc-mirror-registry/backups/${id}/0.old`), 'x');
    const refused = await registry.call('rollback');
    expect([refused.code, refused.stderr.includes('is corrupt')], refused.stderr).to.deep.equal([1, true]);
    await unlink(registry.at(`.oc-mirror-registry/backups/${id}/0.old`));
    expect((await registry.call('rollback')).stderr).to.include('is incomplete');
    expect(host.calls.slice(calls).filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    expect(host.running).to.equal(bundle.quay);
  });

  it('counts backups of databases apart from those of certificates', async () => {
    const before = await readFile(`${registry.fixture.root}/etc/systemd/system/quay-app.service`, 'utf8');
    expect((await upgrade()).code).to.equal(0);
    for (const _ of ['first', 'second', 'third']) {
      const { code, stderr } = await registry.call('certs renew', ['--force', '--keep-backups=1']);
      expect(code, stderr).to.equal(0);
    }
    expect(await readdir(registry.at('.oc-mirror-registry/backups'))).to.have.length(2);
    for (const _ of ['the renewal', 'the upgrade']) {
      const { code, stderr } = await registry.call('rollback');
      expect(code, stderr).to.equal(0);
    }
    expect(await readFile(`${registry.fixture.root}/etc/systemd/system/quay-app.service`, 'utf8')).to.equal(before);
  });

  describe('with a file that cannot be written', () => {
    before(async function () {
      await requireRoot(this);
      const probe = join(folder, 'probe');
      await writeFile(probe, '');
      const { code } = await run('chattr', ['+i', probe]);
      if (code !== 0) this.skip();
      await runSuccessfully('chattr', ['-i', probe]);
    });

    for (const path of ['etc/systemd/system/quay-app.service', 'etc/systemd/system']) {
      it(`stops nothing, on the way there and back: ${path} is immutable`, async () => {
        const place = join(registry.fixture.root, path);
        const before = await registry.snapshot();
        try {
          await runSuccessfully('chattr', ['+i', place]);
          const { code, stderr } = await upgrade();
          expect([code, stderr.includes('cannot be written')], stderr).to.deep.equal([1, true]);
          expect(await registry.snapshot()).to.deep.equal(before);
          expect(host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
          await runSuccessfully('chattr', ['-i', place]);
          expect((await upgrade()).code).to.equal(0);
          const calls = host.calls.length;
          await runSuccessfully('chattr', ['+i', place]);
          const back = await registry.call('rollback');
          expect([back.code, host.running], back.stderr).to.deep.equal([1, bundle.quay]);
          expect(host.calls.slice(calls).filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
        } finally {
          await runSuccessfully('chattr', ['-i', place]);
        }
      });
    }

    it('writes changed files only: a renewal of certificates does not touch the units', async () => {
      const place = join(registry.fixture.root, 'etc/systemd/system/quay-app.service');
      await runSuccessfully('chattr', ['+i', place]);
      try {
        expect((await registry.call('certs renew')).code).to.equal(0);
        expect((await registry.call('rollback')).code).to.equal(0);
      } finally {
        await runSuccessfully('chattr', ['-i', place]);
      }
    });
  });
});
