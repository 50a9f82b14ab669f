import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, PluginError } from '../errors.ts';
import type { HostCommands } from './hostCommands.ts';
import type { HostFiles } from './hostFiles.ts';
import type { Installation } from './installation.ts';

/** The files of a database: itself, and what SQLite keeps beside it. */
export const databaseName = /^quay_sqlite\.db(?:-wal|-shm)?$/;

/** The folder of a registry’s database, as this machine has it; undefined where it keeps none in a file. Throws `command-failed`. */
export async function findDatabase(
  files: HostFiles,
  commands: HostCommands,
  { databaseStorage }: Installation,
  signal: AbortSignal,
): Promise<string | undefined> {
  const storage = databaseStorage?.value;
  if (storage === undefined) return undefined;
  if (storage.startsWith('/')) return files.locate(storage);
  return (await commands.podman(['volume', 'inspect', '--format', '{{.Mountpoint}}', storage], signal)).trim();
}

/** Copies a database that nobody has open, with its log, owners and modes. Throws `command-failed`. */
export async function copyDatabase(
  commands: HostCommands,
  from: string,
  to: string,
  signal: AbortSignal,
): Promise<void> {
  const names = (await readdir(from)).filter((name) => databaseName.test(name));
  for (const name of names) await commands.copy(join(from, name), join(to, name), signal);
}

/**
 * Has SQLite check a copy of a database from its first page to its last. That is done on one more copy, since to open one is to write
 * beside it. Throws `invalid-file` for a damaged one, and `command-failed`.
 */
export async function checkDatabase(commands: HostCommands, folder: string, signal: AbortSignal): Promise<void> {
  const scratch = join(folder, 'check');
  await rm(scratch, { recursive: true, force: true });
  await mkdir(scratch, { mode: 0o700 });
  try {
    const names = (await readdir(folder)).filter((name) => databaseName.test(name));
    for (const name of names) await commands.copyAsOwn(join(folder, name), join(scratch, name), signal);
    const [database] = names;
    const found = database === undefined ? 'it is not there' : await findDamage(join(scratch, database));
    if (found === undefined) return;
    throw new PluginError('invalid-file', `the database of the registry is damaged: ${found}`, {
      hint: 'A newer Quay would have to change it. Mend it first, with the sqlite3 program or from a backup.',
    });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function findDamage(path: string): Promise<string | undefined> {
  const { DatabaseSync } = await import('node:sqlite');
  try {
    using database = new DatabaseSync(path);
    const rows = database.prepare('PRAGMA integrity_check').all();
    const said = rows.map(({ integrity_check: line }) => String(line));
    return said.length === 1 && said[0] === 'ok' ? undefined : (said[0] ?? 'it says nothing');
  } catch (error) {
    return messageOf(error);
  }
}

/** Brings a copy of a database back, and takes away what its log did not have then. Throws `command-failed`. */
export async function restoreDatabase(
  commands: HostCommands,
  from: string,
  to: string,
  signal: AbortSignal,
): Promise<void> {
  const kept = (await readdir(from)).filter((name) => databaseName.test(name));
  // What a newer Quay left in a log of its own would be applied to the old database.
  for (const name of (await readdir(to)).filter((each) => databaseName.test(each) && !kept.includes(each))) {
    await commands.remove(join(to, name), signal);
  }
  for (const name of kept) await commands.copy(join(from, name), join(to, name), signal);
}
