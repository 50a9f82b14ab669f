import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import {
  findDatabase,
  findNewer,
  kindOf,
  requireDatabase,
  type DatabaseKind,
} from '../../../lib/registry-host/change/databaseKind.ts';
import { openFixtures, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { PostgresServer } from '../../fakes/mirror-registry/postgresServer.ts';
import { requireAccount, requirePeer } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const { signal } = new AbortController();
const environment = { ...process.env };
const programs = { podman: 'true', systemctl: 'true', environment };
const commands = new HostCommands({ ...programs, signal }, 'system');
const postgres = kindOf({ isPostgres: true });
const sqlite = kindOf({});

describe('the kind of a database', () => {
  let folder: string;
  let copy: string;
  let place: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kind-'));
    await chmod(folder, 0o711);
    [copy, place] = [join(folder, 'copy'), join(folder, 'place')];
    await mkdir(copy);
    await mkdir(place);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));
  const requireCopy = async (kind: DatabaseKind): Promise<string> =>
    (await failureOf(kind.requireCopy(commands, copy), 'invalid-file')).message;

  it('copies a folder of PostgreSQL as a whole, in place of an older copy, and restores it', async () => {
    await mkdir(join(place, 'userdata/base'), { recursive: true });
    await writeFile(join(place, 'userdata/PG_VERSION'), '10');
    await writeFile(join(place, 'userdata/base/1'), 'old');
    await mkdir(join(copy, 'postgres'));
    await writeFile(join(copy, 'postgres/left over'), '');
    await postgres.copy(commands, place, copy);
    expect(await readdir(join(copy, 'postgres'))).to.deep.equal(['userdata']);
    await postgres.check(commands, copy);
    const digest = await postgres.digest(commands, copy);
    await writeFile(join(place, 'userdata/base/1'), 'new');
    await writeFile(join(place, 'userdata/base/2'), 'new');
    await postgres.restore(commands, copy, place);
    expect(await readdir(join(place, 'userdata/base'))).to.deep.equal(['1']);
    await postgres.copy(commands, place, copy);
    expect(await postgres.digest(commands, copy)).to.equal(digest);
    await postgres.removeCopy(commands, copy);
    expect(await readdir(copy)).to.deep.equal([]);
  });

  it('needs a copy that is complete', async () => {
    expect(await requireCopy(sqlite)).to.equal('the backup of the database is incomplete: quay_sqlite.db is missing');
    const words = 'the backup of the database is incomplete: PG_VERSION is missing';
    expect(await requireCopy(postgres)).to.equal(words);
    await mkdir(join(copy, 'postgres/userdata'), { recursive: true });
    expect(await requireCopy(postgres)).to.equal(words);
    // Another image has its data without the folder between.
    await writeFile(join(copy, 'postgres/PG_VERSION'), '10');
    await postgres.requireCopy(commands, copy);
    await writeFile(join(copy, 'quay_sqlite.db'), '');
    await sqlite.requireCopy(commands, copy);
  });

  it('has the digest of the database of SQLite and its log, and of no other file', async () => {
    await writeFile(join(copy, 'quay_sqlite.db'), 'rows');
    const digest = await sqlite.digest(commands, copy);
    await writeFile(join(copy, 'other'), 'x');
    expect(await sqlite.digest(commands, copy)).to.equal(digest);
    await writeFile(join(copy, 'quay_sqlite.db-wal'), 'log');
    expect(await sqlite.digest(commands, copy)).not.to.equal(digest);
  });

  it('lets PostgreSQL start only on the whole folder', async function () {
    requirePeer(this, 'pg_ctlcluster');
    requireAccount(this);
    const server = new PostgresServer(place);
    try {
      await server.create();
      await commands.copyFolder(place, join(copy, 'postgres'));
      // A program that fails after its first file, as at the end of a power supply.
      await mkdir(join(folder, 'bin'));
      await writeFile(
        join(folder, 'bin/cp'),
        `#!/bin/sh\nmkdir "$3/userdata"\n/bin/cp "$1" "$2" "$3/userdata" ` +
          `${copy}/postgres/userdata/PG_VERSION\nexit 1\n`,
      );
      await chmod(join(folder, 'bin/cp'), 0o755);
      const half = { ...environment, PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}` };
      const failing = new HostCommands({ ...programs, environment: half, signal }, 'system');
      const failed = await postgres.restore(failing, copy, place).catch((error: unknown) => error);
      expect(String(failed)).to.include('failed');
      expect(await readdir(join(place, 'userdata'))).to.deep.equal(['PG_VERSION']);
      await server.start();
      expect(server.isRunning).to.equal(false);
      await postgres.restore(commands, copy, place);
      await server.start();
      expect(await server.query('SELECT count(*) FROM migration')).to.deep.equal(['0']);
    } finally {
      await server.remove();
    }
  });
});

describe('the database of a registry', () => {
  const install = openFixtures();
  const hostOf = ({ root }: Fixture) => ({ files: new HostFiles(root), commands });

  it('is found where its units say, with the account of PostgreSQL', async () => {
    const old = await install({ age: '1.3.11', databaseStorage: '/srv/pg' });
    const folder = join(old.root, 'srv/pg');
    const account = { user: 'user', database: 'quay' };
    expect(await requireDatabase(hostOf(old), await detectFixture(old))).to.deep.equal({
      kind: postgres,
      folder,
      account,
    });
    const fixture = await install({ age: '2.0.7', databaseStorage: '/srv/db' });
    const { installation } = await detectFixture(fixture);
    const found = { kind: sqlite, folder: join(fixture.root, 'srv/db') };
    expect(await findDatabase(hostOf(fixture), installation)).to.deep.equal(found);
    expect(await findDatabase(hostOf(fixture), { ...installation, databaseStorage: undefined })).to.equal(undefined);
    expect([postgres.units, sqlite.units]).to.deep.equal([['quay-app', 'quay-postgres'], ['quay-app']]);
  });

  it('is refused if it is not the one of the installer', async () => {
    const fixture = await install({ age: '1.3.11', databaseStorage: '/srv/pg' });
    const configuration = 'SERVER_HOSTNAME: registry.example.com\nDB_URI: postgresql://u:p@db.example.com/quay\n';
    await fixture.write(`${fixture.quayRoot}/quay-config/config.yaml`, configuration);
    const detected = await detectFixture(fixture);
    const { message, hint } = await failureOf(requireDatabase(hostOf(fixture), detected, 'Ask.'), 'unsupported');
    expect(message).to.equal('the database of this registry is not the one of its installer');
    expect(hint).to.equal('Ask.');
  });

  it('is that of SQLite after a migration, and none for a change that leaves it alone', async () => {
    const fixture = await install({ age: '1.3.11' });
    const migration = { image: 'quay', storage: '/srv/db', creates: true };
    const host = hostOf(fixture);
    const moved = await findNewer(host, { isPostgres: true, database: '/srv/pg', migration });
    expect(moved).to.deep.equal({ kind: sqlite, folder: join(fixture.root, 'srv/db') });
    const kept = await findNewer(host, { isPostgres: true, database: '/srv/pg' });
    expect(kept).to.deep.equal({ kind: postgres, folder: '/srv/pg' });
    expect(await findNewer(host, { isPostgres: true })).to.equal(undefined);
  });
});
