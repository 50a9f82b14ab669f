import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { openRecords, requireUntouched } from './execution.ts';
import { type ExecutionRequest } from './restart.ts';
import { requireRestorable, restoreRegistry } from './restoration.ts';
import { timeOf, type UpgradeJournal } from './upgradeJournal.ts';
import type { UpgradeRecords } from './upgradeRecords.ts';

/** What a rollback restores. */
export interface RollbackPlan {
  /** The change that it takes back, as the subject of a sentence, and when that began, ISO 8601. */
  readonly title: string;
  readonly begun: string;
  /** The change is unfinished. */
  readonly unfinished: boolean;
  /** The files that it writes or removes. */
  readonly files: readonly string[];
  /** The folder of the database that it replaces with that of the backup; undefined if it replaces none. */
  readonly database: string | undefined;
  /** The images that run again, by name. */
  readonly images: readonly string[];
  readonly restart: readonly string[];
}

/**
 * Finds what a rollback would restore, and makes sure that it can. Changes nothing. Returns undefined if there is no backup. Throws as
 * `requireRestorable`, `conflict` if the files were changed since, and `usage`.
 */
export async function planRollback(request: ExecutionRequest, { signal }: Context): Promise<RollbackPlan | undefined> {
  const records = openRecords(request);
  const journal = await findChange(request, records);
  if (!journal) return undefined;
  const isRestored = journal.phase === 'starting';
  if (!isRestored) await requireRestorable(request, records, journal, true, signal);
  return {
    title: journal.title,
    begun: timeOf(journal),
    unfinished: (await records.current()) !== undefined,
    files: isRestored ? [] : (await records.listChanged(journal)).map(({ path }) => path),
    database: isRestored || journal.phase === 'writing' ? undefined : journal.database,
    images: journal.replaced.map(({ name }) => name),
    restart: request.noRestart ? [] : journal.restart,
  };
}

/**
 * Takes back the unfinished change, or else the last one: files, modes and owners, and the database if Quay was another; what the newer
 * Quay made of the database is kept. Returns what it took back, undefined if there was nothing. Everything is checked before the registry
 * stops. Throws as `planRollback`, and `rollback-failed`.
 */
export async function rollBackRegistry(request: ExecutionRequest, context: Context): Promise<RollbackPlan | undefined> {
  const plan = await planRollback(request, context);
  if (!plan) return undefined;
  const records = openRecords(request);
  const journal = await findChange(request, records);
  if (journal) await restoreRegistry(request, records, journal, true, context);
  return plan;
}

/**
 * Gives up an unfinished change: the files stay as they are, and no command resumes it. Returns it and where its backup is kept; undefined
 * if there is none. Throws as `UpgradeRecords.current`.
 */
export async function abandonChange(
  request: ExecutionRequest,
): Promise<{ readonly journal: UpgradeJournal; readonly backup: string } | undefined> {
  const records = openRecords(request);
  const journal = await records.current();
  return journal && { journal, backup: await records.abandon(journal) };
}

async function findChange(request: ExecutionRequest, records: UpgradeRecords): Promise<UpgradeJournal | undefined> {
  const journal = (await records.current()) ?? (await records.last());
  if (!journal) return undefined;
  if (journal.phase === 'writing' || journal.phase === 'restarting') await requireUntouched(request, records, journal);
  if (request.noRestart && journal.database !== undefined) {
    throw new PluginError('usage', '--no-restart does not go with a database that has to be restored', {
      hint: 'Quay has to be stopped for that. Leave the option out.',
    });
  }
  return journal;
}
