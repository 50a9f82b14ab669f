import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { HostCommands } from './hostCommands.ts';
import type { HostFiles } from './hostFiles.ts';
import type { Installation } from './installation.ts';

const databaseName = /^quay_sqlite\.db(?:-wal|-shm)?$/;

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
