import { readdir } from 'node:fs/promises';
import { expect } from 'chai';
import { healthy, type MirrorRegistryHost } from '../../fakes/mirror-registry/mirrorRegistryHost.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import type { Postgres } from '../../fakes/mirror-registry/postgresServer.ts';
import { requirePeer, type RunResult } from '../../support/peers.ts';

describe('a registry with PostgreSQL', function () {
  this.timeout(240_000);
  let registry: RunningRegistry;
  let host: MirrorRegistryHost;
  let postgres: Postgres;
  let original: Record<string, string>;
  const [old, fresh] = [imagesOf('1.3.0').quay, imagesOf('1.3.10').quay];

  before(function () {
    requirePeer(this, 'docker-registry', 'openssl', 'curl', 'pg_ctlcluster');
  });
  beforeEach(async () => {
    registry = await startMirrorRegistry({ age: '1.3.0' });
    ({ host } = registry);
    postgres = host.postgres!;
    host.images.set(fresh, 'new-quay-app');
    original = await snapshot();
  });
  afterEach(() => registry.stop());

  /** All files except those of the database, which change while the server runs. */
  async function snapshot(): Promise<Record<string, string>> {
    const files = Object.entries(await registry.snapshot());
    return Object.fromEntries(files.filter(([path]) => !path.startsWith('/srv/db/')));
  }

  const upgrade = (killedAt?: string): Promise<RunResult> => registry.call('upgrade', [`--version=1.3.10`], killedAt);
  const rows = (): Promise<string[]> => postgres.query('SELECT image FROM migration');

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
      ...['stop quay-app', 'stop quay-postgres', 'restart quay-postgres', 'restart quay-app'],
    ]);
    const back = await registry.call('rollback');
    expect(back.code, back.stderr).to.equal(0);
    await expectRestored();
    expect(await readdir(registry.at('.oc-mirror-registry/newer-database/postgres'))).to.include('PG_VERSION');
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

  it('is not upgraded to another minor version, nor backed up: nothing is changed', async () => {
    for (const [command, args, words] of [
      ['upgrade', [`--target-quay=${fresh.replace('3.8.14', '3.9.1')}`], 'keeps its database in PostgreSQL'],
      ['backup', [`--output=${registry.at('backup.tar')}`], 'not a file of SQLite'],
    ] as const) {
      const { code, stderr } = await registry.call(command, args);
      expect([code, stderr.includes(words)], stderr).to.deep.equal([1, true]);
    }
    expect([await snapshot(), host.calls.filter((line) => line.startsWith('systemctl'))]).to.deep.equal([original, []]);
  });
});
