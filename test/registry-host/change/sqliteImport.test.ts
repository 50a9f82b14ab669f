import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { importDump } from '../../../lib/registry-host/change/sqliteImport.ts';
import { migrateSqlite } from '../../fakes/mirror-registry/standInSchema.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';

const end = '--\n-- PostgreSQL database dump complete\n--\n';
const version = 'COPY public.alembic_version (version_num) FROM stdin;\nquay312\n\\.\n';

describe('importDump', () => {
  let folder: string;
  let path: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'import-'));
    path = join(folder, 'quay_sqlite.db');
    migrateSqlite(path, 'quay-rhel8:v3.12.18');
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  async function* chunksOf(text: string, size: number): AsyncGenerator<Buffer> {
    const bytes = Buffer.from(text);
    for (let start = 0; start < bytes.length; start += size) {
      await Promise.resolve();
      yield bytes.subarray(start, start + size);
    }
  }

  it('reads values over the borders of chunks, quoted names, and columns in another order', async () => {
    const user =
      'COPY public."user" (verified, id, "username", company) FROM ' +
      `stdin;\nt\t7\tgrüße\\t\\\\N\t\\N\nf\t8\tt\t\n\\.\n`;
    const text = `SET client_encoding = 'UTF8';\n${version}${user}SELECT pg_catalog.setval('x', 9, true);\n${end}`;
    const expected = { tables: 2, rows: 3 };
    for (const size of [1, 7, 100_000]) expect(await importDump(path, chunksOf(text, size))).to.deep.equal(expected);
    using database = new DatabaseSync(path, { readOnly: true });
    const rows = database.prepare('SELECT id, username, verified, company FROM "user" ORDER BY id').all();
    expect(rows.map((row) => Object.values(row))).to.deep.equal([
      [7, 'grüße\t\\N', 1, null],
      [8, 't', 0, ''],
    ]);
    expect(database.prepare('SELECT count(*) AS count FROM role').get()).to.deep.include({ count: 0 });
  });

  it('reads bytes from their hexadecimal form', async () => {
    {
      using database = new DatabaseSync(path);
      database.exec('CREATE TABLE piece (id INTEGER, content BLOB)');
    }
    const rows = 'COPY public.piece (id, content) FROM stdin;\n1\t\\\\x00ff\n2\t\\N\n\\.\n';
    await importDump(path, chunksOf(`${version}${rows}${end}`, 16));
    using database = new DatabaseSync(path, { readOnly: true });
    const [first, second] = database.prepare('SELECT content FROM piece ORDER BY id').all();
    expect([first?.['content'], second?.['content']]).to.deep.equal([new Uint8Array([0, 255]), null]);
  });

  const role = (rows: string): string => `${version}COPY public.role (id, name) FROM stdin;\n${rows}\\.\n`;
  for (const [what, text, code, words] of [
    ['half a table', `${version}COPY public.role (id, name) FROM stdin;\n1\tadmin\n`, 'incomplete', 'end is missing'],
    ['a dump without its end', role('1\tadmin\n'), 'incomplete', 'end is missing'],
    ['a row twice', role('1\tadmin\n1\tread\n') + end, 'invalid-file', 'table role in PostgreSQL does not fit'],
    ['a row with another number of values', role('1\n') + end, 'invalid-file', '1 values, and 2 columns'],
    [
      'rows of an unknown table',
      `${version}COPY public.x (a) FROM stdin;\n1\n\\.\n${end}`,
      'invalid-file',
      'no such table',
    ],
    [
      'a value of an unknown column',
      `COPY public.role (id, x) FROM stdin;\n1\t2\n\\.\n${end}`,
      'invalid-file',
      'no column x',
    ],
    ['another version of the schema', `${role('')}${end}`.replace('quay312', 'quay38'), 'conflict', 'version quay38'],
  ] as const) {
    it(`refuses ${what}`, async () => {
      expect((await failureOf(importDump(path, chunksOf(text, 16)), code)).message).to.include(words);
    });
  }

  it('says that the disk is full, and not that a row does not fit', async function () {
    await requireRoot(this);
    await runSuccessfully('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', folder]);
    try {
      migrateSqlite(path, 'quay-rhel8:v3.12.18');
      // More than SQLite keeps in memory.
      const rows = Array.from({ length: 100 }, (_, id) => `${id}\t${'x'.repeat(64 * 1024)}\n`);
      const { message } = await failureOf(importDump(path, chunksOf(role(rows.join('')) + end, 65_536)), 'disk-full');
      expect(message).to.equal(`the disk is full: ${path} could not be written`);
    } finally {
      await runSuccessfully('umount', [folder]);
    }
  });
});
