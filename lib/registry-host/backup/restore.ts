import { rm } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { basename, join } from 'node:path';
import { checkSpace, writeDurably } from '#content/files';
import { sumSizes } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { readCertificates } from '../certificates/certificates.ts';
import { type RenewalOptions, renewCertificates, type Renewal } from '../certificates/renewal.ts';
import { locateStorage, recoverDatabase } from '../change/database.ts';
import { requireDatabase } from '../change/databaseKind.ts';
import { changeRegistry, resumeUnfinished } from '../change/execution.ts';
import { requireHealth } from '../change/health.ts';
import { lockRegistry, type ExecutionRequest, type OpenRegistry } from '../change/openRegistry.ts';
import { checkDump, checkDumpVersion } from '../change/postgres.ts';
import { editQuayConfiguration, readQuayConfiguration, splitHostname } from '../detect/configuration.ts';
import { detectInstallation, type DetectedInstallation } from '../detect/detect.ts';
import { describeState } from '../detect/registryState.ts';
import type { DetectOptions } from '../detect/scopes.ts';
import { ChangedFiles, type FileChange } from '../installation/fileChange.ts';
import { type Installation, certificatePathsOf } from '../installation/installation.ts';
import { scratchNames } from '../installation/stateFolder.ts';
import { compareTags, quayVersionOf } from '../installation/versions.ts';
import { databaseEntries, isDatabase, type BackupEntry, type BackupFacts } from './backupFormat.ts';
import { Backup } from './backupReader.ts';
import { addContent, listMissingContent } from './imageStorage.ts';

/** The bytes at the start of a dump in which pg_dump states versions. */
const headSize = 4096;
/** The space that podman needs for new containers, in bytes, in the file system of its volumes. */
const containerSize = 2 ** 24;

/** Input of a restore. */
interface RestoreRequest extends ExecutionRequest {
  readonly input: string;
  /** The new name of the registry, without a port; that of the backup if undefined. */
  readonly hostname: string | undefined;
  readonly renewal: RenewalOptions;
}

/** The parts that a restore changes. Sizes are in bytes. */
export interface RestorePlan extends BackupFacts {
  /** The name of the registry afterwards. */
  readonly host: string;
  /** The files that it writes or removes, as the host has them. */
  readonly files: readonly string[];
  /** Reasons for a new certificate of the server; empty if that of the backup is restored. */
  readonly renewals: readonly string[];
  /** The folder of the database that it replaces, on this machine. */
  readonly database: string;
  /** The units that it restarts, in order. */
  readonly restart: readonly string[];
  /** Files of images that it adds, and their size. */
  readonly addedFiles: number;
  readonly addedSize: number;
}

interface Survey {
  readonly plan: RestorePlan;
  readonly files: RestoredFiles;
  readonly storage: string;
  readonly missing: readonly BackupEntry[];
}

/**
 * Reads and verifies a whole backup, and plans its restore. Changes nothing. Throws as `Backup.open`,
 * `digest-mismatch`, `unsupported` for a backup of a newer Quay, `conflict` for another port, `disk-full`,
 * `command-failed`.
 */
export async function planRestore(request: RestoreRequest, context: Context): Promise<RestorePlan> {
  await using backup = await Backup.open(request.input, context.signal);
  return (await survey(backup, request, context)).plan;
}

/**
 * Restores a backup into the registry of a host, whose units stay. Adds content of images while the registry runs. Then
 * stops Quay, and replaces configuration, certificates and database. Keeps the replaced ones as the backup
 * of a change, which `rollBackRegistry` reverts. Restores them if the registry does not become healthy. Resumes an
 * interrupted change first, and returns undefined if that was this restore. Throws `busy`, as
 * `planRestore` before any change, then as `changeRegistry`.
 */
export async function restoreBackup(request: RestoreRequest, context: Context): Promise<RestorePlan | undefined> {
  await using locked = await lockRegistry(request, context);
  await using backup = await Backup.open(request.input, context.signal);
  const title = `the restore of the backup of ${backup.manifest.created}`;
  const registry = await resumeUnfinished(locked);
  if (registry.resumed === title) return undefined;
  const { commands, files, now, detected } = registry;
  const { plan, files: restored, storage, missing } = await survey(backup, registry, context);
  const certificates = await readCertificates(files, detected.installation, now);
  const wasHealthy = await requireHealth(detected, certificates, true, context);
  await addContent(backup, missing, commands, storage);
  await unpackDatabase(backup, registry);
  await changeRegistry(registry, {
    title,
    changes: restored.changes,
    restart: plan.restart,
    database: plan.database,
    isPostgres: detected.installation.database === 'postgres',
    replacesDatabase: true,
    wasHealthy,
  });
  return plan;
}

