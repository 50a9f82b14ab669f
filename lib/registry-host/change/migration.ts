import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { checkSpace } from '#content/files';
import { PluginError } from '#errors';
import type { HostCommands, HostFiles } from '#node/machine';
import { editQuayConfiguration } from '../detect/configuration.ts';
import { expandSpecifiers } from '../detect/detect.ts';
import type { HostAccess } from '../installation/installation.ts';
import { scratchNames } from '../installation/stateFolder.ts';
import { locateStorage, recoverDatabase, removeDatabase, sizeOfDatabase } from './database.ts';
import { requireAccount, sqliteUri } from './migrationPlan.ts';
import type { ExecutionRequest, OpenRegistry } from './openRegistry.ts';
import { dumpPostgres, waitForPostgres } from './postgres.ts';
import { stopUnits } from './restart.ts';
import { importDump } from './sqliteImport.ts';
import type { DatabaseMigration } from './upgradeJournal.ts';

/** The container in which the new Quay creates schemas. */
const containerName = 'quay-migrate';

/** Options of a unit’s container that concern only its unit. */
const unitOptions = new Set([
  'name',
  'replace',
  'rm',
  'detach',
  'conmon-pidfile',
  'cidfile',
  'cgroups',
  'log-driver',
  'publish',
  'restart',
]);

/**
 * Checks, before anything stops, that the database can move: its new place has no database, and has space for `size`
 * bytes. Returns the move. Throws `conflict`, `disk-full` and `command-failed`.
 */
export async function prepareMigration(
  host: HostAccess,
  { image, storage }: Pick<DatabaseMigration, 'image' | 'storage'>,
  size: number,
): Promise<DatabaseMigration> {
  const creates = !(await hasStorage(host, storage));
  const isNewVolume = creates && !storage.startsWith('/');
  const folder = isNewVolume ? await locateNewVolume(host.commands, storage) : await locateStorage(host, storage);
  if (!creates && (await sizeOfDatabase(host.commands, folder)) > 0) {
    throw new PluginError('conflict', `${storage} already has a database of SQLite`, {
      hint: 'Nothing was changed. Move it away, or choose another volume or folder for the database.',
      settings: ['sqliteStorage'],
    });
  }
  await checkSpace(join(folder, 'each'), size);
  return { image, storage, creates };
}

/**
 * Reads the database of PostgreSQL into one of SQLite, in the folder `replacement` of this program. First the new Quay
 * updates the schema in PostgreSQL, and creates one in an empty database of SQLite. Quay is stopped, and no file of the
 * installation changes. Throws as `stopUnits` and `importDump`, and `unreachable` if PostgreSQL does not start.
 */
export async function migrateDatabase(registry: OpenRegistry, { image }: DatabaseMigration): Promise<void> {
  const { commands, detected, healthTimeout, records, context } = registry;
  const { state } = records;
  const account = requireAccount(detected);
  // A restart of the host may have started it since.
  await stopUnits(commands, ['quay-app']);
  await removeMigrationContainer(commands);
  await commands.systemctl(['restart', 'quay-postgres.service']);
  await waitForPostgres(commands, account, healthTimeout);
  context.log('info', 'updating the schema in PostgreSQL with the new Quay');
  await runMigrations(registry, image, new Map());

  const prepared = await prepareScratch(registry);
  context.log('info', 'creating the schema in SQLite');
  const mounts = new Map([
    ['/quay-registry/conf/stack', join(state.path, scratchNames.migration, 'quay-config')],
    ['/sqlite', join(state.path, scratchNames.migration, 'sqlite')],
  ]);
  await runMigrations(registry, image, mounts);
  const replacement = await state.locate(scratchNames.replacement);
  const path = await recoverDatabase(commands, join(prepared, 'sqlite'), replacement, 'the new database');
  context.log('info', 'reading PostgreSQL into SQLite');
  const { tables, rows } = await importDump(path, dumpPostgres(commands, account, 'rows'));
  context.log('info', `read ${rows} rows of ${tables} tables`);
  await state.remove(scratchNames.migration);
}

