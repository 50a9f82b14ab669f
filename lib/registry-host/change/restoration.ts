import { join } from 'node:path';
import { checkSpace } from '#content/files';
import type { Context } from '#context';
import { hintOf, isPluginError, messageOf, PluginError } from '#errors';
import { findDatabase, findNewer, kindOf, stopDatabase } from './databaseKind.ts';
import { undoMigration } from './migration.ts';
import type { OpenRegistry, UpgradeRecords } from './openRegistry.ts';
import { releaseReplaced, renameReplaced, requireReplaced } from './replacedImages.ts';
import { restartUnits, waitForRegistry } from './restart.ts';
import { removeSecrets } from './secrets.ts';
import type { UpgradeJournal, UpgradePhase } from './upgradeJournal.ts';

/** The folder of the newer database, in the folder of this program. */
const newerName = 'newer-database';

/**
 * Checks, before anything stops, that a change can be rolled back: its backup is complete and unchanged, files are
 * writable, and podman has the images. With `keepNewer`, there must be space for the newer database. `force` accepts
 * missing images and a corrupt copy of the database, and skips the newer database. Throws `invalid-file`,
 * `not-writable`, `not-found`, `conflict` and `disk-full`.
 */
export async function requireRestorable(
  registry: OpenRegistry,
  journal: UpgradeJournal,
  keepNewer: boolean,
): Promise<void> {
  const { detected, commands, force, records } = registry;
  await records.requireFiles(journal);
  if (journal.phase === 'writing') return;
  await requireRetired(registry, journal);
  if (!force) await requireReplaced(commands, journal);
  if (journal.database === undefined) return;
  const isMoved =
    !journal.migration && (await findDatabase(registry, detected.installation))?.folder !== journal.database;
  if (isMoved) {
    throw new PluginError('conflict', `the database of the registry is no longer in ${journal.database}`, {
      hint: 'The backup is of another database. Restore the /sqlite volume in the unit of Quay.',
    });
  }
  // The replaced database may have been missing.
  const kind = kindOf(journal);
  const copy = await records.folderOf(journal);
  if (!journal.replacesDatabase) await kind.requireCopy(commands, copy);
  const { copyDigest } = journal;
  if (!force && copyDigest !== undefined && (await kind.digest(commands, copy)) !== copyDigest) {
    throw new PluginError('invalid-file', `the backup of the database in ${records.showFolder(journal)} is corrupt`, {
      hint: 'Keep the registry as it is, and check the disk. Or force it, with the database of the backup as it is.',
      settings: ['force'],
    });
  }
  if (force || !isSaved(journal, keepNewer)) return;
  const newer = await findNewer(registry, journal);
  if (newer) await checkSpace(await records.state.locate(newerName), await newer.kind.size(commands, newer.folder));
}

/** Checks that the units and secrets that only a rollback needs are still there. Throws `not-found`. */
async function requireRetired({ files, commands, detected }: OpenRegistry, { retired }: UpgradeJournal): Promise<void> {
  const missing: string[] = [];
  for (const unit of retired?.units ?? []) {
    const path = join(detected.installation.unitFolder, `${unit}.service`);
    if (!(await files.exists(path))) missing.push(path);
  }
  for (const name of retired?.secrets ?? []) {
    if (!(await commands.exists('secret', name))) missing.push(`the podman secret ${name}`);
  }
  if (missing.length === 0) return;
  throw new PluginError('not-found', `${missing.join(' and ')} is missing, which a rollback needs`, {
    hint: 'Restore it. Or remove the backups, if their removal was interrupted.',
  });
}

/**
 * Restores everything to its state before a change, and restarts the registry. With `keepNewer`, copies the newer
 * database first. A resumed run never restores twice. Throws `rollback-failed`.
 */