async function survey(backup: Backup, request: RestoreRequest, context: Context): Promise<Survey> {
  const { files, commands, detected } = request;
  const { signal, log } = context;
  const { installation } = detected;
  const { files: entries, ...facts } = backup.manifest;
  requireVersion(facts, installation, context);
  requireSameKind(entries, installation);
  const { kind, folder: database, account } = await requireDatabase(request, detected);
  log('info', `verifying ${backup.path}`);
  await backup.verify(signal);
  const dump = entries.find(({ path }) => path === databaseEntries.postgres);
  if (account && dump) {
    const head = await backup.head(dump, Math.min(dump.size, headSize), signal);
    const isKnown = await checkDumpVersion(commands, account, head.toString('latin1'));
    if (!isKnown) log('warn', 'it is unknown whether the PostgreSQL of this host is older than the one of the backup');
  }
  const restored = await planFiles({ ...request, small: await backup.readSmall(signal) });
  const storage = await locateStorage(request, installation.storage.value);
  const missing = facts.hasImages ? await listMissingContent(backup, commands, storage) : [];
  const addedSize = sumSizes(missing);
  if (missing.length > 0) await checkSpace(join(storage, 'each'), addedSize);
  const fresh = entries.find(({ path }) => isDatabase(path))?.size ?? 0;
  const present = await kind.size(commands, database);
  const state = files.locate(await files.resolve(installation.quayRoot.value));
  // The new database and a copy that is checked, and the present one.
  await checkSpace(join(state, scratchNames.replacement), 2.2 * fresh + present);
  await checkSpace(join(database, 'each'), Math.max(0, fresh - present) + containerSize);
  const plan = {
    ...facts,
    host: restored.installation.host.value,
    files: restored.changes.map(({ path }) => path),
    renewals: restored.renewal?.server ?? [],
    database,
    restart: kind.units.toReversed(),
    addedFiles: missing.length,
    addedSize,
  };
  return { plan, files: restored, storage, missing };
}

/** The program moves a database from PostgreSQL to SQLite only in an upgrade. */
function requireSameKind(entries: readonly BackupEntry[], { database }: Installation): void {
  if (entries.some(({ path }) => path === databaseEntries[database])) return;
  const [backup, host] = database === 'sqlite' ? ['PostgreSQL', 'SQLite'] : ['SQLite', 'PostgreSQL'];
  throw new PluginError('unsupported', `the database in the backup is of ${backup}, and that of this host of ${host}`, {
    hint:
      database === 'sqlite'
        ? 'Upgrade the registry of the backup to 2.x, and make a new backup. Or install its release, 1.x, on this ' +
          'host, restore the backup, and then upgrade.'
        : 'Upgrade the registry of this host to 2.x first.',
  });
}

/** Quay migrates an older database as it starts, and cannot use a newer one. */
function requireVersion({ quay, version }: BackupFacts, { images }: Installation, { log }: Context): void {
  const present = images.quay?.value ?? '';
  const [old, fresh] = [quayVersionOf(quay), quayVersionOf(present)];
  if (old === undefined || fresh === undefined) {
    if (quay !== present)
      log('warn', `the backup is of ${quay}, and this host runs ${present}: which is newer is unknown`);
    return;
  }
  if (compareTags(old, fresh) <= 0) return;
  throw new PluginError('unsupported', `the backup is of Quay ${old}, which is newer than ${fresh} of this host`, {
    hint: `Upgrade the registry of this host to ${version ?? `Quay ${old}`} first.`,
  });
}

