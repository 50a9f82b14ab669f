import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf, PluginError } from '../../errors.ts';
import { replaceDatabase } from './database.ts';
import { kindOf, stopDatabase } from './databaseKind.ts';
import { detectInstallation, type DetectedInstallation } from '../detect/detect.ts';
import type { FileChange } from '../fileChange.ts';
import { dropBackup } from './expiry.ts';
import { createStorage, migrateDatabase } from './migration.ts';
import { dumpName, loadPostgres } from './postgres.ts';
import { keepReplaced } from './replacedImages.ts';
import { disableUnits, type ExecutionRequest, requireContainers, restartUnits, waitForRegistry } from './restart.ts';
import { noteUnfinished, restoreRegistry } from './restoration.ts';
import { createSecrets } from './secrets.ts';
import { startStopped } from './stop.ts';
import { isForward, type UpgradeJournal } from './upgradeJournal.ts';
import { UpgradeRecords } from './upgradeRecords.ts';
import { scratchNames } from '../stateFolder.ts';

/** Opens the journal and the backups of the registry that a request is about. */
export function openRecords({ files, detected }: ExecutionRequest): UpgradeRecords {
  return new UpgradeRecords(files, detected.installation);
}

/**
 * Finishes an interrupted change, or rolls it back if its rollback had begun. Returns the registry after that;
 * undefined if no change was unfinished. Throws the errors of `changeRegistry`, and `conflict` if the files were
 * changed since.
 */
export async function resumeUnfinished(
  request: ExecutionRequest,
  records: UpgradeRecords,
  context: Context,
): Promise<DetectedInstallation | undefined> {
  await startStopped(request.commands, records.state, context);
  const unfinished = await records.current();
  if (!unfinished) {
    await records.state.removeScratch();
    return undefined;
  }
  context.log('warn', `${unfinished.title} of an earlier run is unfinished: resuming`);
  if (!isForward(unfinished)) {
    await rollBack(request, records, unfinished, true, context, 'an earlier run began the rollback');
  }
  await requireUntouched(request, records, unfinished);
  await executeChange(request, records, unfinished, true, context);
  return detectInstallation(request.files, request.detect);
}

/**
 * Changes a registry: saves the old files, writes the new ones, restarts the named units, and waits until the registry
 * is healthy. Restores everything if it does not become healthy. Throws `rolled-back`, `rollback-failed` and, before
 * any change, `disk-full` and `not-writable`.
 */
export async function changeRegistry(
  request: ExecutionRequest,
  records: UpgradeRecords,
  { changes, ...rest }: Omit<UpgradeJournal, 'id' | 'phase' | 'files'> & { readonly changes: readonly FileChange[] },
  context: Context,
): Promise<void> {
  const journal = await records.begin(changes, rest, request.now);
  await executeChange(request, records, journal, false, context);
}

/** Throws `conflict` if the files of a change were modified after it, unless `force`. */
export async function requireUntouched(
  { force }: ExecutionRequest,
  records: UpgradeRecords,
  journal: UpgradeJournal,
): Promise<void> {
  const modified = await records.listModified(journal);
  if (force || modified.length === 0) return;
  throw new PluginError('conflict', `${modified.join(' and ')} changed since ${journal.title}`, {
    hint: 'Another program or user changed it. Save a copy, and force the change.',
    settings: ['force'],
  });
}

async function executeChange(
  request: ExecutionRequest,
  records: UpgradeRecords,
  begun: UpgradeJournal,
  isResumed: boolean,
  context: Context,
): Promise<void> {
  const { commands, keepBackups, noRestart } = request;
  let journal = begun;
  noteUnfinished(journal, context);
  // A resumed run does not know when the registry stopped.
  let stopped = isResumed ? undefined : performance.now();
  let outage: number | undefined;
  try {
    if (journal.phase === 'writing') {
      await keepReplaced(commands, journal);
      if (journal.database !== undefined) {
        stopped &&= performance.now();
        await stopDatabase(commands, journal);
        const backup = await records.folderOf(journal);
        await kindOf(journal).copy(commands, journal.database, backup);
        // A damaged database may be the reason for its replacement.
        if (!journal.replacesDatabase) await kindOf(journal).check(commands, backup);
        journal = { ...journal, copyDigest: await kindOf(journal).digest(commands, backup) };
      }
      const next = journal.migration ? 'migrating' : journal.replacesDatabase ? 'replacing' : 'restarting';
      journal = await records.advance(journal, next);
    }
    if (journal.phase === 'migrating' && journal.migration) {
      await migrateDatabase(request, records.state, journal.migration, context);
      journal = await records.advance(journal, 'replacing');
    }
    if (journal.phase === 'replacing' && journal.database !== undefined) {
      // A restart of the host may have started it since.
      await stopDatabase(commands, journal);
      const { migration } = journal;
      const replacement = await records.state.locate(scratchNames.replacement);
      if (journal.isPostgres && !migration) {
        await loadPostgres(request, join(replacement, dumpName));
      } else {
        const database = migration ? await createStorage(request, migration) : journal.database;
        const backup = await records.folderOf(journal);
        await replaceDatabase(commands, { replacement, backup, database });
      }
      await records.apply(journal);
      journal = await records.advance(journal, 'restarting');
    }
    await records.apply(journal);
    await createSecrets(commands, journal.secrets ?? [], request.detected, records.state, context);
    for (const { name, to } of journal.names) await commands.podman(['tag', to, name]);
    if (!noRestart && journal.restart.length > 0) {
      if (journal.database === undefined) stopped &&= performance.now();
      await restartUnits(request, journal);
      await waitForRegistry(request, context);
      outage = stopped && Math.ceil((performance.now() - stopped) / 1000);
      await requireContainers(request, journal);
    }
    await disableUnits(commands, journal.retired?.units ?? []);
  } catch (error) {
    const why = isPluginError(error, 'interrupted') ? 'it was interrupted' : messageOf(error);
    await rollBack(request, records, journal, isResumed, context, why, error);
  }
  await records.end({ ...journal, ...(outage !== undefined && { outage }) }, true);
  context.onUnfinished?.(undefined);
  for (const expired of await records.listExpired(keepBackups)) {
    await dropBackup(request, records, expired, context);
  }
}

/** Restores everything, and throws. After an interrupted run a newer Quay may have served, so its database is kept. */
async function rollBack(
  request: ExecutionRequest,
  records: UpgradeRecords,
  journal: UpgradeJournal,
  keepNewer: boolean,
  context: Context,
  why: string,
  cause?: unknown,
): Promise<never> {
  context.log('warn', `rolling back ${journal.title}: ${why}`);
  await restoreRegistry(request, records, journal, keepNewer, context);
  throw new PluginError('rolled-back', `${journal.title} was rolled back: ${why}`, {
    hint: 'The registry is as it was before. Fix the cause, and run the same command again.',
    cause,
  });
}
