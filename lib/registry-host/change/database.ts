import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sumSizes } from '#content/oci';
import { isPluginError, messageOf, PluginError } from '#errors';
import { type HostCommands, openMachineFolder } from '#node/machine';
import type { HostAccess } from '../installation/installation.ts';

/** The files of a database: the main file, and the files that SQLite creates beside it. */
const databaseName = /^quay_sqlite\.db(?:-wal|-shm|-journal)?$/;

const mainName = 'quay_sqlite.db';

/** Returns the folder of a volume, or a folder of the host, on this machine. Throws `command-failed`. */
export async function locateStorage({ files, commands }: HostAccess, storage: string): Promise<string> {
  if (storage.startsWith('/')) return files.locate(await files.resolve(storage));
  return (await commands.podman(['volume', 'inspect', '--format', '{{.Mountpoint}}', storage])).trim();
}

/** Returns the size of a database with its log, in bytes. Throws `command-failed`. */
export async function sizeOfDatabase(commands: HostCommands, folder: string): Promise<number> {
  return sumSizes(await listDatabase(commands, folder));
}

/**
 * Copies a database that no process uses, with its log, owners and modes. Throws `command-failed` and `invalid-file`.
 */
export async function copyDatabase(commands: HostCommands, from: string, to: string): Promise<void> {
  const names = (await listDatabase(commands, from)).map(({ name }) => name);
  await copyFiles(commands, from, to, names);
}

/** Removes all files of a database. Throws `command-failed` and `invalid-file`. */
export async function removeDatabase(commands: HostCommands, folder: string): Promise<void> {
  for (const { name } of await listDatabase(commands, folder)) {
    await removeFrom(commands, folder, name);
    await removeFrom(commands, folder, partialOf(name));
  }
}

/** Checks that a folder has a copy of a database. Throws `invalid-file`. */
export async function requireDatabaseCopy(folder: string): Promise<void> {
  if ((await readdir(folder)).includes(mainName)) return;
  throw new PluginError('invalid-file', `the backup of the database is incomplete: ${mainName} is missing`);
}

/**
 * Checks the integrity of a copy of a database with SQLite. Uses another copy, because SQLite writes beside a database.
 * Throws `invalid-file` for a corrupt one, and `command-failed`.
 */