export async function restoreRegistry(given: OpenRegistry, begun: UpgradeJournal, keepNewer: boolean): Promise<void> {
  const { records, context, noRestart } = given;
  // An interruption does not stop the restoration.
  const commands = given.commands.uninterrupted();
  const registry = { ...given, commands };
  let journal = begun;
  noteUnfinished(begun, context);
  try {
    if (journal.phase !== 'starting') {
      await requireRestorable(registry, journal, keepNewer);
      journal = await restore(registry, await prepare(registry, journal, keepNewer));
    }
    const isStarted = !noRestart && journal.restart.length > 0;
    // Before its first file, a change has at most stopped Quay.
    if (isStarted && begun.phase === 'writing') await commands.systemctl(['start', 'quay-app.service']);
    else if (isStarted) await restartUnits(registry, journal);
    await releaseReplaced(commands, journal);
    await kindOf(journal).removeCopy(commands, await records.folderOf(journal));
    await records.end(journal, false);
    context.onUnfinished?.(undefined);
    if (!isStarted || !journal.wasHealthy) return;
  } catch (cause) {
    throw new PluginError('rollback-failed', `the registry could not be restored: ${messageOf(cause)}`, {
      hint:
        `${hintOf(cause) ?? 'Fix that.'} Then run 'rollback'. The backup is in ` +
        `${records.showFolder(begun)}.${context.signal.aborted ? ' It was interrupted.' : ''}`,
      cause,
    });
  }
  await waitForRegistry(registry).catch((cause: unknown) => {
    throw new PluginError(
      'rollback-failed',
      `everything was restored, but the registry is not healthy: ${messageOf(cause)}`,
      {
        hint:
          "See journalctl -u quay-app.service: the disk of podman may be full. 'certs status' tells whether its " +
          "certificate has expired, and 'certs renew' issues a new one.",
        cause,
      },
    );
  });
}

/** Tells the caller that a change is unfinished, and what finishes it. */
export function noteUnfinished({ title }: UpgradeJournal, { onUnfinished }: Context): void {
  const hint = "Run 'rollback': it restores the registry as it was before.";
  onUnfinished?.(new PluginError('interrupted', `${title} is unfinished, and the registry may be stopped`, { hint }));
}

/** Does all that comes before the first restored file. If that fails, the newer Quay runs again until the next try. */
async function prepare(registry: OpenRegistry, begun: UpgradeJournal, keepNewer: boolean): Promise<UpgradeJournal> {
  const { records, commands } = registry;
  if (begun.database === undefined || !isSaved(begun, keepNewer)) return await beginRestoring(records, begun);
  try {
    return await beginRestoring(records, await saveNewer(registry, begun));
  } catch (error) {
    await commands.systemctl(['restart', 'quay-app.service']).catch(() => undefined);
    throw error;
  }
}

/** Stops Quay, and copies the database that the newer Quay has changed. */
async function saveNewer(registry: OpenRegistry, begun: UpgradeJournal): Promise<UpgradeJournal> {
  const { commands, force, records } = registry;
  const journal = await records.advance(begun, 'saving');
  await stopDatabase(commands, begun);
  const newer = await records.state.locate(newerName);
  const clear = async (): Promise<void> => {
    // An earlier one may be of PostgreSQL.
    await kindOf({ isPostgres: true }).removeCopy(commands, newer);
    await records.state.remove(newerName);
  };
  try {
    const database = await findNewer(registry, begun);
    await clear();
    await records.state.makeFolder(newerName);
    await database?.kind.copy(commands, database.folder, newer);
  } catch (error) {
    if (!force) throw error;
    await clear();
  }
  return journal;
}

/** Returns whether the newer database needs a copy and is not yet overwritten. */
function isSaved({ phase }: UpgradeJournal, keepNewer: boolean): boolean {
  return phase === 'saving' || (phase === 'restarting' && keepNewer);
}

async function restore(registry: OpenRegistry, journal: UpgradeJournal): Promise<UpgradeJournal> {
  const { commands, records } = registry;
  if (journal.database !== undefined) await stopDatabase(commands, journal);
  await records.restore(journal);
  for (const { name, from } of journal.names) {
    if (from !== undefined) await commands.podman(['tag', from, name]);
  }
  await renameReplaced(commands, journal);
  if (journal.database !== undefined) {
    if (journal.migration) await undoMigration(registry, journal.migration);
    await kindOf(journal).restore(commands, await records.folderOf(journal), journal.database);
  }
  await removeSecrets(commands, journal.secrets ?? []);
  for (const unit of journal.retired?.units ?? []) await commands.systemctl(['enable', `${unit}.service`]);
  return advance(records, journal, 'starting');
}

/** Records the beginning of the restoration, in the space that is reserved for it. */
async function beginRestoring(records: UpgradeRecords, begun: UpgradeJournal): Promise<UpgradeJournal> {
  await records.freeReserve(begun);
  // The database is unchanged until its copy is complete.
  const journal = begun.phase === 'writing' ? { ...begun, database: undefined } : begun;
  return advance(records, journal, 'restoring');
}

async function advance(records: UpgradeRecords, journal: UpgradeJournal, phase: UpgradePhase): Promise<UpgradeJournal> {
  try {
    return await records.advance(journal, phase);
  } catch (error) {
    // Without a database, resuming from an earlier phase has the same result.
    if (isPluginError(error, 'disk-full') && journal.database === undefined) return journal;
    throw error;
  }
}
