import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands } from '../../../lib/node/machine/hostCommands.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import type { BackupFacts } from '../../../lib/registry-host/backup/backupFormat.ts';
import { planRestore, type RestorePlan } from '../../../lib/registry-host/backup/restore.ts';
import { detectInstallation } from '../../../lib/registry-host/detect/detect.ts';
import { writeBackupFile } from '../../fakes/mirror-registry/backupFile.ts';
import { makeFixture, type Fixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { installCertificates, installOwnCertificate } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const configuration = 'quay-config/config.yaml';
const database = 'database/quay_sqlite.db';
const facts: BackupFacts = {
  format: 1,
  created: '2026-11-20T10:00:00.000Z',
  version: '2.0.7',
  quay: imagesOf('2.0.7').quay,
  hostname: 'registry.example.com:8443',
  hasImages: false,
};

/** Changes the first byte of a text in a file. */
async function flipByteOf(path: string, text: string): Promise<void> {
  const bytes = await readFile(path);
  await writeFile(path, bytes.fill('X', bytes.indexOf(text), bytes.indexOf(text) + 1));
}

describe('planRestore', function () {
  requirePeer(this, 'openssl');
  let fixture: Fixture;
  let own: Record<string, string>;
  let context: TestContext;

  const install = async (options: Partial<FixtureOptions> = {}): Promise<void> => {
    fixture = await makeFixture({ age: '2.0.7', databaseStorage: '/srv/db', storage: '/srv/images', ...options });
    await installCertificates(fixture);
    await fixture.write('/srv/db/quay_sqlite.db', 'rows');
    await fixture.write('/srv/images/sha256/aa/one', 'one');
  };
  const pathOf = (name: string): string => join(fixture.quayRoot, name);
  const read = (name: string): Promise<string> => readFile(join(fixture.root, pathOf(name)), 'utf8');

  /** Installs a registry, and takes its files for the backup. */
  beforeEach(async () => {
    context = makeContext();
    await install();
    own = { [database]: 'older rows' };
    for (const name of [configuration, 'quay-config/ssl.cert', 'quay-config/ssl.key', 'quay-rootCA/rootCA.pem'])
      own[name] = await read(name);
  });
  afterEach(() => fixture.remove());

  async function plan(
    files: Record<string, string> = own,
    { changed = {}, hostname, damaged }: { changed?: Partial<BackupFacts>; hostname?: string; damaged?: string } = {},
  ): Promise<RestorePlan> {
    const { root, home } = fixture;
    const input = join(root, 'registry.tar');
    await writeBackupFile(input, { ...facts, ...changed }, files);
    if (damaged !== undefined) await flipByteOf(input, damaged);
    const host = new HostFiles(root);
    const detect = { scope: 'auto', home } as const;
    const now = new Date();
    const programs = { podman: 'true', systemctl: 'true', environment: process.env, signal: context.signal };
    const renewal = { now, renewBefore: 90, certDays: 397, caDays: 1024, addHosts: [], force: false };
    const options = { noRestart: false, force: false, healthTimeout: 1, keepBackups: 1 };
    const request = {
      ...{ input, hostname, renewal, files: host, detect, now, ...options },
      commands: new HostCommands(programs, 'system'),
      detected: await detectInstallation(host, detect),
    };
    return planRestore(request, context);
  }
  const namesOf = ({ files }: RestorePlan): string[] => files.map((path) => path.slice(fixture.quayRoot.length + 1));

  it('names the files that differ, the database, and the units to restart', async () => {
    const changed = `${own[configuration] ?? ''}FEATURE_X: true\n`;
    const planned = await plan({ ...own, [configuration]: changed });
    const { files: _, ...rest } = planned;
    expect(rest).to.deep.equal({
      ...facts,
      host: 'registry.example.com',
      renewals: [],
      database: join(fixture.root, 'srv/db'),
      restart: ['quay-app'],
      addedFiles: 0,
      addedSize: 0,
    });
    // The backup has no key of the CA, and the record of this program changes too.
    const expected = [configuration, 'quay-rootCA/rootCA.key', '.oc-mirror-registry/state.json'];
    expect(namesOf(planned)).to.have.members(expected);
    expect(context.lines).to.deep.equal([`info: verifying ${join(fixture.root, 'registry.tar')}`]);
  });

  it('adds the images that the host lacks', async () => {
    const images = { 'images/sha256/aa/one': 'one', 'images/sha256/bb/two': 'two2' };
    const planned = await plan({ ...own, ...images }, { changed: { hasImages: true } });
    expect(planned).to.include({ addedFiles: 1, addedSize: 4 });
  });

  it('needs the name of the registry if the host publishes another port, and renews the certificate for it', async () => {
    const moved = { ...own, [configuration]: (own[configuration] ?? '').replace(':8443', ':9443') };
    const { message, settings } = await failureOf(plan(moved), 'conflict');
    expect(message).to.match(
      /^the backup is of registry\.example\.com:9443, but .* publishes port 8443 \(.*quay-pod\.service:\d+\)$/,
    );
    expect(settings).to.deep.equal(['hostname']);
    const named = { ...moved, 'quay-rootCA/rootCA.key': await read('quay-rootCA/rootCA.key') };
    const planned = await plan(named, { hostname: 'new.example.com' });
    expect(planned.host).to.equal('new.example.com');
    expect(planned.renewals.join()).to.include('new.example.com');
    expect(namesOf(planned)).to.include.members([configuration, 'quay-config/ssl.cert']);
    expect((await plan(named, { hostname: 'fd00::1' })).host).to.equal('fd00::1');
  });

  it('refuses a certificate in the backup that clients cannot use and that it cannot renew', async () => {
    await installOwnCertificate(fixture, 'elsewhere.example.com');
    for (const name of ['ssl.cert', 'ssl.key']) own[`quay-config/${name}`] = await read(`quay-config/${name}`);
    const { message, settings } = await failureOf(plan(), 'unsupported');
    expect(message).to.match(/^the certificate in the backup cannot be used: .*registry\.example\.com/);
    expect(settings).to.deep.equal(['sslCert', 'sslKey']);
  });

  it('refuses a backup of a newer Quay, and warns of one whose version is unknown', async () => {
    const { message, hint } = await failureOf(
      plan(own, { changed: { quay: imagesOf('2.0.11').quay, version: '2.0.11' } }),
      'unsupported',
    );
    expect(message).to.equal('the backup is of Quay 3.12.18, which is newer than 3.12.10 of this host');
    expect(hint).to.equal('Upgrade the registry of this host to 2.0.11 first.');
    const { quay } = await plan(own, { changed: { quay: imagesOf('2.0.0').quay } });
    expect(quay).to.equal(imagesOf('2.0.0').quay);
    expect(context.lines.join()).not.to.include('warn');
    await plan(own, { changed: { quay: 'quay.local/quay:ours' } });
    expect(context.lines.join()).to.include('which is newer is unknown');
  });

  it('refuses a database of another kind, and says what to upgrade', async () => {
    const { [database]: _, ...others } = own;
    const dump = { ...others, 'database/quay.sql': '' };
    const sqlite = await failureOf(plan(dump), 'unsupported');
    expect(sqlite.message).to.equal('the database in the backup is of PostgreSQL, and that of this host of SQLite');
    expect(sqlite.hint).to.match(/^Upgrade the registry of the backup to 2\.x/);
    await fixture.remove();
    await install({ age: '1.3.11' });
    const old = { changed: { quay: imagesOf('1.3.0').quay } };
    const postgres = await failureOf(plan(own, old), 'unsupported');
    expect(postgres.message).to.equal('the database in the backup is of SQLite, and that of this host of PostgreSQL');
    expect(postgres.hint).to.equal('Upgrade the registry of this host to 2.x first.');
  });

  it('refuses a configuration of another database, or without the name of the registry', async () => {
    const text = own[configuration] ?? '';
    const other = { ...own, [configuration]: text.replace(/sqlite:\S+/, 'postgresql://x/y') };
    expect((await failureOf(plan(other), 'invalid-file')).message).to.match(
      /^the configuration in the backup \(.*config\.yaml\) names a database of PostgreSQL$/,
    );
    const nameless = { ...own, [configuration]: text.replace(/SERVER_HOSTNAME.*\n/, '') };
    expect((await failureOf(plan(nameless), 'invalid-file')).message).to.equal(
      'the configuration in the backup has no SERVER_HOSTNAME',
    );
  });

  it('reads the whole backup, and changes nothing', async () => {
    const kept = Object.keys(own).filter((name) => name !== database);
    const before = await Promise.all(kept.map(read));
    const files = { ...own, [configuration]: `${own[configuration] ?? ''}FEATURE_X: true\n` };
    await plan(files);
    expect(await Promise.all(kept.map(read))).to.deep.equal(before);
    const { message } = await failureOf(plan(files, { damaged: 'older rows' }), 'digest-mismatch');
    expect(message).to.include(`is corrupt: ${database} has another digest`);
  });
});
