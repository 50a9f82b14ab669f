import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { ErrorCode } from '../../../lib/errors.ts';
import { writeBackup } from '../../../lib/registry-host/backup/backup.ts';
import type { BackupFacts } from '../../../lib/registry-host/backup/backupFormat.ts';
import { Backup } from '../../../lib/registry-host/backup/backupReader.ts';
import { writeBackupFile, writeEntries } from '../../fakes/mirror-registry/backupFile.ts';
import { failureOf } from '../../support/program/failure.ts';

const { signal } = new AbortController();
const facts: BackupFacts = {
  format: 1,
  created: '2026-11-20T10:00:00.000Z',
  version: '2.0.7',
  quay: 'registry.redhat.io/quay/quay-rhel8:v3.12.8',
  hostname: 'registry.example.com:8443',
  hasImages: true,
};
const config = 'quay-config/config.yaml';
const database = 'database/quay_sqlite.db';
/** A name that no header can hold without an extended one. */
const longName = `images/${'a'.repeat(200)}`;
const own = {
  [config]: 'SERVER_HOSTNAME: registry.example.com:8443\n',
  [database]: Buffer.alloc(300_000, 'row'),
  'images/sha256/aa/one': 'one',
  [longName]: 'two',
};

describe('Backup', () => {
  let folder: string;
  let file: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backup-reader-'));
    file = join(folder, 'registry.tar');
  });
  afterEach(() => rm(folder, { recursive: true }));

  const write = (files: Record<string, string | Buffer>, changed?: object): Promise<void> =>
    writeBackupFile(file, facts, files, changed);
  /** Changes the first header, whose checksum stays correct. */
  async function changeHeader(at: number, text: string): Promise<void> {
    await write(own);
    const bytes = await readFile(file);
    bytes.write(text, at, 'latin1').toString();
    const sum = bytes
      .subarray(0, 512)
      .fill(' ', 148, 156)
      .reduce((total, byte) => total + byte, 0);
    bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    await writeFile(file, bytes);
  }
  async function expectRefused(words: string, code: ErrorCode = 'invalid-file'): Promise<void> {
    const { message } = await failureOf(Backup.open(file, signal), code);
    expect(message.slice(file.length), message).to.include(words);
  }

  it('reads the files that writeBackup wrote, by their paths', async () => {
    const packed = async function* () {
      for (const [path, text] of Object.entries(own)) {
        const content = Buffer.from(text);
        yield await Promise.resolve({ path, size: content.length, content: [content] });
      }
    };
    const manifest = await writeBackup(file, facts, packed());
    await using backup = await Backup.open(file, signal);
    expect(backup.manifest).to.deep.equal(manifest);
    await backup.verify(signal);
    for (const entry of manifest.files) {
      const chunks: Buffer[] = [];
      for await (const chunk of backup.content(entry, signal)) chunks.push(chunk);
      expect(Buffer.concat(chunks).equals(Buffer.from(own[entry.path] ?? '')), entry.path).to.equal(true);
      expect((await backup.head(entry, 3, signal)).toString()).to.equal(own[entry.path]?.toString().slice(0, 3));
    }
    expect([...(await backup.readSmall(signal)).keys()]).to.deep.equal([config]);
  });

  it('refuses files that a backup does not have', async () => {
    for (const path of ['quay-config/extra_ca_certs/../../etc/passwd', '/etc/passwd', 'quay-config/run.sh', '../a']) {
      await write({ ...own, [path]: '' });
      await expectRefused('it has another header than a backup');
    }
    await write({ ...own, 'quay-config/ssl.cert': Buffer.alloc(5 << 20) });
    await expectRefused('quay-config/ssl.cert is too large');
  });

  it('refuses entries of another kind or owner, although their headers are correct', async () => {
    for (const [at, text] of [
      [156, '2'],
      [108, '0001751'],
      [100, '0004755'],
    ] as const) {
      await changeHeader(at, text);
      await expectRefused('at byte 0, it has another header than a backup');
    }
  });

  it('refuses a manifest of another form, and names a newer format', async () => {
    for (const changed of [{ format: 0 }, { hostname: '\u001b[2J' }, { quay: 'a b' }, { hasImages: 1 }, { files: 1 }]) {
      await write(own, changed);
      await expectRefused('its manifest is malformed');
    }
    await write(own, { format: 2 });
    await expectRefused('has a newer format, 2', 'unsupported');
    const entries = Object.entries(own).map(([path, text]) => ({ path, content: Buffer.from(text) }));
    await writeEntries(file, entries);
    await expectRefused('it has no manifest');
    await writeEntries(file, [...entries, { path: 'manifest.json', content: Buffer.from('{') }]);
    await expectRefused('its manifest is not JSON');
  });

  it('refuses other files than its manifest names, in another order, twice, or without a configuration or database', async () => {
    const { [database]: db, ...others } = own;
    await write(others);
    await expectRefused(`${database} is missing`);
    await write({ ...own, 'database/quay.sql': '' });
    await expectRefused('it has two databases');
    const { [config]: _, ...rest } = own;
    await write(rest);
    await expectRefused(`${config} is missing`);
    const entry = { path: database, size: db.length, sha256: 'a'.repeat(64) };
    const list = { path: config, size: own[config].length, sha256: 'b'.repeat(64) };
    for (const files of [[list], [entry, list], [list, { ...entry, size: 1 }], [list, { ...entry, sha256: 'x' }]]) {
      await write({ [config]: own[config], [database]: db }, { files });
      await expectRefused('its manifest names other files than it has');
    }
    const content = Buffer.from(own[config]);
    const manifest = Buffer.from(JSON.stringify({ ...facts, files: [list, list] }));
    const twice = [config, config].map((path) => ({ path, content }));
    await writeEntries(file, [...twice, { path: 'manifest.json', content: manifest }]);
    await expectRefused('it has a file twice');
  });

  it('refuses a truncated file, and one with more after its end', async () => {
    await write(own);
    const bytes = await readFile(file);
    for (const size of [bytes.length - 512, 200_000, 700, 100]) {
      await writeFile(file, bytes.subarray(0, size));
      await expectRefused('is truncated');
    }
    await writeFile(file, Buffer.concat([bytes, Buffer.alloc(512)]));
    await expectRefused('more than a backup');
  });

  it('refuses a file that other users can write, and any that is not a regular one', async () => {
    await write(own);
    for (const mode of [0o620, 0o602]) {
      await chmod(file, mode);
      await expectRefused('cannot be trusted: other users can write it', 'not-readable');
    }
    const { message } = await failureOf(Backup.open(folder, signal), 'not-readable');
    expect(message).to.equal(`${folder} is not a regular file`);
  });

  it('finds a corrupt file before its last bytes leave', async () => {
    await write(own);
    const bytes = await readFile(file);
    await writeFile(file, bytes.fill('X', bytes.indexOf('rowrow'), bytes.indexOf('rowrow') + 1));
    await using backup = await Backup.open(file, signal);
    const entry = backup.manifest.files.find(({ path }) => path === database) ?? expect.fail('there is none');
    let size = 0;
    const read = async (): Promise<void> => {
      for await (const chunk of backup.content(entry, signal)) size += chunk.length;
    };
    expect((await failureOf(read(), 'digest-mismatch')).message).to.equal(
      `${file} is corrupt: ${database} has another digest`,
    );
    expect(size).to.be.below(entry.size);
    await failureOf(backup.verify(signal), 'digest-mismatch');
    expect((await backup.readSmall(signal)).get(config)?.toString()).to.equal(own[config]);
  });
});
