import { join } from 'node:path';
import { ignoring, PluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import type { DetectedInstallation } from '../detect/detect.ts';
import type { HostAccess, Installation } from '../installation/installation.ts';
import {
  checkDatabase,
  copyDatabase,
  locateStorage,
  requireDatabaseCopy,
  restoreDatabase,
  sizeOfDatabase,
} from './database.ts';
import { readAccount, type PostgresAccount } from './migrationPlan.ts';
import { stopUnits } from './restart.ts';
import type { UpgradeJournal } from './upgradeJournal.ts';

/**
 * How the database of a registry is copied and restored while its units are stopped. `folder` has the database, `copy`
 * is a folder of this program. All functions throw `command-failed`.
 */
export interface DatabaseKind {
  /** The units that use the database, in the order in which they stop. */
  readonly units: readonly string[];
  /** Returns the size in bytes. */
  size(commands: HostCommands, folder: string): Promise<number>;
  copy(commands: HostCommands, folder: string, copy: string): Promise<void>;
  /** Checks the content of a copy. Throws `invalid-file`. */
  check(commands: HostCommands, copy: string): Promise<void>;
  /** Checks that a copy exists. Throws `invalid-file`. */
  requireCopy(commands: HostCommands, copy: string): Promise<void>;
  digest(commands: HostCommands, copy: string): Promise<string>;
  restore(commands: HostCommands, copy: string, folder: string): Promise<void>;
  /** Removes files of a copy that only the user of the container may remove. */
  removeCopy(commands: HostCommands, copy: string): Promise<void>;
}

const sqlite: DatabaseKind = {
  units: ['quay-app'],
  size: sizeOfDatabase,
  copy: copyDatabase,
  check: checkDatabase,
  requireCopy: (_commands, copy) => requireDatabaseCopy(copy),
  digest: (commands, copy) => commands.digestOf(copy, ['-maxdepth', '1', '-name', 'quay_sqlite.db*']),
  restore: restoreDatabase,
  removeCopy: () => Promise.resolve(),
};

/** The folder of PostgreSQL in a copy. It belongs to the user of the container. */
const copyName = 'postgres';

/** Where the server has its data in that folder: the image of the installers has it in `userdata`. */
const dataFolders = ['userdata', '.'];

/** The folder of a server that has ended is its complete state. The server repairs it if it was killed. */
const postgres: DatabaseKind = {
  units: ['quay-app', 'quay-postgres'],
  size: (commands, folder) => commands.sizeOfFolder(folder),
  copy: async (commands, folder, copy) => {
    await postgres.removeCopy(commands, copy);
    await commands.copyFolder(folder, join(copy, copyName));
  },
  check: (commands, copy) => postgres.requireCopy(commands, copy),
  requireCopy: async (commands, copy) => {
    for (const folder of dataFolders) {
      const names = await commands.list(join(copy, copyName, folder)).catch(ignoring('command-failed'));
      if (names?.some(({ name }) => name === 'PG_VERSION')) return;
    }
    throw new PluginError('invalid-file', 'the backup of the database is incomplete: PG_VERSION is missing');
  },
  digest: (commands, copy) => commands.digestOf(join(copy, copyName), []),
  restore: (commands, copy, folder) => commands.replaceFolder(join(copy, copyName), folder),
  removeCopy: (commands, copy) => commands.removeFolder(join(copy, copyName)),
};

/** Returns how the database of a journal is copied and restored: that of PostgreSQL, or else of SQLite. */
export function kindOf({ isPostgres = false }: Pick<UpgradeJournal, 'isPostgres'>): DatabaseKind {
  return isPostgres ? postgres : sqlite;
}

/** The database of a registry, and its folder on this machine. */
export interface FoundDatabase {
  readonly kind: DatabaseKind;
  readonly folder: string;
}

/** Finds the database of a registry; undefined if its units name none. Throws `command-failed`. */
export async function findDatabase(
  host: HostAccess,
  { database, databaseStorage }: Installation,
): Promise<FoundDatabase | undefined> {
  if (!databaseStorage) return undefined;
  const folder = await locateStorage(host, databaseStorage.value);
  return { kind: database === 'postgres' ? postgres : sqlite, folder };
}

/**
 * Finds the same, with the account of Quay if it is of PostgreSQL. Throws `unsupported` with a hint if it is not the
 * database of the installer.
 */
export async function requireDatabase(
  host: HostAccess,
  detected: DetectedInstallation,
  hint?: string,
): Promise<FoundDatabase & { readonly account: PostgresAccount | undefined }> {
  const { installation } = detected;
  const database = await findDatabase(host, installation);
  const account = readAccount(detected);
  if (database && (account || installation.database === 'sqlite')) return { ...database, account };
  throw new PluginError('unsupported', 'the database of this registry is not the one of its installer', { hint });
}

/**
 * Returns the kind and the folder of the database that a registry has after a change; undefined if the change does not
 * concern it. Throws `command-failed`.
 */
export async function findNewer(
  host: HostAccess,
  journal: Pick<UpgradeJournal, 'isPostgres' | 'database' | 'migration'>,
): Promise<FoundDatabase | undefined> {
  const { database, migration } = journal;
  if (migration) return { kind: sqlite, folder: await locateStorage(host, migration.storage) };
  return database === undefined ? undefined : { kind: kindOf(journal), folder: database };
}

/** Stops the units that use a database. Throws as `stopUnits`. */
export function stopDatabase(commands: HostCommands, journal: Pick<UpgradeJournal, 'isPostgres'>): Promise<void> {
  return stopUnits(commands, kindOf(journal).units);
}
