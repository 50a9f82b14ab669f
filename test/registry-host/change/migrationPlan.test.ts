import { expect } from 'chai';
import {
  keepsPostgres,
  listDatabaseBlockers,
  listMigrationEdits,
  minorOf,
  planMigration,
  readAccount,
  requireAccount,
} from '../../../lib/registry-host/change/migrationPlan.ts';
import type { DetectedInstallation } from '../../../lib/registry-host/detect/detect.ts';
import { applyEdits } from '../../../lib/registry-host/detect/units.ts';
import type { ImageChange } from '../../../lib/registry-host/releases/images.ts';
import { openFixtures, type Fixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';

const quay = (version: string): string => `registry.redhat.io/quay/quay-rhel8:v${version}`;
const change = (from: string, to: string): ImageChange[] => [{ component: 'quay', from, to, file: '', line: 0 }];
const old = imagesOf('1.3.11').quay;
const storage = 'sqlite-storage';

describe('the move of a database to SQLite', () => {
  const install = openFixtures();
  const detect = async (age: string): Promise<DetectedInstallation> => detectFixture(await install({ age }));
  const withUri = async (fixture: Fixture, uri: string): Promise<DetectedInstallation> => {
    const path = `${fixture.quayRoot}/quay-config/config.yaml`;
    await fixture.write(path, `SERVER_HOSTNAME: registry.example.com:8443\nDB_URI: ${uri}\n`);
    return detectFixture(fixture);
  };

  it('comes with the first Quay of a mirror registry with SQLite, and not before', async () => {
    const detected = await detect('1.3.11');
    const configuration = detected.configuration.path;
    const planned = planMigration(detected, change(old, quay('3.12.0')), storage);
    expect(planned).to.deep.equal({ storage, configuration, retired: 'quay-postgres' });
    for (const to of [quay('3.11.9'), quay('3.8.99'), 'quay.local/quay:ours'])
      expect(planMigration(detected, change(old, to), storage), to).to.equal(undefined);
    expect(planMigration(detected, change('quay.local/quay:ours', quay('3.12.0')), storage)).to.equal(undefined);
    expect(planMigration(detected, [], storage)).to.equal(undefined);
    const sqlite = await detect('2.0.7');
    expect(planMigration(sqlite, change(imagesOf('2.0.7').quay, quay('3.13.1')), storage)).to.equal(undefined);
    expect(keepsPostgres(detected.installation, undefined)).to.equal(true);
    expect(keepsPostgres(detected.installation, planned)).to.equal(false);
    expect(keepsPostgres(sqlite.installation, undefined)).to.equal(false);
  });

  it('adds its volume to the unit of Quay, which no longer needs PostgreSQL', async () => {
    const detected = await detect('1.3.11');
    const plan = { storage, configuration: '', retired: 'quay-postgres' } as const;
    const edits = listMigrationEdits(detected, plan);
    const [file] = detected.units.get('quay-app')?.files ?? [];
    const before = file?.text ?? '';
    const after = applyEdits(
      before,
      edits.map(({ edit }) => edit),
    );
    expect(after).to.equal(
      before
        .replace('-v /root/quay-install', `-v ${storage}:/sqlite:Z,U -v /root/quay-install`)
        .replaceAll(' quay-postgres.service', ''),
    );
    expect(edits.map(({ reason }) => reason)).to.deep.equal([
      'the database of SQLite in sqlite-storage',
      'without quay-postgres.service',
      '',
    ]);
  });

  it('is the way out if PostgreSQL stands between two versions of Quay', async () => {
    const detected = await detect('1.3.11');
    const list = (from: string, to: string, found = detected): string => {
      const images = change(from, to);
      return listDatabaseBlockers(found, images, planMigration(found, images, storage)).join();
    };
    expect(list(old, quay('3.8.99'))).to.equal('');
    expect(list(old, quay('3.12.0'))).to.equal('');
    expect(list(old, quay('3.9.1'))).to.match(
      /^this registry keeps its database in PostgreSQL \(\S+quay-postgres\.service:\d+\)\. It can be upgraded within /,
    );
    expect(list(old, 'quay.local/quay:ours')).to.include(`the versions of ${old} and quay.local/quay:ours are unknown`);
    expect(listDatabaseBlockers(detected, [], undefined)).to.deep.equal([]);
    expect(list(imagesOf('2.0.7').quay, quay('3.13.1'), await detect('2.0.7'))).to.equal('');
    const elsewhere = await withUri(await install({ age: '1.3.11' }), 'postgresql://user:secret@db.example.com/quay');
    expect(list(old, quay('3.12.0'), elsewhere))
      .to.include('not in the one of its installer')
      .and.not.include('secret');
  });

  it('reads the account of Quay from a PostgreSQL of the host only', async () => {
    const fixture = await install({ age: '1.3.11' });
    for (const [uri, account] of [
      ['postgresql://user:a%2Fb@localhost/quay', { user: 'user', database: 'quay' }],
      ['postgresql://u%40v@127.0.0.1:5432/a%20b', { user: 'u@v', database: 'a b' }],
      ['postgresql://u@[::1]/quay', { user: 'u', database: 'quay' }],
      ['postgresql://u@db.example.com/quay', undefined],
      ['postgresql://localhost/quay', undefined],
      ['postgresql://u@localhost/', undefined],
      ['none', undefined],
    ] as const) {
      const detected = await withUri(fixture, `"${uri}"`);
      expect(readAccount(detected), uri).to.deep.equal(account);
      if (account) expect(requireAccount(detected)).to.deep.equal(account);
      else expect(() => requireAccount(detected)).to.throw('the configuration names no account of PostgreSQL');
    }
  });
});

describe('minorOf', () => {
  it('is the minor version of Quay, and the image if that is unknown', () => {
    expect(minorOf(quay('3.8.15'))).to.equal('3.8');
    expect(minorOf('ours')).to.equal('ours');
  });
});
