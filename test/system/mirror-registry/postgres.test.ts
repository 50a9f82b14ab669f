import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { healthy, type MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import type { Postgres } from '../../fakes/mirror-registry/postgresServer.ts';
import { requirePeer, type RunResult } from '../../support/peers.ts';

describe('a registry with PostgreSQL', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl', 'pg_ctlcluster');
  let folder: string;
  let file: string;
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  let postgres: Postgres;
  let original: Record<string, string>;
  const [old, fresh] = [imagesOf('1.3.0').quay, imagesOf('1.3.10').quay];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'postgres-backup-'));
    file = join(folder, 'registry.tar');
    registry = await startMirrorRegistry({ age: '1.3.0' });
    ({ host } = registry);
    postgres = host.postgres!;
    host.images.set(fresh, 'new-quay-app');
    original = await snapshot();
  });
  afterEach(async () => {
    await registry.stop();
    await rm(folder, { recursive: true, force: true });
  });

  /** All files except those of the database, which change while the server runs. */
  async function snapshot(): Promise<Record<string, string>> {
    const files = Object.entries(await registry.snapshot());
    return Object.fromEntries(files.filter(([path]) => !path.startsWith('/srv/db/')));
  }

  const upgrade = (killedAt?: string): Promise<RunResult> => registry.call('upgrade', [`--version=1.3.10`], killedAt);
  const rows = (): Promise<string[]> => postgres.query('SELECT image FROM migration');

  const changes = (): string[] => host.calls.filter((line) => /^systemctl (?!show)/.test(line));

  /** Everything in the database, as pg_dump prints it. */
  async function tables(): Promise<string> {
    const { code, stdout, stderr } = await postgres.runClient('pg_dump', ['--username=user', '--dbname=quay']);
    expect(code, stderr).to.equal(0);
    return stdout.replace(/^\\(?:un)?restrict .*$/gm, '');
  }

  async function backUp(): Promise<void> {
    const { code, stderr } = await registry.call('backup', [`--output=${file}`]);
    expect(code, stderr).to.equal(0);
  }

  /** The server started on the files that it left when it was stopped first. */
  async function expectRestored(): Promise<void> {
    expect([await snapshot(), host.running, await rows()]).to.deep.equal([original, old, []]);
    expect(postgres.starts.at(-1)).to.equal(postgres.stops[0]);
  }

  it('is upgraded within a minor version of Quay, and rolled back byte for byte', async () => {
    const { code, stderr } = await upgrade();
    expect(code, stderr).to.equal(0);
    expect([host.running, await rows()]).to.deep.equal([fresh, [fresh]]);
    const stops = host.calls.filter((line) => /^systemctl (?:stop|restart)/.test(line));
    expect(stops.map((line) => line.replace(/^systemctl|\.service$/g, '').trim())).to.deep.equal([
      'stop quay-app',
      'stop quay-postgres',
      'restart quay-postgres',
      'restart quay-app',
    ]);
    const back = await registry.call('rollback');
    expect(back.code, back.stderr).to.equal(0);
    await expectRestored();
    expect(await readdir(registry.at('.oc-mirror-registry/newer-database/postgres/userdata'))).to.include('PG_VERSION');
    // A second one replaces the kept newer database.
    postgres.stops.length = 0;
    expect((await upgrade()).code).to.equal(0);
    expect((await registry.call('rollback')).code).to.equal(0);
    await expectRestored();
  });

  it('is restored when the new Quay is not healthy, and when PostgreSQL does not start', async () => {
    host.healthOf = (image) => (image === fresh ? { ...healthy, status: 503 } : healthy);
    const ill = await upgrade();
    expect(ill.code, ill.stderr).to.equal(3);
    await expectRestored();
    host.healthOf = () => healthy;
    postgres.isBroken = true;
    const stopped = await upgrade();
    expect(stopped.code, stopped.stderr).to.equal(4);
    postgres.isBroken = false;
    const back = await registry.call('certs renew', ['--force']);
    expect(back.code, back.stderr).to.equal(0);
    expect([host.running, await rows()]).to.deep.equal([old, []]);
  });

  it('resumes after a kill before the database is copied and after the restart, and can be rolled back', async () => {
    for (const step of ['rename journal.json', 'rename upgrade.json']) {
      postgres.stops.length = 0;
      const killed = await upgrade(step);
      expect(killed.code, killed.stderr).to.equal(-1);
      const again = await upgrade();
      expect([again.code, host.running], again.stderr).to.deep.equal([0, fresh]);
      const back = await registry.call('rollback');
      expect(back.code, back.stderr).to.equal(0);
      await expectRestored();
    }
  });

  it('is backed up while it runs, and restored', async () => {
    await postgres.query(
      "INSERT INTO migration VALUES ('before'); CREATE TABLE extra (id SERIAL); CREATE VIEW seen AS SELECT 1",
    );
    const before = await tables();
    const planned = await registry.call('backup', [`--output=${file}`, '--dry-run']);
    expect([planned.code, planned.stdout.includes('keep running')], planned.stderr).to.deep.equal([0, true]);
    await backUp();
    expect([changes(), await snapshot()]).to.deep.equal([[], original]);
    expect(await readdir(registry.at('.oc-mirror-registry'))).to.deep.equal([]);

    await postgres.query(
      "UPDATE migration SET image = 'after'; DROP VIEW seen; DROP TABLE extra; DELETE FROM repository; CREATE " +
        'TABLE newer (id SERIAL); CREATE SEQUENCE alone',
    );
    const changed = await tables();
    const { code, stdout, stderr } = await registry.call('restore', [file]);
    expect([code, stdout.includes('is healthy as localhost')], stderr).to.deep.equal([0, true]);
    expect([await tables(), await snapshot(), host.running]).to.deep.equal([before, original, old]);
    const back = await registry.call('rollback');
    expect([back.code, await tables()], back.stderr).to.deep.equal([0, changed]);
  });

  it('keeps its database if a restore fails or is killed', async () => {
    await backUp();
    await postgres.query("INSERT INTO migration VALUES ('after')");
    const changed = await tables();
    host.fails = (call) => call.includes('psql');
    const failed = await registry.call('restore', [file]);
    host.fails = () => false;
    expect([failed.code, await tables(), await snapshot()], failed.stderr).to.deep.equal([3, changed, original]);
    expect(postgres.starts.at(-1)).to.equal(postgres.stops[0]);
    // Before the database is copied, and after it is replaced.
    for (const step of ['rename journal.json', 'before rename state.json']) {
      const killed = await registry.call('restore', [file], step);
      expect(killed.code, killed.stderr).to.equal(-1);
      const again = await registry.call('restore', [file]);
      expect([again.code, await rows()], again.stderr).to.deep.equal([0, []]);
      const back = await registry.call('rollback');
      expect([back.code, await tables(), await snapshot()], back.stderr).to.deep.equal([0, changed, original]);
    }
  });

  it('moves to another host with PostgreSQL, whose password stays', async () => {
    await postgres.query("INSERT INTO migration VALUES ('moved')");
    await backUp();
    await using other = await startMirrorRegistry({ age: '1.3.10' });
    const config = other.at('quay-config/config.yaml');
    await writeFile(config, (await readFile(config, 'utf8')).replace('user:password@', 'user:another@'));
    const moved = await other.call('restore', [file, '--hostname=new.example.com']);
    expect(moved.code, moved.stderr).to.equal(0);
    expect(await other.host.postgres?.query('SELECT image FROM migration')).to.deep.equal(['moved']);
    expect(await readFile(config, 'utf8'))
      .to.include('postgresql://user:another@localhost/quay')
      .and.to.include(`new.example.com:${other.host.port}`);
  });

  it('is not restored onto SQLite', async () => {
    await backUp();
    await using other = await startMirrorRegistry();
    const before = await other.snapshot();
    for (const more of [['--dry-run'], []]) {
      const { code, stderr } = await other.call('restore', [file, '--hostname=new.example.com', ...more]);
      expect([code, stderr.includes('is of PostgreSQL'), stderr.includes('2.x')], stderr).to.deep.equal([
        1,
        true,
        true,
      ]);
    }
    expect(await other.snapshot()).to.deep.equal(before);
    expect(other.host.calls.filter((line) => /^systemctl (?!show)/.test(line))).to.deep.equal([]);
  });

  it('is not restored into an older PostgreSQL, and nothing stops', async () => {
    const withVersion = (version: string) => (text: string) =>
      text.replace(/^(-- Dumped from database version ).*$/m, `$1${version}`);
    host.dumpOf = withVersion('99.1 (Debian 99.1-1)');
    await backUp();
    const before = changes().length;
    for (const more of [['--dry-run'], []]) {
      const { code, stderr } = await registry.call('restore', [file, '--hostname=localhost', ...more]);
      expect([code, stderr.includes('is of PostgreSQL 99.1, which is newer than')], stderr).to.deep.equal([1, true]);
    }
    expect([changes().length, await snapshot()]).to.deep.equal([before, original]);
    host.dumpOf = withVersion('9.6.24');
    await rm(file);
    await backUp();
    const older = await registry.call('restore', [file, '--hostname=localhost', '--dry-run']);
    expect(older.code, older.stderr).to.equal(0);
  });

  it('is not upgraded to another minor version, nor backed up without its own PostgreSQL', async () => {
    const other = fresh.replace('3.8.14', '3.9.1');
    const refused = await registry.call('upgrade', [`--target-quay=${other}`]);
    expect([refused.code, refused.stderr.includes('keeps its database in PostgreSQL')]).to.deep.equal([1, true]);
    await postgres.stop();
    const stopped = await registry.call('backup', [`--output=${file}`]);
    expect([stopped.code, stopped.stderr.includes('does not answer')], stopped.stderr).to.deep.equal([1, true]);
    const config = registry.at('quay-config/config.yaml');
    const text = await readFile(config, 'utf8');
    await writeFile(config, text.replace('@localhost/', '@db.example.com/'));
    const external = await registry.call('backup', [`--output=${file}`]);
    expect([external.code, external.stderr.includes('not the one of its installer')]).to.deep.equal([1, true]);
    await writeFile(config, text);
    expect([await snapshot(), changes(), existsSync(file)]).to.deep.equal([original, [], false]);
  });
});
