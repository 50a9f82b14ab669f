import { closeSync, existsSync, openSync, writeSync } from 'node:fs';
import { mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { healthy, type MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { PostgresServer, type Postgres } from '../../fakes/mirror-registry/postgresServer.ts';
import { RecordedPostgres } from '../../fakes/mirror-registry/recordedPostgres.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { requirePeer, runSuccessfully, type RunResult } from '../../support/peers.ts';

describe('a registry with PostgreSQL that is upgraded to SQLite', function () {
  requirePeer(this, 'docker-registry', 'openssl', 'curl', 'pg_ctlcluster');
  const started: RunningRegistry[] = [];
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  let postgres: Postgres;
  let original: unknown;
  const old = imagesOf('1.3.11').quay;
  const { postgres: _, ...latest } = imagesOf('2.0.11');

  const stopAll = (): Promise<unknown> => Promise.all(started.splice(0).map((each) => each.stop()));
  afterEach(stopAll);

  /** Starts a registry of a release. */
  async function start(age: string, Server: new (folder: string) => Postgres = PostgresServer): Promise<void> {
    registry = await startMirrorRegistry({ age }, 8443, Server);
    started.push(registry);
    ({ host } = registry);
    postgres = host.postgres!;
    addImages(host);
    original = await describeHost();
  }

  /** Loads the new images, and adds what the installer made. */
  function addImages({ images, secrets }: MirrorRegistryHost): void {
    for (const image of Object.values(latest)) images.set(image, `new-${image}`);
    images.set(imagesOf('1.3.11').postgres, 'old-quay-postgres');
    secrets.set('pgdb_pass', 'password');
  }

  /** Everything of the host except the files of PostgreSQL, which change while it runs. */
  async function describeHost(of = registry): Promise<unknown> {
    const files = Object.entries(await of.snapshot()).filter(([path]) => !path.startsWith('/srv/db/'));
    const { volumes, secrets, enabled, running, images } = of.host;
    return { files, running, held: [volumes, secrets, enabled, images].map((each) => [...each].sort()) };
  }

  const upgrade = (args: readonly string[] = [], killedAt?: string): Promise<RunResult> =>
    registry.call('upgrade', ['--version=2.0.11', ...args], killedAt);
  const sqlite = (): string => join(registry.fixture.root, 'srv/volumes/sqlite-storage/_data/quay_sqlite.db');
  const units = (): string => join(registry.fixture.root, 'etc/systemd/system');

  /** The host, the files on which PostgreSQL started last, and the version of its schema. */
  const describeRestored = async () => ({
    host: await describeHost(),
    files: postgres.starts.at(-1),
    schema: await postgres.query('SELECT version_num FROM alembic_version'),
  });

  /** PostgreSQL started on the files that it left when it was stopped first. */
  function expectRestored(restored: Awaited<ReturnType<typeof describeRestored>>): void {
    expect(restored.host).to.deep.equal(original);
    expect(restored.files).to.equal(postgres.stops[0]);
    expect(restored.schema).to.deep.equal(['quay38']);
  }

  function listRows(table: string, columns: string): unknown[][] {
    using database = new DatabaseSync(sqlite(), { readOnly: true });
    const query = database.prepare(`SELECT ${columns} FROM ${table} ORDER BY id`);
    query.setReadBigInts(true);
    return query.all().map((row) => Object.values(row));
  }

  describe('step by step', () => {
    let planned: Awaited<ReturnType<typeof plan>>;
    let upgraded: Awaited<ReturnType<typeof upgradeFirst>>;
    let restored: Awaited<ReturnType<typeof rollBack>>;
    let refused: Awaited<ReturnType<typeof rollBackTooLate>>;
    let dropped: Awaited<ReturnType<typeof dropBackup>>;
    before(async () => {
      await start('1.3.11');
      planned = await plan();
      upgraded = await upgradeFirst();
      restored = await rollBack();
      refused = await rollBackTooLate();
      dropped = await dropBackup();
      await stopAll();
    });

    const state = (path = ''): Promise<string[]> => readdir(registry.at(join('.oc-mirror-registry', path)));
    const plan = async () => ({
      result: await registry.call('plan', ['--version=2.0.11', '--diff']),
      host: await describeHost(),
    });
    const upgradeFirst = async () => ({
      result: await upgrade(),
      running: [host.running, postgres.isRunning, [...host.enabled]],
      rows: {
        user: listRows('"user"', 'username, verified, creation_date, maximum_queued_builds_count, company'),
        repository: listRows('repository', 'description, trust_enabled'),
        role: listRows('role', 'name'),
        quota: listRows('quota', 'size'),
      },
      unit: await readFile(`${units()}/quay-app.service`, 'utf8'),
      config: await readFile(registry.at('quay-config/config.yaml'), 'utf8'),
      state: await state(),
      status: await registry.call('status'),
      again: await upgrade(),
    });
    const rollBack = async () => ({
      result: await registry.call('rollback'),
      ...(await describeRestored()),
      kept: await state('newer-database'),
    });
    /** Upgrades again, and rolls back after a kill while PostgreSQL is removed. */
    const rollBackTooLate = async () => {
      const again = await upgrade();
      const killed = await registry.call('rollback', ['--drop-backups', '--yes'], 'rm quay-postgres.service');
      const calls = host.calls.length;
      const result = await registry.call('rollback');
      return { again, killed, result, calls: host.calls.slice(calls) };
    };
    const dropBackup = async () => ({
      result: await registry.call('rollback', ['--drop-backups', '--yes']),
      units: await readdir(units()),
      secrets: [...host.secrets.keys()],
      status: await registry.call('status'),
      rollback: await registry.call('rollback'),
      running: host.running,
      again: await upgrade(),
    });

    it('is planned with the change of its database', () => {
      const { stdout, stderr } = planned.result;
      expect(stdout, stderr)
        .to.include('move the database from PostgreSQL to SQLite in sqlite-storage')
        .and.to.include('disable quay-postgres.service')
        .and.not.to.include('restart quay-postgres');
    });

    it('is not changed by a plan', () => {
      expect(planned.host).to.deep.equal(original);
    });

    it('runs the new Quay without PostgreSQL', () => {
      expect(upgraded.result.code, upgraded.result.stderr).to.equal(0);
      expect(upgraded.running).to.deep.equal([latest.quay, false, []]);
    });

    it('has the same rows in SQLite', () => {
      expect(upgraded.rows).to.deep.equal({
        user: [
          ['init', 1n, '2023-01-02 03:04:05.678901', 9007199254740993n, null],
          ['t', 0n, null, null, ''],
          [`O'Brien "x"`, 1n, '2024-02-29 00:00:00', -1n, 'true'],
        ],
        repository: [
          ['first line\n\n-- not a comment\n\\.\n\ttab and back\\slash \r', 1n],
          ['grüße, 世界 🚀', 0n],
          ['\\N', 0n],
          [null, 0n],
        ],
        role: [['admin'], ['read']],
        quota: [[1099511627776n]],
      });
    });

    it('has the volume of SQLite, its own options and no PostgreSQL in the unit of Quay', () => {
      expect(upgraded.unit)
        .to.include('-v sqlite-storage:/sqlite:Z,U')
        .and.to.include('--memory=4g')
        .and.not.to.include('postgres');
    });

    it('has the address of SQLite in the configuration of Quay', () => {
      expect(upgraded.config)
        .to.include('DB_URI: "sqlite:////sqlite/quay_sqlite.db"')
        .and.not.to.include('postgresql:');
    });

    it('keeps a backup, and no other file of the upgrade', () => {
      expect(upgraded.state).to.have.members(['backups', 'state.json', 'written.json']);
    });

    it('says in status that PostgreSQL is not used', () => {
      expect(upgraded.status.stdout)
        .to.include('quay-postgres.service is not used')
        .and.not.to.include('changed since then');
    });

    it('is not changed by a second upgrade', () => {
      expect(upgraded.again.stdout).to.include('there is nothing to do');
    });

    it('is restored byte for byte by a rollback', () => {
      expect(restored.result.code, restored.result.stderr).to.equal(0);
      expectRestored(restored);
    });

    it('keeps the database of SQLite aside after a rollback', () => {
      expect(restored.kept).to.deep.equal(['quay_sqlite.db']);
    });

    it('is upgraded again after a rollback', () => {
      expect(refused.again.code, refused.again.stderr).to.equal(0);
    });

    it('is not rolled back while PostgreSQL is half removed', () => {
      const { killed, result, calls } = refused;
      expect(killed.code, killed.stderr).to.equal(-1);
      const isMissing = result.stderr.includes('quay-postgres.service is missing');
      expect([result.code, isMissing], result.stderr).to.deep.equal([1, true]);
      expect(calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    });

    it('loses PostgreSQL and its password with the backup', () => {
      const { code, stdout, stderr } = dropped.result;
      const isRemoved = stdout.includes('Removed the backup of the upgrade of');
      expect([code, isRemoved], stderr).to.deep.equal([0, true]);
      expect(dropped.units).not.to.include('quay-postgres.service');
      expect(dropped.secrets).to.deep.equal(['redis_pass']);
      expect(dropped.status.stdout).not.to.match(/postgres|changed since then/i);
    });

    it('has nothing to roll back without the backup', () => {
      expect(dropped.rollback.stderr).to.include('nothing to roll back');
    });

    it('runs the new Quay without the backup too', () => {
      expect([dropped.running, dropped.again.stdout.includes('nothing to do')]).to.deep.equal([latest.quay, true]);
    });
  });

  it('is restored byte for byte after every kind of failure', async () => {
    await start('1.3.11', RecordedPostgres);
    const cases: [what: string, make: () => void, words: string][] = [
      ['PostgreSQL does not start', () => (host.fails = (call) => call.includes('pg_isready')), 'does not answer'],
      [
        'Quay cannot update the schema',
        () => (host.fails = (call) => call.includes(':/quay-registry/conf/stack:Z ')),
        'power',
      ],
      ['pg_dump fails', () => (host.fails = (call) => call.includes('pg_dump')), 'power'],
      [
        'the dump is half',
        () => (host.dumpOf = (text) => text.slice(0, text.indexOf('\n', text.indexOf('COPY public.repository')) + 1)),
        'end is missing',
      ],
      ['the volume cannot be created', () => (host.fails = (call) => call.startsWith('podman volume create')), 'power'],
      [
        'the new Quay is not healthy',
        () => (host.healthOf = (image) => (image === old ? healthy : { ...healthy, status: 503 })),
        '503',
      ],
      ['PostgreSQL cannot be disabled', () => (host.fails = (call) => call.includes('disable --now')), 'power'],
    ];
    for (const [what, make, words] of cases) {
      postgres.stops.length = 0;
      make();
      const { code, stderr } = await upgrade();
      host.fails = () => false;
      host.dumpOf = (text) => text;
      host.healthOf = () => healthy;
      expect([what, code, stderr.includes(words)], stderr).to.deep.equal([what, 3, true]);
      expectRestored(await describeRestored());
    }
  });

  for (const [what, folder, command] of [
    ['while it reads the dump', 'root/quay-install/.oc-mirror-registry', 'pg_dump'],
    ['before SQLite has its place', 'srv/volumes', 'volume create'],
  ] as const) {
    it(`is restored byte for byte if the disk becomes full ${what}`, async function () {
      await requireRoot(this);
      await start('1.3.11', RecordedPostgres);
      const place = join(registry.fixture.root, folder);
      await mkdir(place, { recursive: true });
      await runSuccessfully('mount', ['-t', 'tmpfs', '-o', 'size=4m,mode=700', 'tmpfs', place]);
      try {
        host.fails = (call) => {
          if (call.includes(command)) fillDisk(join(place, 'filler'));
          return false;
        };
        const { code, stderr } = await upgrade();
        expect([code, stderr.includes('the disk is full: ')], stderr).to.deep.equal([3, true]);
        await rm(join(place, 'filler'));
        expectRestored(await describeRestored());
        host.fails = () => false;
        expect((await upgrade()).code).to.equal(0);
      } finally {
        await runSuccessfully('umount', [place]);
      }
    });
  }

  it('is completed or restored byte for byte after a kill at every step, and so is its rollback', async () => {
    // Most of the time each registry waits until it is healthy.
    await Promise.all([0, 1, 2, 3].map((lane) => killAtEveryStep(lane, 4)));
  });

  /** Kills the upgrade, and then its rollback, at every `stride`th step. Every second upgrade is completed first. */
  async function killAtEveryStep(lane: number, stride: number): Promise<void> {
    const killed = await startMirrorRegistry({ age: '1.3.11' }, 8443, RecordedPostgres);
    started.push(killed);
    const { host } = killed;
    const server = host.postgres!;
    addImages(host);
    const before = await describeHost(killed);
    let [code, back] = [-1, -1];
    for (let [step, backStep] = [lane, lane]; code !== 0 || back !== 0; step += stride) {
      server.stops.length = 0;
      code = (await killed.call('upgrade', ['--version=2.0.11'], step)).code;
      const isBegun = host.calls.some((line) => line.startsWith('systemctl'));
      if (!isBegun && !existsSync(killed.at('.oc-mirror-registry/journal.json'))) continue;
      if (lane % 2 === 1) {
        const again = await killed.call('upgrade', ['--version=2.0.11']);
        const state = [step, again.code, host.running, server.isRunning];
        expect(state, again.stderr).to.deep.equal([step, 0, latest.quay, false]);
      }
      const starts = server.starts.length;
      back = (await killed.call('rollback', [], backStep)).code;
      if (back !== 0) {
        backStep += stride;
        const { code: end, stderr } = await killed.call('rollback');
        expect(end === 0 || stderr.includes('nothing to roll back'), stderr).to.equal(true);
      }
      expect(await describeHost(killed), `step ${step}`).to.deep.equal(before);
      // The first start is on the files that it left when it was stopped first.
      const state = [step, server.isRunning, server.starts[starts]];
      expect(state).to.deep.equal([step, true, server.stops[0]]);
      host.calls.length = 0;
    }
  }

  it('changes nothing without a place for the database', async () => {
    await start('1.3.11', RecordedPostgres);
    await registry.fixture.write('/srv/sqlite/quay_sqlite.db', 'of another registry');
    original = await describeHost();
    const taken = await upgrade(['--sqlite-storage=/srv/sqlite']);
    expect([taken.code, taken.stderr.includes('already has a database')], taken.stderr).to.deep.equal([1, true]);
    expect(host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    expect(await describeHost()).to.deep.equal(original);
  });

  it('of the first installer, without a unit for its pod, takes a folder, and a rollback removes it', async () => {
    await start('1.0.0');
    const { code, stderr } = await upgrade(['--sqlite-storage=/srv/sqlite']);
    expect(code, stderr).to.equal(0);
    expect(await readdir(join(registry.fixture.root, 'srv/sqlite'))).to.include('quay_sqlite.db');
    expect((await registry.call('rollback')).code).to.equal(0);
    expectRestored(await describeRestored());
  });
});

/** Writes a file until its disk has no space. */
function fillDisk(path: string): void {
  const file = openSync(path, 'w');
  try {
    for (;;) writeSync(file, Buffer.alloc(4096, 1));
  } catch {
    closeSync(file);
  }
}
