import { createHash } from 'node:crypto';
import { createReadStream, constants } from 'node:fs';
import { lstat, stat, open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { endSize, roundToBlock } from '#content/archive';
import { writeDurably, renameDurably, checkSpace, describeWriteError, isMissing } from '#content/files';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { formatBytes } from '#text';
import { readCertificates } from '../certificates/certificates.ts';
import { copyDatabase, locateStorage, recoverDatabase } from '../change/database.ts';
import { requireDatabase } from '../change/databaseKind.ts';
import { resumeUnfinished } from '../change/execution.ts';
import { requireHealth } from '../change/health.ts';
import { requireAccount } from '../change/migrationPlan.ts';
import { lockRegistry, type ExecutionRequest, type OpenRegistry } from '../change/openRegistry.ts';
import { checkDump, dumpName, dumpPostgres, findPostgresProblem } from '../change/postgres.ts';
import { waitForRegistry, whileStopped } from '../change/restart.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { certificatePathsOf } from '../installation/installation.ts';
import { scratchNames } from '../installation/stateFolder.ts';
import {
  databaseEntries,
  isBackupPath,
  type BackupManifest,
  type PackedFile,
  headerOf,
  manifestName,
  type BackupEntry,
  type BackupFacts,
} from './backupFormat.ts';
import { listContent, packStorage } from './imageStorage.ts';

/** The limit of the configuration and certificates together, in bytes: they are packed from memory. */
const smallLimit = 64 * 1024 * 1024;

/** Input of a backup. */
interface BackupRequest extends ExecutionRequest {
  /** The file to write. */
  readonly output: string;
  /** Include the content of images. */
  readonly withImages: boolean;
}

/** The parts of a backup, before it is made. Sizes are in bytes. */
export interface BackupPlan {
  readonly output: string;
  /** Configuration, certificates and units, as the host has them. */
  readonly files: readonly string[];
  /** The folder of the database on this machine. */
  readonly database: string;
  readonly databaseSize: number;
  /** Whether Quay is stopped while the database is copied. */
  readonly stopsQuay: boolean;
  /** The folder with the content of images on this machine, and its size; undefined if it is not included. */
  readonly images: string | undefined;
  readonly imagesSize: number;
}

interface Survey {
  readonly plan: BackupPlan;
  readonly small: ReadonlyMap<string, Buffer>;
  readonly listed: ReadonlyMap<string, number>;
}

/**
 * Lists the parts of a backup and checks the free space. Changes nothing. Throws `conflict` if the output exists,
 * `unsupported` for a database that is not the one of the installer, `unreachable` if PostgreSQL does not answer,
 * `disk-full`, `command-failed`.
 */
export async function planBackup(request: BackupRequest): Promise<BackupPlan> {
  return (await survey(request)).plan;
}

/**
 * Makes a backup of a registry. Stops Quay while a file of SQLite is copied, and starts it again; dumps PostgreSQL, and
 * packs everything, while the registry runs. Completes an interrupted change first. Throws as
 * `planBackup`, `busy`, `invalid-file` for a damaged database, and `not-ready` if the registry is not healthy
 * afterwards.
 */
export async function backUpRegistry(request: BackupRequest, context: Context): Promise<BackupManifest> {
  await using locked = await lockRegistry(request, context);
  const registry = await resumeUnfinished(locked);
  const { commands, now, output, files, detected, records } = registry;
  const { plan, small, listed } = await survey(registry);
  const certificates = await readCertificates(files, detected.installation, now);
  const wasHealthy = await requireHealth(detected, certificates, true, context);
  const { state } = records;
  try {
    await state.remove(scratchNames.backup);
    await state.makeFolder(scratchNames.backup);
    const copy = await state.locate(scratchNames.backup);
    if (plan.stopsQuay) {
      context.log('info', 'stopping Quay to copy its database');
      await whileStopped(registry, () => copyDatabase(commands, plan.database, copy));
    }
    const problem = plan.stopsQuay && wasHealthy ? await findProblem(registry) : undefined;
    const database = plan.stopsQuay
      ? await recoverDatabase(commands, copy, join(copy, 'recovered'))
      : await saveDump(registry, join(copy, dumpName));
    const images = plan.images === undefined ? [] : packStorage(commands, plan.images, listed, context);
    const packed = pack(small, { entry: databaseEntries[detected.installation.database], path: database }, images);
    const manifest = await writeBackup(output, backupFactsOf(detected, request), packed);
    if (problem !== undefined) {
      const message = `${output} is complete, but the registry is not healthy after the restart of Quay`;
      const hint = 'See journalctl -u quay-app.service.';
      throw new PluginError('not-ready', message, { hint, cause: problem });
    }
    return manifest;
  } finally {
    await state.remove(scratchNames.backup);
  }
}

async function survey(request: BackupRequest): Promise<Survey> {
  const { files, detected, commands, output, withImages } = request;
  const { installation } = detected;
  const hint = `Back it up where it is, and copy ${installation.quayRoot.value}.`;
  const { kind, folder: database, account } = await requireDatabase(request, detected, hint);
  const problem = account && (await findPostgresProblem(commands, account));
  if (problem) throw problem;
  const isThere = await lstat(output).then(
    () => true,
    (error: unknown) => !isMissing(error),
  );
  if (isThere) {
    throw new PluginError('conflict', `${output} exists already`, { hint: 'Choose another name, or move it away.' });
  }
  const images = withImages ? await locateStorage(request, installation.storage.value) : undefined;
  const listed = images === undefined ? new Map<string, number>() : await listContent(commands, images);
  const imagesSize = [...listed.values()].reduce((sum, size) => sum + size, 0);
  const databaseSize = await kind.size(commands, database);
  const state = await stateOf(files, installation.quayRoot.value);
  // One copy, and one that is checked. A dump is smaller than the folder of PostgreSQL.
  await checkSpace(join(state, scratchNames.backup), 2.2 * databaseSize);
  await checkSpace(output, databaseSize + imagesSize);
  const small = await readSmallFiles(files, detected);
  const paths = [...small.keys()].map((name) => hostPath(detected, name));
  const stopsQuay = installation.database === 'sqlite';
  const plan = { output, files: paths, database, databaseSize, stopsQuay, images, imagesSize };
  return { plan, small, listed };
}

/** Returns a folder on the file system of the state of this program. */
async function stateOf(files: HostFiles, quayRoot: string): Promise<string> {
  return files.locate(await files.resolve(quayRoot));
}

/** Reads configuration, certificates and units, by their paths in a backup. */
async function readSmallFiles(files: HostFiles, detected: DetectedInstallation): Promise<Map<string, Buffer>> {
  const { quayRoot } = detected.installation;
  const { server, serverKey, authority, authorityKey, next, nextKey } = certificatePathsOf(detected.installation);
  const extra = join(quayRoot.value, 'quay-config/extra_ca_certs');
  const paths = [
    join(quayRoot.value, 'quay-config/config.yaml'),
    server,
    serverKey,
    authority,
    authorityKey,
    next,
    nextKey,
    ...(await files.list(extra)).map((name) => join(extra, name)),
  ];
  const small = new Map<string, Buffer>();
  let size = 0;
  for (const path of paths) {
    const content = await files.read(path);
    size += content?.length ?? 0;
    if (size > smallLimit) {
      const message = `the files in ${quayRoot.value}/quay-config exceed ${formatBytes(smallLimit)}`;
      const hint = `Move what is not a certificate out of ${extra}.`;
      throw new PluginError('too-large', message, { hint });
    }
    if (content) small.set(path.slice(quayRoot.value.length + 1), content);
  }
  for (const { files: parts } of detected.units.values()) {
    for (const { path, text } of parts) {
      small.set(`units${path.slice(detected.installation.unitFolder.length)}`, Buffer.from(text));
    }
  }
  const stray = [...small.keys()].find((name) => !isBackupPath(name));
  if (stray === undefined) return small;
  throw new PluginError('unsupported', `${hostPath(detected, stray)} has a name that a backup cannot have`, {
    hint: 'Rename it to letters, digits, dots and hyphens.',
  });
}

/** Returns the path of a small file of a backup on the host. */
function hostPath({ installation: { quayRoot, unitFolder } }: DetectedInstallation, name: string): string {
  return name.startsWith('units/') ? join(unitFolder, name.slice('units/'.length)) : join(quayRoot.value, name);
}

/** Writes a dump of PostgreSQL to a file, checks that it is complete, and returns its path. */
async function saveDump({ commands, detected }: BackupRequest, path: string): Promise<string> {
  const account = requireAccount(detected);
  await writeDurably(path, dumpPostgres(commands, account, 'tables'), { mode: 0o600 });
  await checkDump(path);
  return path;
}

async function findProblem(registry: OpenRegistry): Promise<unknown> {
  try {
    await waitForRegistry(registry);
    return undefined;
  } catch (error) {
    return error;
  }
}

async function* pack(
  small: ReadonlyMap<string, Buffer>,
  database: { readonly entry: string; readonly path: string },
  images: AsyncIterable<PackedFile> | readonly PackedFile[],
): AsyncGenerator<PackedFile> {
  for (const [path, content] of small) yield { path, size: content.length, content: [content] };
  const { entry, path: place } = database;
  yield { path: entry, size: (await stat(place)).size, content: createReadStream(place) };
  yield* images;
}

function backupFactsOf({ installation, configuration }: DetectedInstallation, { now, withImages }: BackupRequest) {
  return {
    format: 1,
    created: now.toISOString(),
    version: installation.version,
    quay: installation.images.quay?.value ?? '',
    hostname: configuration.get('SERVER_HOSTNAME')?.value ?? '',
    hasImages: withImages,
  } as const;
}

/**
 * Writes a backup: a tar that only the current user can read, with a manifest as its last file. It gets its name when
 * it is complete and on the disk. Throws `disk-full`, `not-writable`, and as the content of files.
 */
export async function writeBackup(
  path: string,
  facts: BackupFacts,
  packed: AsyncIterable<PackedFile>,
): Promise<BackupManifest> {
  const partial = `${path}.partial`;
  try {
    await rm(partial, { force: true });
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
    await using file = await open(partial, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    const files: BackupEntry[] = [];
    for await (const each of packed) files.push(await writeFile(file, each));
    const manifest = { ...facts, files };
    const text = Buffer.from(JSON.stringify(manifest));
    await writeFile(file, { path: manifestName, size: text.length, content: [text] });
    await file.writeFile(Buffer.alloc(endSize));
    await file.sync();
    await renameDurably(partial, path);
    return manifest;
  } catch (error) {
    await rm(partial, { force: true }).catch(() => undefined);
    throw describeWriteError(error, path);
  }
}

async function writeFile(file: FileHandle, { path, size, content }: PackedFile): Promise<BackupEntry> {
  await file.writeFile(headerOf(path, size));
  const hash = createHash('sha256');
  let written = 0;
  for await (const chunk of content) {
    hash.update(chunk);
    written += chunk.length;
    await file.writeFile(chunk);
  }
  if (written !== size) {
    throw new PluginError('not-readable', `${path} has ${written} bytes instead of ${size}: it changed meanwhile`, {
      hint: 'Try again.',
    });
  }
  await file.writeFile(Buffer.alloc(roundToBlock(size) - size));
  return { path, size, sha256: hash.digest('hex') };
}
