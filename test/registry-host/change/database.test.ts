import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import { checkDatabase, restoreDatabase, sizeOfDatabase } from '../../../lib/registry-host/change/database.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { run } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const megabyte = 1024 * 1024;

describe('the restore of a database in its place', function () {
  let folder: string;
  let copy: string;
  let place: string;
  const { signal } = new AbortController();
  const environment = { ...process.env };
  const programs = { podman: 'true', systemctl: 'true', environment };
  const commands = new HostCommands({ ...programs, signal }, 'system');
  const digest = async (name: string): Promise<string> => (await readFile(join(place, name), 'latin1')).slice(-9);

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'restore-'));
    await chmod(folder, 0o711);
    [copy, place] = [join(folder, 'copy'), join(folder, 'place')];
    await mkdir(copy);
    await mkdir(place);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  async function writePair(): Promise<void> {
    await writeFile(
      join(copy, 'quay_sqlite.db'),
      Buffer.concat([Buffer.alloc(3 * megabyte, 1), Buffer.from('old value')]),
    );
    await writeFile(
      join(place, 'quay_sqlite.db'),
      Buffer.concat([Buffer.alloc(megabyte, 2), Buffer.from('new value')]),
    );
    await writeFile(join(place, 'quay_sqlite.db-wal'), 'newer log');
  }

  it('leaves the present file of SQLite whole if it is interrupted, and completes the next time', async () => {
    await writePair();
    let checks = 0;
    const interrupted = new AbortController();
    // In the middle of the copy.
    Object.defineProperty(interrupted.signal, 'aborted', { get: () => (checks += 1) > 2 });
    const failing = new HostCommands({ ...programs, signal: interrupted.signal }, 'system');
    const failed = await restoreDatabase(failing, copy, place).catch((error: unknown) => error);
    expect(String(failed)).to.include('interrupted');
    expect([await digest('quay_sqlite.db'), await digest('quay_sqlite.db-wal')]).to.deep.equal([
      'new value',
      'newer log',
    ]);
    await restoreDatabase(commands, copy, place);
    expect([await digest('quay_sqlite.db'), await readdir(place)]).to.deep.equal(['old value', ['quay_sqlite.db']]);
  });

  it('restores the file of SQLite on a disk without space for two of them', async function () {
    await requireRoot(this);
    const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=3500k', 'tmpfs', place]);
    if (mounted.code !== 0) this.skip();
    try {
      await writePair();
      await restoreDatabase(commands, copy, place);
      expect([await digest('quay_sqlite.db'), await readdir(place)]).to.deep.equal(['old value', ['quay_sqlite.db']]);
    } finally {
      await run('umount', [place]);
    }
  });
});

describe('a copy of a database', () => {
  const { signal } = new AbortController();
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'database-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it('is checked in a copy that is removed, also if the database is damaged', async () => {
    const commands = new HostCommands({ podman: 'true', systemctl: 'true', environment: {}, signal }, 'system');
    const path = join(folder, 'quay_sqlite.db');
    using database = new DatabaseSync(path);
    database.exec('CREATE TABLE repository (name TEXT)');
    database.close();
    await checkDatabase(commands, folder);
    for (const [content, problem] of [
      ['damaged', 'file is not a database'],
      ['', 'it has no tables'],
    ] as const) {
      await writeFile(path, content);
      const { message } = await failureOf(checkDatabase(commands, folder), 'invalid-file');
      expect(message).to.equal(`the database of the registry is damaged: ${problem}`);
    }
    expect(await readdir(folder)).to.deep.equal(['quay_sqlite.db']);
  });

  it('is measured with the rights of podman if it belongs to a rootless registry', async () => {
    const podman = join(folder, 'podman');
    await writeFile(podman, `#!/bin/sh\n[ "$1 $3" = 'unshare /db' ] && echo 'f 5 quay_sqlite.db'\n`, { mode: 0o755 });
    const commands = new HostCommands({ podman, systemctl: 'true', environment: {}, signal }, 'user');
    expect(await sizeOfDatabase(commands, '/db')).to.equal(5);
  });
});
