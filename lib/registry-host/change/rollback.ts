import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { ignoring, isPluginError, PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { isAhead, readCertificates } from '../certificates/certificates.ts';
import { type RenewalOptions, originAfter, renewCertificates, type Renewal } from '../certificates/renewal.ts';
import { detectInstallation } from '../detect/detect.ts';
import { describeState } from '../detect/registryState.ts';
import { ChangedFiles } from '../installation/fileChange.ts';
import type { Installation } from '../installation/installation.ts';
import type { RegistryRelease } from '../releases/images.ts';
import { requireUntouched, changeRegistry, resumeUnfinished, dropBackup } from './execution.ts';
import { requireHealth } from './health.ts';
import {
  lockRegistry,
  openRegistry,
  type ExecutionRequest,
  type OpenRegistry,
  UpgradeRecords,
} from './openRegistry.ts';
import { loadReplaced, versionOfReplaced } from './replacedImages.ts';
import { startStopped } from './restart.ts';
import { requireRestorable, restoreRegistry } from './restoration.ts';
import { isForward, timeOf, type UpgradeJournal } from './upgradeJournal.ts';

/** Input of a rollback. */
interface RollbackRequest extends ExecutionRequest {
  /** The source of replaced images that podman no longer has. */
  readonly release?: RegistryRelease;
  /** The digest of the whole release, if given. */
  readonly expectedDigest?: Digest;
  /** How a restored certificate is renewed that clients could not use. */
  readonly renewal: RenewalOptions;
}

/** The content of a rollback. */
export interface RollbackPlan {
  /** The change that it reverts, as the subject of a sentence, and the start of that change (ISO 8601). */
  readonly title: string;
  readonly begun: string;
  readonly unfinished: boolean;
  readonly files: readonly string[];
  /** The folder of the database that is replaced with the one of the backup; undefined if none is. */
  readonly database: string | undefined;
  /** The restored images, by name. */
  readonly images: readonly string[];
  readonly restart: readonly string[];
  /** Reasons to renew the restored certificate afterwards, on its CA; empty if it is restored as it was. */
  readonly renewals: readonly string[];
}

/** An upgrade, renewal or rollback that was interrupted. */
export interface Unfinished {
  /** The title, as the subject of a sentence. */
  readonly title: string;
  readonly phase: string;
  /** The start time, ISO 8601. */
  readonly begun: string;
}

/**
 * Reads the unfinished change of a registry, for commands that change nothing. Warns of a journal that cannot be
 * trusted or read, and returns undefined. Throws `invalid-file`.
 */
export async function findUnfinished(
  { files, installation }: { readonly files: HostFiles; readonly installation: Installation },
  { log }: Context,
): Promise<Unfinished | undefined> {
  try {
    const journal = await new UpgradeRecords(files, installation).current();
    return journal && { title: journal.title, phase: journal.phase, begun: timeOf(journal) };
  } catch (error) {
    if (!isPluginError(error, 'not-readable')) throw error;
    log('warn', error.message);
    return undefined;
  }
}

/** The last change that a rollback can revert. */
export interface Revertible {
  /** The title, as the subject of a sentence. */
  readonly title: string;
  /** The start time, ISO 8601. */
  readonly begun: string;
  /** The images that podman must have for it, and their release, whose bundle has them. */
  readonly images: readonly string[];
  readonly version?: string;
}

/**
 * Finds the last change that a rollback can revert; undefined if there is none, or if its backup cannot be read by this
 * user. Throws `invalid-file`.
 */
export async function findRevertible({
  files,
  installation,
}: {
  readonly files: HostFiles;
  readonly installation: Installation;
}): Promise<Revertible | undefined> {
  const journal = await new UpgradeRecords(files, installation).last().catch(ignoring('not-readable'));
  if (!journal) return undefined;
  const images = journal.replaced.map(({ name }) => name);
  return { title: journal.title, begun: timeOf(journal), images, version: versionOfReplaced(journal) };
}

/**
 * Plans a rollback, and checks that it is possible. Changes nothing. Throws `not-found` if there is no backup, the
 * errors of `requireRestorable`, `conflict` if the files were changed since, and `usage`.
 */
export async function planRollback(request: RollbackRequest, context: Context): Promise<RollbackPlan> {
  const registry = openRegistry(request, context);
  return describeRollback(registry, await findChange(registry));
}

async function describeRollback(
  registry: RollbackRequest & OpenRegistry,
  journal: UpgradeJournal,
): Promise<RollbackPlan> {
  const { records, noRestart } = registry;
  const isRestored = journal.phase === 'starting';
  if (!isRestored) await requireRestorable(registry, journal, true);
  const renewals = await findUnusable(registry, journal);
  return {
    renewals,
    title: journal.title,
    begun: timeOf(journal),
    unfinished: (await records.current()) !== undefined,
    files: isRestored ? [] : (await records.listChanged(journal)).map(({ path }) => path),
    database: isRestored || journal.phase === 'writing' ? undefined : journal.database,
    images: journal.replaced.map(({ name }) => name),
    restart: noRestart ? [] : journal.restart,
  };
}

/**
 * Reverts the unfinished change, else the last one: files with modes and owners, and the database if Quay changed.
 * Keeps the newer database. Returns what was reverted. Checks everything before the registry stops. Throws `busy`, the
 * errors of `planRollback`, and `rollback-failed`.
 */
export async function rollBackRegistry(request: RollbackRequest, context: Context): Promise<RollbackPlan> {
  await using registry = await lockRegistry(request, context);
  const { records, commands, files, release, expectedDigest, detect } = registry;
  if (!(await lastChange(records))) await records.state.removeScratch();
  const change = await findChange(registry);
  const journal = release ? await loadReplaced(commands, change, release, expectedDigest, context) : change;
  const plan = await describeRollback(registry, journal);
  await startStopped(registry);
  const isRenewed = plan.renewals.length > 0;
  // Clients of an expired certificate, and so the health check, fail until it is renewed.
  await restoreRegistry(registry, isRenewed ? { ...journal, wasHealthy: false } : journal, true);
  if (isRenewed) {
    await renewLocked({ ...registry, detected: await detectInstallation(files, detect) });
    // The next rollback reverts the change before, and not this renewal.
    const renewed = await records.last();
    if (renewed) await dropBackup(registry, renewed);
  }
  return plan;
}

/**
 * Abandons an unfinished change: the files stay, and no command resumes it. Returns it with the path of its backup.
 * Throws `busy`, `not-found` if there is none, and the errors of `UpgradeRecords.current`.
 */
export async function abandonChange(
  request: ExecutionRequest,
  context: Context,
): Promise<{ readonly journal: UpgradeJournal; readonly backup: string }> {
  await using registry = await lockRegistry(request, context);
  const { records } = registry;
  const journal = await records.current();
  if (!journal) throw new PluginError('not-found', 'no upgrade or renewal is unfinished');
  return { journal, backup: await records.abandon(journal) };
}

/**
 * Removes the backups of all changes, with the old images and the units that only a rollback needs. Returns the
 * changes. Throws `busy`, `conflict` if a change is unfinished, `command-failed` and `not-writable`.
 */
export async function dropBackups(
  request: ExecutionRequest,
  isConfirmed: boolean,
  context: Context,
): Promise<UpgradeJournal[]> {
  await using registry = await lockRegistry(request, context);
  const ended = await registry.records.requireEnded();
  for (const journal of isConfirmed ? ended : []) await dropBackup(registry, journal);
  return ended;
}

/**
 * Returns why clients could not use the certificate that a rollback restores, if this program can renew it; none if
 * they can, or if the present one is no better. Throws `not-ready` if it cannot be renewed, unless `force`.
 */
async function findUnusable(registry: OpenRegistry, journal: UpgradeJournal): Promise<string[]> {
  const { files, detect, detected, now, force, records } = registry;
  const before = new ChangedFiles(files.root, await records.readOldFiles(journal));
  const old = await readCertificates(before, (await detectInstallation(before, detect)).installation, now);
  const present = await readCertificates(files, detected.installation, now);
  const problems = old.status.problems.filter((problem) => !present.status.problems.includes(problem));
  if (problems.length === 0) return [];
  if (old.status.kind === 'automatic' && old.status.hasKey && !isAhead(old.status, now)) return problems;
  if (force) return [];
  throw new PluginError('not-ready', `clients cannot use the certificate that is restored: ${problems.join(', ')}`, {
    hint:
      'Nothing was changed. This program cannot renew it. Force the rollback, and then install another one with ' +
      'certs renew.',
    settings: ['force'],
  });
}

async function lastChange(records: UpgradeRecords): Promise<UpgradeJournal | undefined> {
  return (await records.current()) ?? (await records.last());
}

async function findChange(registry: OpenRegistry): Promise<UpgradeJournal> {
  const { records, noRestart } = registry;
  const journal = await lastChange(records);
  if (!journal) {
    throw new PluginError('not-found', 'there is nothing to roll back', {
      hint: 'Backups of upgrades are in .oc-mirror-registry/backups beside quay-config.',
    });
  }
  if (isForward(journal)) await requireUntouched(registry, journal);
  if (noRestart && journal.database !== undefined) {
    throw new PluginError('usage', 'a rollback that restores the database must restart the registry', {
      hint: 'Quay is stopped for that. Allow the restart.',
    });
  }
  return journal;
}

/** The input of a renewal. */
interface CertificateChangeRequest extends ExecutionRequest {
  readonly renewal: RenewalOptions;
}

/**
 * Renews the certificates of a registry, with the same backup, resume and rollback as `upgradeRegistry`. Restarts
 * nothing if a CA is only prepared. Throws `busy`, and the errors of `renewCertificates` and
 * `changeRegistry`.
 */
export async function changeCertificates(request: CertificateChangeRequest, context: Context): Promise<Renewal> {
  await using locked = await lockRegistry(request, context);
  return await renewLocked(await resumeUnfinished(locked));
}

/** Does the same in a registry that the caller has locked, and that has no unfinished change. */
async function renewLocked(registry: CertificateChangeRequest & OpenRegistry): Promise<Renewal> {
  const { files, renewal, noRestart, now, detected, force, context } = registry;
  const certificates = await readCertificates(files, detected.installation, now);
  const renewed = await renewCertificates(files, certificates, detected.installation, renewal);
  if (renewed.changes.length === 0) return renewed;
  const restart = renewal.newAuthority === 'prepare' ? [] : ['quay-app'];
  const isAsked = restart.length > 0 && !noRestart;
  const state = await describeState(files, {
    detected,
    version: detected.installation.version,
    images: new Map(),
    changes: renewed.changes,
    origin: originAfter(renewal, certificates),
  });
  await changeRegistry(registry, {
    title: 'the renewal of certificates',
    changes: [...renewed.changes, state],
    restart,
    wasHealthy: isAsked && (await requireHealth(detected, certificates, force, context)),
  });
  return renewed;
}
