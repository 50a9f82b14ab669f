import { StringDecoder } from 'node:string_decoder';
import { PluginError } from '../../errors.ts';

/** A table in a dump, with the columns that its rows have. */
export interface DumpedTable {
  readonly name: string;
  readonly columns: readonly string[];
}

/** The values of a row as PostgreSQL prints them; null is `NULL`. */
export type DumpedRow = readonly (string | null)[];

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
