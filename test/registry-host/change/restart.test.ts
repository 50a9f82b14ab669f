import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { makeRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { RecordedPostgres } from '../../fakes/mirror-registry/recordedPostgres.ts';
import { requireAccount, requirePeer, runSuccessfully } from '../../support/peers.ts';

describe('a registry whose container runs although its unit is stopped', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl');
  const message = 'the container quay-app runs, although its unit is stopped';
  const advice = 'Stop it: podman stop quay-app.';
  let folder: string;
  let registry: RunningRegistry;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'running-'));
    registry = await startMirrorRegistry();
  });
  afterEach(async () => {
    await registry.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** Runs a command, which must fail and say how to stop the container. */
  async function fail(command: string, args: readonly string[], expected: number): Promise<string> {
    const { code, stderr } = await registry.call(command, args);
    expect(code, stderr).to.equal(expected);
    expect(stderr).to.include(message).and.to.include(advice);
    return stderr;
  }

  async function succeed(command: string, args: readonly string[] = []): Promise<void> {
    const { code, stderr } = await registry.call(command, args);
    expect(code, stderr).to.equal(0);
  }

  async function stopContainer(): Promise<void> {
    await runSuccessfully(join(registry.fixture.root, 'programs/podman'), ['stop', 'quay-app']);
  }

  function rows(): unknown[] {
    using database = new DatabaseSync(join(registry.fixture.root, 'srv/db/quay_sqlite.db'), { readOnly: true });
    return database
      .prepare('SELECT image FROM migration')
      .all()
      .map(({ image }) => image);
  }

  it('has no backup while its unit is inactive, until the container is stopped', async () => {
    const backup = [`--output=${join(folder, 'registry.tar')}`];
    registry.host.isForeign = true;
    await fail('backup', backup, 1);
    expect(await readdir(folder)).to.deep.equal([]);
    await stopContainer();
    await succeed('backup', backup);
  });

  it('has no backup if the stop of its active unit has no effect, and its unit runs again afterwards', async () => {
    const { host } = registry;
    host.fails = (call) => {
      host.isForeign ||= call === 'systemctl stop quay-app.service';
      return false;
    };
    await fail('backup', [`--output=${join(folder, 'registry.tar')}`], 1);
    expect(await readdir(folder)).to.deep.equal([]);
    expect(host.isForeign).to.equal(false);
  });

  it('is not changed by an upgrade, and the next run upgrades it', async () => {
    const bundle = await makeRegistryBundle(folder);
    const before = await registry.snapshot();
    registry.host.isForeign = true;
    const stderr = await fail('upgrade', [`--bundle=${bundle.path}`], 3);
    expect(stderr).to.include('The registry is as it was before.');
    expect(await registry.snapshot()).to.deep.equal(before);
    await succeed('upgrade', [`--bundle=${bundle.path}`]);
  });

  it('keeps its database in a restore, and the next run restores it', async () => {
    const file = join(folder, 'registry.tar');
    await succeed('backup', [`--output=${file}`]);
    registry.host.isForeign = true;
    // A copy of the open database would not have it, and the replacement would lose it.
    registry.host.lastRow = 'written at its end';
    await fail('restore', [file], 3);
    expect(rows()).to.deep.equal(['written at its end']);
    await succeed('restore', [file]);
    expect(rows()).to.deep.equal([]);
  });

  it('keeps its newer database in a rollback, and the next run rolls it back', async () => {
    const bundle = await makeRegistryBundle(folder);
    await succeed('upgrade', [`--bundle=${bundle.path}`]);
    registry.host.isForeign = true;
    const stderr = await fail('rollback', [], 4);
    expect(stderr).to.include("Then run 'rollback'.");
    expect(rows()).to.deep.equal([bundle.quay]);
    await stopContainer();
    await succeed('rollback');
    expect(rows()).to.deep.equal([]);
  });
});

describe('restartUnits of a registry whose database moves to SQLite', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl', 'pg_ctlcluster');

  it('restarts PostgreSQL only on the way back, even if the unit of Quay does not require it', async function () {
    requireAccount(this);
    await using registry = await startMirrorRegistry({ age: '1.3.11' }, 8443, RecordedPostgres);
    const { host, fixture } = registry;
    for (const image of Object.values(imagesOf('2.0.11'))) host.images.set(image, `new-${image}`);
    host.images.set(imagesOf('1.3.11').postgres, 'old-quay-postgres');
    host.secrets.set('pgdb_pass', 'password');
    const path = '/etc/systemd/system/quay-app.service';
    const text = await readFile(join(fixture.root, path), 'utf8');
    await fixture.write(path, text.replace(/^(Requires=.*) quay-postgres\.service/m, '$1'));
    const { code, stderr } = await registry.call('upgrade', ['--version=2.0.11']);
    expect(code, stderr).to.equal(0);
    const restarts = (): number =>
      host.calls.filter((call) => call === 'systemctl restart quay-postgres.service').length;
    // To read its tables.
    expect(restarts()).to.equal(1);
    const back = await registry.call('rollback');
    expect([back.code, restarts(), host.postgres?.isRunning], back.stderr).to.deep.equal([0, 2, true]);
  });
});