/** Writes the database of a backup into the folder of this program, and checks it. */
async function unpackDatabase(backup: Backup, { commands, records: { state } }: OpenRegistry): Promise<void> {
  const entry = backup.manifest.files.find(({ path }) => isDatabase(path));
  if (!entry) throw new PluginError('internal', 'the backup has no database');
  await state.remove(scratchNames.replacement);
  await state.makeFolder(scratchNames.replacement);
  const folder = await state.locate(scratchNames.replacement);
  const path = join(folder, basename(entry.path));
  await writeDurably(path, backup.content(entry, commands.signal), { mode: 0o600 });
  if (entry.path === databaseEntries.postgres) {
    await checkDump(path);
    return;
  }
  const scratch = join(folder, 'check');
  try {
    await recoverDatabase(commands, folder, scratch, 'the database in the backup');
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Input of the files that a restore writes. */
interface RestoredFilesRequest {
  readonly files: HostFiles;
  readonly detect: DetectOptions;
  /** The registry that the backup is restored into. */
  readonly detected: DetectedInstallation;
  /** The small files of the backup, by their paths in it. */
  readonly small: ReadonlyMap<string, Buffer>;
  /** The new name of the registry; that of the backup if undefined. */
  readonly hostname: string | undefined;
  readonly renewal: RenewalOptions;
}

/** The files that a restore writes, and the registry that they describe. */
interface RestoredFiles {
  readonly installation: Installation;
  /** Without files that stay as they are. */
  readonly changes: readonly FileChange[];
  /** The renewal of the certificates in the backup; undefined if they are restored as they are. */
  readonly renewal: Renewal | undefined;
}

/** The passwords of Redis in Quay’s configuration. Units and podman’s secret have the same. */
const redisPasswords = [
  ['BUILDLOGS_REDIS', 'password'],
  ['USER_EVENTS_REDIS', 'password'],
] as const;

/** The account of Quay in PostgreSQL. The unit of PostgreSQL or podman’s secret has the same password. */
const postgresAccount = ['DB_URI'] as const;

/**
 * Adapts the configuration and certificates of a backup to a registry, which keeps its port and its accounts of Redis
 * and PostgreSQL. Renews the certificates on their own CA if clients could not use them. Writes nothing. Throws
 * `invalid-file`, `conflict` for another port, `unsupported` for certificates that cannot be renewed, and as
 * `renewCertificates`.
 */
async function planFiles(request: RestoredFilesRequest): Promise<RestoredFiles> {
  const { files, detect, detected, small, renewal: options } = request;
  const { quayRoot } = detected.installation;
  const contentByPath = new Map<string, Buffer | undefined>([
    // A certificate that the backup does not have is not part of that registry.
    ...Object.values(certificatePathsOf(detected.installation)).map((path) => [path, undefined] as const),
    ...[...small]
      .filter(([name]) => !name.startsWith('units/'))
      .map(([name, content]) => [join(quayRoot.value, name), content] as const),
  ]);
  const { path } = detected.configuration;
  contentByPath.set(path, Buffer.from(adaptConfiguration(request, path)));
  const changed = new ChangedFiles(files.root, contentByPath);
  const restored = await detectInstallation(changed, detect);
  requireSameDatabase(restored.installation, detected, path);
  const certificates = await readCertificates(changed, restored.installation, options.now);
  const { problems, kind } = certificates.status;
  if (kind !== 'automatic' && problems.length > 0 && !options.own) {
    throw new PluginError('unsupported', `the certificate in the backup cannot be used: ${problems.join(', ')}`, {
      hint: 'It cannot be renewed. Give another one with its key.',
      settings: ['sslCert', 'sslKey'],
    });
  }
  const isRenewed = problems.length > 0 || options.own !== undefined;
  const renewal = isRenewed
    ? await renewCertificates(changed, certificates, restored.installation, options)
    : undefined;
  for (const { path: renewed, after } of renewal?.changes ?? []) contentByPath.set(renewed, after);

  const changes: FileChange[] = [];
  for (const [place, after] of contentByPath) {
    const before = await files.read(place);
    if (before && after ? !before.equals(after) : before !== after) {
      changes.push({ path: place, before, after, mode: modeOf(place) });
    }
  }
  const state = await describeState(files, {
    detected,
    version: detected.installation.version,
    images: new Map(),
    changes,
    origin: options.own || kind === 'own' ? 'own' : kind === 'automatic' ? 'auto' : undefined,
  });
  return { installation: restored.installation, changes: [...changes, state], renewal };
}

/** Returns the configuration of a backup with the host name and the accounts that it has after the restore. */
function adaptConfiguration({ detected, small, hostname }: RestoredFilesRequest, path: string): string {
  const text = small.get('quay-config/config.yaml')?.toString() ?? '';
  const configuration = readQuayConfiguration(path, text);
  const old = configuration.get('SERVER_HOSTNAME')?.value;
  if (old === undefined) {
    throw new PluginError('invalid-file', 'the configuration in the backup has no SERVER_HOSTNAME');
  }
  const { port, externalTls } = detected.installation;
  const stated = splitHostname(old).port ?? 8443;
  if (hostname === undefined && stated !== port.value && !externalTls) {
    const message =
      `the backup is of ${old}, but the registry of this host publishes port ${port.value} ` +
      `(${port.file}:${port.line})`;
    const hint = 'Give the host name, to keep that port and renew the certificate.';
    throw new PluginError('conflict', message, { hint, settings: ['hostname'] });
  }
  const name = hostname !== undefined && isIPv6(hostname) ? `[${hostname}]` : hostname;
  const isPostgres = detected.installation.database === 'postgres';
  const passwords = [...redisPasswords, ...(isPostgres ? [postgresAccount] : [])].flatMap((keys) => {
    const present = detected.configuration.get(...keys)?.value;
    return present === undefined ? [] : [[keys, present] as const];
  });
  return editQuayConfiguration(path, text, [
    ...(name === undefined ? [] : [[['SERVER_HOSTNAME'], `${name}:${port.value}`] as const]),
    ...passwords,
  ]);
}

function requireSameDatabase({ database }: Installation, detected: DetectedInstallation, path: string): void {
  if (database === detected.installation.database) return;
  const message =
    `the configuration in the backup (${path}) names a database ` +
    `of ${database === 'postgres' ? 'PostgreSQL' : 'SQLite'}`;
  const hint = 'The database in the backup is of another kind. Make a new backup.';
  throw new PluginError('invalid-file', message, { hint });
}

/**
 * Permissions of a new file. The user of Quay’s container is in the group 0, and reads all but the key of the CA. Other
 * users read certificates only.
 */
function modeOf(path: string): number {
  if (path.endsWith('rootCA.key')) return 0o600;
  return /\.(?:cert|crt|pem)$/.test(path) ? 0o644 : 0o640;
}
