import { open } from 'node:fs/promises';
import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { StringDecoder } from 'node:string_decoder';
import { isPluginError, messageOf, PluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';

/** The declared types of the columns of a table, by name. */
type Columns = ReadonlyMap<string, string>;

/** The size of an import. */
interface ImportResult {
  readonly tables: number;
  readonly rows: number;
}

/**
 * Replaces all rows of a database of SQLite by those of a dump of PostgreSQL, and checks their number. Both must have
 * the schema of the same version of Quay. Writes the file to the disk. Throws `incomplete` for half a dump,
 * `invalid-file` for rows that do not fit, `conflict` for another schema, `disk-full`, and the errors of `dump`.
 */
export async function importDump(path: string, dump: AsyncIterable<Buffer>): Promise<ImportResult> {
  try {
    return await importRows(path, dump);
  } catch (cause) {
    if (!isDiskFull(cause)) throw cause;
    throw new PluginError('disk-full', `the disk is full: ${path} could not be written`, { cause });
  }
}

/** Returns whether SQLite reports a full disk. */
function isDiskFull(error: unknown): boolean {
  return fieldsOf(error)['errcode'] === 13;
}

async function importRows(path: string, dump: AsyncIterable<Buffer>): Promise<ImportResult> {
  const { DatabaseSync } = await import('node:sqlite');
  const counts = new Map<string, number>();
  {
    // Rows refer to rows of tables that come later.
    using database = new DatabaseSync(path, { enableForeignKeyConstraints: false });
    database.exec('PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF');
    const version = readVersion(database);
    const tables = readTables(database);
    database.exec('BEGIN');
    for (const name of tables.keys()) database.exec(`DELETE FROM ${quote(name)}`);
    await readDump(dump, (table) => {
      const add = prepareInsert(database, table, tables.get(table.name));
      counts.set(table.name, 0);
      return (row) => {
        add(row);
        counts.set(table.name, (counts.get(table.name) ?? 0) + 1);
      };
    });
    database.exec('COMMIT');
    requireVersion(version, readVersion(database));
    for (const [name, count] of counts) if (tables.has(name)) requireCount(database, name, count);
  }
  await using file = await open(path, 'r+');
  await file.sync();
  return { tables: counts.size, rows: [...counts.values()].reduce((sum, count) => sum + count, 0) };
}

function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function readTables(database: DatabaseSync): Map<string, Columns> {
  const names = database
    .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    .all();
  return new Map(
    names.map((row) => {
      const table = textOf(fieldsOf(row)['name']) ?? '';
      const columns = database.prepare(`PRAGMA table_info(${quote(table)})`).all();
      const types = columns.map((each): [string, string] => [String(each['name']), String(each['type']).toUpperCase()]);
      return [table, new Map(types)];
    }),
  );
}

/** Returns the version of the schema, which Quay records; undefined if there is none. */
function readVersion(database: DatabaseSync): string | undefined {
  try {
    return textOf(fieldsOf(database.prepare('SELECT version_num FROM alembic_version').get())['version_num']);
  } catch {
    return undefined;
  }
}

function requireVersion(created: string | undefined, imported: string | undefined): void {
  if (created !== undefined && created === imported) return;
  const message =
    `PostgreSQL has version ${imported ?? '(none)'} of the schema, and Quay created ` +
    `version ${created ?? '(none)'}`;
  throw new PluginError('conflict', message);
}

function requireCount(database: DatabaseSync, table: string, expected: number): void {
  const count = Number(database.prepare(`SELECT count(*) AS count FROM ${quote(table)}`).get()?.['count']);
  if (count === expected) return;
  throw new PluginError('invalid-file', `the table ${table} has ${count} rows, and ${expected} in PostgreSQL`);
}

/** Returns a function that adds a row of a dump. Tables and columns that SQLite does not have must be empty. */
function prepareInsert(
  database: DatabaseSync,
  { name, columns }: DumpedTable,
  types: Columns | undefined,
): (row: DumpedRow) => void {
  const sharedColumns = columns.filter((column) => types?.has(column));
  const values = sharedColumns.map(() => '?').join(', ');
  const insert =
    sharedColumns.length > 0
      ? database.prepare(`INSERT INTO ${quote(name)} (${sharedColumns.map(quote).join(', ')}) VALUES (${values})`)
      : undefined;
  return (row) => {
    const fail = (why: string): PluginError =>
      new PluginError('invalid-file', `a row of the table ${name} in PostgreSQL does not fit: ${why}`);
    if (!insert) throw fail('the new Quay has no such table');
    if (row.length !== columns.length) throw fail(`it has ${row.length} values, and ${columns.length} columns`);
    const bound = columns.flatMap((column, index) => {
      const [type, value = null] = [types?.get(column), row[index]];
      if (type !== undefined) return [convert(value, type)];
      if (value !== null) throw fail(`the new Quay has no column ${column}`);
      return [];
    });
    try {
      insert.run(...bound);
    } catch (error) {
      throw isPluginError(error) || isDiskFull(error) ? error : fail(messageOf(error));
    }
  };
}

/**
 * Converts a value to that which Quay stores in a column of SQLite. SQLite itself turns numbers in columns of numbers
 * from text. Dates are text in both.
 */
function convert(value: string | null, type: string): SQLInputValue {
  if (value === null || /CHAR|CLOB|TEXT/.test(type)) return value;
  if (type.includes('BLOB')) return value.startsWith('\\x') ? Buffer.from(value.slice(2), 'hex') : value;
  return value === 't' ? 1 : value === 'f' ? 0 : value;
}

/** A table in a dump, with the columns that its rows have. */
interface DumpedTable {
  readonly name: string;
  readonly columns: readonly string[];
}

/** The values of a row as PostgreSQL prints them; null is `NULL`. */
type DumpedRow = readonly (string | null)[];

const head = /^COPY (?:(?:"(?:[^"]|"")+"|\w+)\.)?("(?:[^"]|"")+"|\w+) \((.*)\) FROM stdin;$/;
const end = '-- PostgreSQL database dump complete';

/**
 * Reads the output of `pg_dump --data-only`. Calls `openTable` for each table, and the function that it returns for
 * each row. Everything else in the dump is ignored. Throws `incomplete` if the end is missing, and the errors of
 * `chunks` and of the functions.
 */
export async function readDump(
  chunks: AsyncIterable<Buffer>,
  openTable: (table: DumpedTable) => (row: DumpedRow) => void,
): Promise<void> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  let addRow: ((row: DumpedRow) => void) | undefined;
  let isComplete = false;
  for await (const chunk of chunks) {
    const lines = (rest + decoder.write(chunk)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '\\.') addRow = undefined;
      else if (addRow) addRow(line.split('\t').map(readValue));
      else if (line.startsWith('COPY ')) addRow = openTable(readHead(line));
      else if (line === end) isComplete = true;
    }
  }
  if (isComplete && !addRow) return;
  throw new PluginError('incomplete', 'the dump of PostgreSQL is incomplete: its end is missing');
}

function readHead(line: string): DumpedTable {
  const [, name, columns] = head.exec(line) ?? [];
  if (name === undefined || columns === undefined) {
    throw new PluginError('invalid-file', `the dump of PostgreSQL has an unexpected line: ${line.slice(0, 100)}`);
  }
  return { name: readName(name), columns: (columns.match(/"(?:[^"]|"")+"|[^,\s]+/g) ?? []).map(readName) };
}

function readName(text: string): string {
  return text.startsWith('"') ? text.slice(1, -1).replaceAll('""', '"') : text;
}

const escapes: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' };

/** Reads a value in the text format of `COPY`. */
function readValue(text: string): string | null {
  if (!text.includes('\\')) return text;
  if (text === '\\N') return null;
  return text.replace(/\\(.)/gs, (_all, char: string) => escapes[char] ?? char);
}
