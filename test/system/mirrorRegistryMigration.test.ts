import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { healthy, type MirrorRegistryHost } from '../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../fakes/mirror-registry/mirrorRegistryUnits.ts';
import type { PostgresServer } from '../fakes/mirror-registry/postgresServer.ts';
import { requirePeer, type RunResult } from '../support/peers.ts';

describe('a registry with PostgreSQL that is upgraded to SQLite', function () {
  this.timeout(240_000);
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  let postgres: PostgresServer;
  let original: unknown;
  const old = imagesOf('1.3.11').quay;
  const { postgres: _, ...latest } = imagesOf('2.0.11');

  before(function () {
    requirePeer(this, 'docker-registry', 'openssl', 'curl', 'pg_ctlcluster');
  });
  beforeEach(async () => {
    registry = await startMirrorRegistry({ age: '1.3.11' });
    ({ host } = registry);
    postgres = host.postgres!;
    for (const image of Object.values(latest)) host.images.set(image, `new-${image}`);
    host.images.set(imagesOf('1.3.11').postgres, 'old-quay-postgres');
    host.secrets.set('pgdb_pass', 'password');
    original = await describeHost();
  });
  afterEach(() => registry.stop());

  /** Everything of the host except the files of PostgreSQL, which change while it runs. */
  async function describeHost(): Promise<unknown> {
    const files = Object.entries(await registry.snapshot()).filter(([path]) => !path.startsWith('/srv/db/'));
    const { volumes, secrets, enabled, running, images } = host;
    return { files, running, held: [volumes, secrets, enabled, images].map((each) => [...each].sort()) };
  }

  const upgrade = (args: readonly string[] = [], killedAt?: string): Promise<RunResult> =>
    registry.call('upgrade', ['--version=2.0.11', ...args], killedAt);
  const sqlite = (): string => join(registry.fixture.root, 'srv/volumes/sqlite-storage/_data/quay_sqlite.db');
  const unit = (name: string): Promise<string> =>
    readFile(`${registry.fixture.root}/etc/systemd/system/${name}.service`, 'utf8');

  /** PostgreSQL started on the files that it left when it was stopped first. */
  async function expectRestored(): Promise<void> {
    expect(await describeHost()).to.deep.equal(original);
    expect(postgres.starts.at(-1)).to.equal(postgres.stops[0]);
    expect(await postgres.query('SELECT version_num FROM alembic_version')).to.deep.equal(['quay38']);
  }

  function listRows(table: string, columns: string): unknown[][] {
    using database = new DatabaseSync(sqlite(), { readOnly: true });
    const query = database.prepare(`SELECT ${columns} FROM ${table} ORDER BY id`);
    query.setReadBigInts(true);
    return query.all().map((row) => Object.values(row));
  }

  it('has the same rows in SQLite, keeps PostgreSQL for a rollback, and drops it with the backup', async () => {
    const plan = await registry.call('plan', ['--version=2.0.11', '--diff']);
    expect(plan.stdout, plan.stderr)
      .to.include('move the database from PostgreSQL to SQLite in sqlite-storage')
      .and.to.include('disable quay-postgres.service')
      .and.not.to.include('restart quay-postgres');
    expect(await describeHost()).to.deep.equal(original);

    const { code, stderr } = await upgrade();
    expect(code, stderr).to.equal(0);
    expect([host.running, postgres.isRunning, [...host.enabled]]).to.deep.equal([latest.quay, false, []]);
    expect(listRows('"user"', 'username, verified, creation_date, maximum_queued_builds_count, company')).to.deep.equal(
      [
        ['init', 1n, '2023-01-02 03:04:05.678901', 9007199254740993n, null],
        ['t', 0n, null, null, ''],
        [`O'Brien "x"`, 1n, '2024-02-29 00:00:00', -1n, 'true'],
      ],
    );
    expect(listRows('repository', 'description, trust_enabled')).to.deep.equal([
      ['first line\n\n-- not a comment\n\\.\n\ttab and back\\slash \r', 1n],
      ['grüße, 世界 🚀', 0n],
      ['\\N', 0n],
      [null, 0n],
    ]);
    expect(listRows('role', 'name')).to.deep.equal([['admin'], ['read']]);
    expect(listRows('quota', 'size')).to.deep.equal([[1099511627776n]]);
    const text = await unit('quay-app');
    expect(text)
      .to.include('-v sqlite-storage:/sqlite:Z,U')
      .and.to.include('--memory=4g')
      .and.not.to.include('postgres');
    const config = await readFile(registry.at('quay-config/config.yaml'), 'utf8');
    expect(config).to.include('DB_URI: "sqlite:////sqlite/quay_sqlite.db"').and.not.to.include('postgresql:');
    expect(await readdir(registry.at('.oc-mirror-registry'))).to.have.members([
      'backups',
      'state.json',
      'written.json',
    ]);
    const status = await registry.call('status');
    expect(status.stdout).to.include('quay-postgres.service is not used').and.not.to.include('changed since then');
    expect((await upgrade()).stdout).to.include('there is nothing to do');

    const back = await registry.call('rollback');
    expect(back.code, back.stderr).to.equal(0);
    await expectRestored();
    expect(await readdir(registry.at('.oc-mirror-registry/newer-database'))).to.deep.equal(['quay_sqlite.db']);

    expect((await upgrade()).code).to.equal(0);
    const dropped = await registry.call('rollback', ['--drop-backups']);
    expect(
      [dropped.code, dropped.stdout.includes('Removed the backup of the upgrade of')],
      dropped.stderr,
    ).to.deep.equal([0, true]);
    expect(await readdir(`${registry.fixture.root}/etc/systemd/system`)).not.to.include('quay-postgres.service');
    expect([...host.secrets.keys()]).to.deep.equal(['redis_pass']);
    expect((await registry.call('status')).stdout).not.to.match(/postgres|changed since then/i);
    expect((await registry.call('rollback')).stderr).to.include('nothing to roll back');
    expect([host.running, (await upgrade()).stdout.includes('nothing to do')]).to.deep.equal([latest.quay, true]);
  });

  it('is restored byte for byte after every kind of failure', async () => {
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
      await expectRestored();
    }
  });

  it('resumes after a kill at each kind of step, and so does its rollback', async () => {
    for (const [step, back] of [
      // While PostgreSQL is read, when SQLite has its place, and before the restart.
      ['rm quay_sqlite.db', 'rename quay-app.service'],
      ['rename quay_sqlite.db', 'rm newer-database'],
      ['rm secret', 'rm quay_sqlite.db'],
    ] as const) {
      postgres.stops.length = 0;
      const killed = await upgrade([], step);
      expect([step, killed.code], killed.stderr).to.deep.equal([step, -1]);
      const again = await upgrade();
      expect([again.code, host.running, postgres.isRunning], again.stderr).to.deep.equal([0, latest.quay, false]);
      expect(listRows('role', 'name')).to.deep.equal([['admin'], ['read']]);
      const halfway = await registry.call('rollback', [], back);
      expect([back, halfway.code], halfway.stderr).to.deep.equal([back, -1]);
      const { code, stderr } = await registry.call('rollback');
      expect(code, stderr).to.equal(0);
      await expectRestored();
    }
  });

  it('changes nothing without a place for the database', async () => {
    await registry.fixture.write('/srv/sqlite/quay_sqlite.db', 'of another registry');
    original = await describeHost();
    const taken = await upgrade(['--sqlite-storage=/srv/sqlite']);
    expect([taken.code, taken.stderr.includes('already has a database')], taken.stderr).to.deep.equal([1, true]);
    expect(host.calls.filter((line) => line.startsWith('systemctl'))).to.deep.equal([]);
    expect(await describeHost()).to.deep.equal(original);
  });

  it('takes a folder for the database, and removes it with a rollback', async () => {
    const { code, stderr } = await upgrade(['--sqlite-storage=/srv/sqlite']);
    expect(code, stderr).to.equal(0);
    expect(await readdir(join(registry.fixture.root, 'srv/sqlite'))).to.include('quay_sqlite.db');
    expect((await registry.call('rollback')).code).to.equal(0);
    await expectRestored();
  });
});
