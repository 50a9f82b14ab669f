import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { isPluginError } from '../../../lib/errors.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { readWritten } from '../../../lib/registry-host/change/openRegistry.ts';
import { folderOfFile, parseJournal } from '../../../lib/registry-host/change/upgradeJournal.ts';
import { StateFolder } from '../../../lib/registry-host/installation/stateFolder.ts';
import { failureOf } from '../../support/program/failure.ts';

const installation = {
  quayRoot: { value: '/quay', file: '', line: 0 },
  unitFolder: '/units',
};
const sha256 = 'a'.repeat(64);
const journal = {
  id: '000001-20260101T000000Z',
  title: 'the upgrade',
  phase: 'writing',
  files: [{ path: '/quay/quay-config/config.yaml', old: { mode: 0o640, uid: 0, gid: 0, sha256 }, mode: 0o644 }],
  restart: ['quay-app'],
  database: '/db',
  copyDigest: sha256,
  isPostgres: true,
  migration: { image: 'quay', storage: 'sqlite-storage', creates: true },
  secrets: ['redis_pass'],
  retired: { units: ['quay-postgres'], secrets: [] },
  containers: [{ name: 'quay-app', image: 'quay' }],
  names: [{ name: 'a', to: 'b' }],
  replaced: [{ name: 'a', id: 'b' }],
  wasHealthy: true,
};

/** Yields a value with each of its parts, at any depth, replaced by each of some values, and the place of the part. */
function* damaged(value: unknown, place = ''): Generator<readonly [place: string, value: unknown]> {
  for (const other of [null, 7, 'x', [], {}, [null], true, [value]]) {
    if (JSON.stringify(other) !== JSON.stringify(value)) yield [`${place} ${JSON.stringify(other)}`, other];
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [key, part] of Object.entries(value)) {
    for (const [where, changed] of damaged(part, `${place}/${key}`)) {
      yield [where, Array.isArray(value) ? value.with(Number(key), changed) : { ...value, [key]: changed }];
    }
  }
}

describe('the journal of a change', () => {
  const read = (text: string): unknown => parseJournal(text, '/journal.json', installation);

  it('is read back as it was written', () => {
    expect(read(JSON.stringify(journal))).to.deep.equal(journal);
  });

  it('is refused if a file has a mode other than its permission bits', () => {
    const withMode = (mode: number): string => JSON.stringify({ ...journal, files: [{ ...journal.files[0], mode }] });
    expect(read(withMode(0o777))).to.deep.include({ id: journal.id });
    for (const mode of [-1, 0.5, 0o1000, 0o4755])
      expect(() => read(withMode(mode)), String(mode)).to.throw(/a field is missing, or has an unknown value/);
  });

  it('is refused with a hint if any part has another type', () => {
    const texts = ['', '{', 'null', '[]', '7', ...[...damaged(journal)].map(([, value]) => JSON.stringify(value))];
    const places = ['', '', '', '', '', ...[...damaged(journal)].map(([place]) => place)];
    const internal: string[] = [];
    let refusals = 0;
    for (const [index, text] of texts.entries()) {
      try {
        // What is accepted is used without further checks, so it must have the same types.
        expect(typesOf(read(text)), places[index]).to.deep.equal(typesOf(journal));
      } catch (error) {
        if (!isPluginError(error, 'invalid-file')) internal.push(`${places[index] ?? ''}: ${String(error)}`);
        else refusals += Number(error.hint?.includes('Restore the file, or move it away') ?? false);
      }
    }
    expect(internal).to.deep.equal([]);
    expect(refusals).to.be.above(200);
  });
});

function typesOf(value: unknown): unknown {
  if (Array.isArray(value)) return 'list';
  if (typeof value !== 'object' || value === null) return typeof value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, typesOf(part)]));
}

describe('the records beside a registry', () => {
  let root: string;
  const files = (): HostFiles => new HostFiles(root);
  const put = (name: string, text: string): Promise<void> =>
    writeFile(join(root, 'quay/.oc-mirror-registry', name), text, { mode: 0o600 });
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'records-'));
    await mkdir(join(root, 'quay/.oc-mirror-registry'), { recursive: true, mode: 0o700 });
  });
  afterEach(() => rm(root, { recursive: true }));

  it('are refused with advice if the list of written files is damaged', async () => {
    const state = new StateFolder(files(), installation);
    for (const text of ['', '{', 'null', '{}', '[null]', '[1]']) {
      await put('written.json', text);
      const { hint } = await failureOf(readWritten(state), 'invalid-file');
      expect(hint, text).to.include('Move it away');
    }
    await put('written.json', `["${sha256}"]`);
    expect(await readWritten(state)).to.deep.equal([sha256]);
  });
});

describe('folderOfFile', () => {
  it('knows the files of an installation, and no path that leads elsewhere', () => {
    const configuration = '/quay/quay-config';
    for (const [path, folder] of [
      [`${configuration}/config.yaml`, '/quay'],
      [`${configuration}/extra_ca_certs/ca.crt`, '/quay'],
      ['/units/quay-app.service', '/units'],
      ['/units/quay-app.service.d/own.conf', '/units'],
      [`${configuration}/extra_ca_certs/..`, undefined],
      [`${configuration}/extra_ca_certs/below/ca.crt`, undefined],
      ['/units/quay-app.service.d/own.txt', undefined],
      ['/units/sshd.service', undefined],
      ['/etc/passwd', undefined],
    ] as const)
      expect(folderOfFile(installation, path), path).to.equal(folder);
  });
});