/**
 * Creates the volume or folder for the database of SQLite, if the change creates it, and returns its path on this
 * machine. Throws `command-failed`, `not-writable`.
 */
export async function createStorage(host: HostAccess, { storage, creates }: DatabaseMigration): Promise<string> {
  const { files, commands } = host;
  if (creates && !(await hasStorage(host, storage))) {
    if (storage.startsWith('/')) await makeFolder(files, storage);
    else await commands.podman(['volume', 'create', storage]);
  }
  const folder = await locateStorage(host, storage);
  // The user and the group of Quay’s image.
  if (creates && storage.startsWith('/')) await commands.setFolderAttributes(folder, '1001:0', '0770');
  return folder;
}

/** Removes everything that a move of the database created. Quay must be stopped. Throws `command-failed`. */
export async function undoMigration(registry: OpenRegistry, { storage, creates }: DatabaseMigration): Promise<void> {
  const { commands, records } = registry;
  await removeMigrationContainer(commands);
  await records.state.remove(scratchNames.migration);
  if (!(await hasStorage(registry, storage))) return;
  const folder = await locateStorage(registry, storage);
  if (!creates) await removeDatabase(commands, folder);
  else if (storage.startsWith('/')) await commands.removeFolder(folder);
  else {
    // A container that has ended still uses the volume.
    await commands.podman(['rm', '--force', '--ignore', 'quay-app']);
    await commands.podman(['volume', 'rm', storage]);
  }
}

async function makeFolder(files: HostFiles, path: string): Promise<void> {
  await using _created = await files.openFolder({ path, within: path }, true);
}

async function removeMigrationContainer(commands: HostCommands): Promise<void> {
  await commands.podman(['rm', '--force', '--ignore', containerName]);
}

function hasStorage({ files, commands }: HostAccess, storage: string): Promise<boolean> {
  return storage.startsWith('/') ? files.exists(storage) : commands.exists('volume', storage);
}

/** Returns the folder that a volume will have on this machine. */
async function locateNewVolume(commands: HostCommands, storage: string): Promise<string> {
  const volumes = (await commands.podman(['info', '--format', '{{.Store.VolumePath}}'])).trim();
  return join(volumes, storage, '_data');
}

/**
 * Runs the new Quay once to update or create the schema of its database, with the options of its unit. `mounts` has
 * other folders for mounts of the container. Throws `command-failed`.
 */
async function runMigrations(
  { commands, detected, detect }: ExecutionRequest,
  image: string,
  mounts: ReadonlyMap<string, string>,
): Promise<void> {
  const given = (detected.commands.quay?.options ?? []).flatMap(({ name, value }) => {
    const target = name === 'volume' ? value?.split(':')[1] : undefined;
    const isOwn = unitOptions.has(name) || (target !== undefined && mounts.has(target));
    if (isOwn) return [];
    const expanded = value === undefined ? undefined : expandSpecifiers(value, detect.home);
    return [expanded === undefined ? `--${name}` : `--${name}=${expanded}`];
  });
  const volumes = [...mounts].map(([target, source]) => `--volume=${source}:${target}:Z`);
  const own = ['--rm', '--replace', `--name=${containerName}`];
  await commands.podman(['run', ...own, ...given, ...volumes, image, 'migrate', 'head']);
}

/** Makes the folders for the container that creates the schema in SQLite. Returns their parent on this machine. */
async function prepareScratch({ files, detected, records: { state } }: OpenRegistry): Promise<string> {
  const { configuration } = detected;
  const text = (await files.readText(configuration.path)) ?? '';
  await state.remove(scratchNames.migration);
  await state.makeFolder(scratchNames.migration);
  const folder = await state.locate(scratchNames.migration);
  // The user of Quay’s image has the group 0. Other users have no access to the parent.
  for (const [name, mode] of [
    ['quay-config', 0o750],
    ['sqlite', 0o770],
  ] as const) {
    await mkdir(join(folder, name));
    await chmod(join(folder, name), mode);
  }
  const path = join(folder, 'quay-config/config.yaml');
  await writeFile(path, editQuayConfiguration(configuration.path, text, [[['DB_URI'], sqliteUri]]));
  await chmod(path, 0o640);
  return folder;
}
