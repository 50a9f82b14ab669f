import { join } from 'node:path';
import { isPluginError, PluginError } from '../../errors.ts';
import type { HostCommands } from '../../node/machine/hostCommands.ts';
import type { HostFiles } from '../../node/machine/hostFiles.ts';
import {
  checkDatabase,
  copyDatabase,
  locateStorage,
  requireDatabaseCopy,
  restoreDatabase,
  sizeOfDatabase,
} from './database.ts';
import type { UpgradeJournal } from './upgradeJournal.ts';

/**
 * How the database of a registry is copied and restored while its units are stopped. `folder` has the database, `copy`
 * is a folder of this program. All functions throw `command-failed`.
 */
export interface DatabaseKind {
  /** The units that use the database, in the order in which they stop. */
  readonly units: readonly string[];
  /** Returns the size in bytes. */
  size(commands: HostCommands, folder: string, signal: AbortSignal): Promise<number>;
  copy(commands: HostCommands, folder: string, copy: string, signal: AbortSignal): Promise<void>;
  /** Checks the content of a copy. Throws `invalid-file`. */
  check(commands: HostCommands, copy: string, signal: AbortSignal): Promise<void>;
  /** Checks that a copy exists. Throws `invalid-file`. */
  requireCopy(commands: HostCommands, copy: string, signal: AbortSignal): Promise<void>;
  /** Returns a digest of the files of a copy. */
  digest(commands: HostCommands, copy: string, signal: AbortSignal): Promise<string>;
  restore(commands: HostCommands, copy: string, folder: string, signal: AbortSignal): Promise<void>;
  /** Removes files of a copy that only the user of the container may remove. */
  removeCopy(commands: HostCommands, copy: string, signal: AbortSignal): Promise<void>;
}

const sqlite: DatabaseKind = {
  units: ['quay-app'],
  size: sizeOfDatabase,
  copy: copyDatabase,
  check: checkDatabase,
  requireCopy: (_commands, copy) => requireDatabaseCopy(copy),
  digest: (commands, copy, signal) => commands.digestOf(copy, ['-maxdepth', '1', '-name', 'quay_sqlite.db*'], signal),
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
  size: (commands, folder, signal) => commands.sizeOfFolder(folder, signal),
  copy: async (commands, folder, copy, signal) => {
    await requireStopped(commands, signal);
    await postgres.removeCopy(commands, copy, signal);
    await commands.copyFolder(folder, join(copy, copyName), signal);
  },
  check: (commands, copy, signal) => postgres.requireCopy(commands, copy, signal),
  requireCopy: async (commands, copy, signal) => {
    for (const folder of dataFolders) {
      const names = await commands.list(join(copy, copyName, folder), signal).catch((error: unknown) => {
        if (isPluginError(error, 'command-failed')) return [];
        throw error;
      });
      if (names.some(({ name }) => name === 'PG_VERSION')) return;
    }
    throw new PluginError('invalid-file', 'the backup of the database is incomplete: PG_VERSION is missing');
  },
  digest: (commands, copy, signal) => commands.digestOf(join(copy, copyName), [], signal),
  restore: async (commands, copy, folder, signal) => {
    await requireStopped(commands, signal);
    await commands.replaceFolder(join(copy, copyName), folder, signal);
  },
  removeCopy: (commands, copy, signal) => commands.removeFolder(join(copy, copyName), signal),
};

/** Returns the kind of a database. */
export function kindOf({ isPostgres = false }: Pick<UpgradeJournal, 'isPostgres'>): DatabaseKind {
  return isPostgres ? postgres : sqlite;
}

/**
 * Returns the kind and the folder of the database that a registry has after a change; undefined if the change does not
 * concern it. Throws `command-failed`.
 */
export async function findNewer(
  { files, commands }: { readonly files: HostFiles; readonly commands: HostCommands },
  journal: Pick<UpgradeJournal, 'isPostgres' | 'database' | 'migration'>,
  signal: AbortSignal,
): Promise<{ readonly kind: DatabaseKind; readonly folder: string } | undefined> {
  const { database, migration } = journal;
  if (migration) return { kind: sqlite, folder: await locateStorage(files, commands, migration.storage, signal) };
  return database === undefined ? undefined : { kind: kindOf(journal), folder: database };
}

/** Stops the units that use a database. Throws `command-failed`. */
export async function stopDatabase(
  commands: HostCommands,
  journal: Pick<UpgradeJournal, 'isPostgres'>,
  signal: AbortSignal,
): Promise<void> {
  for (const unit of kindOf(journal).units) await commands.systemctl(['stop', `${unit}.service`], signal);
}

/** Throws `busy` if the container of PostgreSQL runs. systemd may not know it. */
async function requireStopped(commands: HostCommands, signal: AbortSignal): Promise<void> {
  const words = ['ps', '--quiet', '--filter', 'name=^quay-postgres$', '--filter', 'status=running'];
  if ((await commands.podman(words, signal)).trim() === '') return;
  throw new PluginError('busy', 'the container quay-postgres runs, although its unit is stopped', {
    hint: 'Stop it: podman stop quay-postgres.',
  });
}