export async function checkDatabase(commands: HostCommands, folder: string): Promise<void> {
  const scratch = join(folder, 'check');
  try {
    await recoverDatabase(commands, folder, scratch);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/**
 * Puts a database in place of the present one, with the owner and mode that the copy of that in `backup` has. Quay must
 * be stopped. Throws `command-failed` and `invalid-file`.
 */
export async function replaceDatabase(
  commands: HostCommands,
  { replacement, backup, database }: Readonly<Record<'replacement' | 'backup' | 'database', string>>,
): Promise<void> {
  await requireDatabaseCopy(replacement);
  const fresh = join(replacement, mainName);
  if ((await readdir(backup)).includes(mainName)) await commands.copyAttributes(join(backup, mainName), fresh);
  // The user and the group of Quay’s image.
  else await commands.setAttributes(fresh, '1001:0', '0664');
  await restoreDatabase(commands, replacement, database);
}

/**
 * Copies a database from a folder, as the current user, and completes what its log began. Returns the path of the copy,
 * which is one file. Throws `invalid-file` for a damaged or missing one, and `command-failed`.
 */
export async function recoverDatabase(
  commands: HostCommands,
  folder: string,
  scratch: string,
  what = 'the database of the registry',
): Promise<string> {
  await rm(scratch, { recursive: true, force: true });
  await mkdir(scratch, { mode: 0o700 });
  const names = (await readdir(folder)).filter((name) => databaseName.test(name));
  if (commands.scope === 'system') await copyFiles(commands, folder, scratch, names);
  else for (const name of names) await commands.copyAsOwn(join(folder, name), join(scratch, name));
  const path = join(scratch, mainName);
  const damage = names.includes(mainName) ? await findDamage(path) : 'it is missing';
  if (damage === undefined) return path;
  throw new PluginError('invalid-file', `${what} is damaged: ${damage}`, {
    hint: 'Repair it with sqlite3, or restore it from a backup.',
  });
}

async function findDamage(path: string): Promise<string | undefined> {
  const { DatabaseSync } = await import('node:sqlite');
  try {
    using database = new DatabaseSync(path);
    const rows = database.prepare('PRAGMA integrity_check').all();
    // SQLite takes a file of a few bytes for a new database.
    if (database.prepare('SELECT 1 FROM sqlite_schema').get() === undefined) return 'it has no tables';
    const lines = rows.map(({ integrity_check: line }) => String(line));
    return lines.length === 1 && lines[0] === 'ok' ? undefined : (lines[0] ?? 'the check printed nothing');
  } catch (error) {
    return messageOf(error);
  }
}

/**
 * Restores a copy of a database, and removes log files that the copy does not have. Quay must be stopped. An
 * interrupted run leaves the whole old or the whole restored file; no file, if the disk has no space for both. Throws
 * `command-failed`, `disk-full` and `invalid-file`.
 */
export async function restoreDatabase(commands: HostCommands, from: string, to: string): Promise<void> {
  const kept = (await readdir(from)).filter((name) => databaseName.test(name));
  const stage = (): Promise<void> => copyFiles(commands, from, to, kept, partialOf);
  const removeLogs = async (): Promise<void> => {
    for (const { name } of await listDatabase(commands, to)) {
      if (name !== mainName) await removeFrom(commands, to, name);
    }
  };
  try {
    await stage();
  } catch (error) {
    if (!isPluginError(error, 'disk-full') && !messageOf(error).includes(': No space left')) throw error;
    await removeLogs();
    for (const name of [mainName, ...kept.map(partialOf)]) await removeFrom(commands, to, name);
    await stage();
  }
  // SQLite would apply the log of the newer Quay to the old database.
  await removeLogs();
  for (const name of kept.sort()) await renameIn(commands, to, partialOf(name), name);
}

/** Returns the name of a file that is not complete. */
function partialOf(name: string): string {
  return `${name}.partial`;
}

/** Copies files with owners and modes. In the scope of a user, podman copies them as the users of the containers. */
async function copyFiles(
  commands: HostCommands,
  from: string,
  to: string,
  names: readonly string[],
  rename = (name: string): string => name,
): Promise<void> {
  if (commands.scope === 'user') {
    for (const name of names) await commands.copy(join(from, name), join(to, rename(name)));
    return;
  }
  await using source = await openMachineFolder(from);
  await using target = await openMachineFolder(to);
  for (const name of names) await source.copyFile(name, target, commands.signal, rename(name));
}

async function renameIn(commands: HostCommands, path: string, from: string, to: string): Promise<void> {
  if (commands.scope === 'user') {
    await commands.rename(join(path, from), join(path, to));
    return;
  }
  await using folder = await openMachineFolder(path);
  await folder.rename(from, to);
}

async function removeFrom(commands: HostCommands, path: string, name: string): Promise<void> {
  if (commands.scope === 'user') {
    await commands.remove(join(path, name));
    return;
  }
  await using folder = await openMachineFolder(path);
  await folder.remove(name);
}

async function listFiles(
  commands: HostCommands,
  path: string,
): Promise<{ readonly name: string; readonly size: number; readonly isFile: boolean }[]> {
  if (commands.scope === 'user') return commands.list(path);
  await using folder = await openMachineFolder(path);
  const all = (await folder.list()).map(async (name) => ({ name, found: await folder.find(name) }));
  return (await Promise.all(all)).flatMap(({ name, found }) => {
    return found ? [{ name, size: found.size, isFile: found.isFile() }] : [];
  });
}

/** Lists the files of a database, whose folder may belong to a user of podman. Throws `invalid-file` for a link. */
async function listDatabase(
  commands: HostCommands,
  folder: string,
): Promise<{ readonly name: string; readonly size: number }[]> {
  const files = (await listFiles(commands, folder)).filter(({ name }) => databaseName.test(name));
  const stray = files.find(({ isFile }) => !isFile);
  if (!stray) return files;
  throw new PluginError('invalid-file', `${join(folder, stray.name)} is not a regular file`, {
    hint: 'Replace it with the database that it leads to.',
  });
}
