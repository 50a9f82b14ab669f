import { join } from 'node:path';
import { hintOf, isPluginError, messageOf, PluginError } from '#errors';
import { detectInstallation } from '../detect/detect.ts';
import { removeFile } from '../installation/fileChange.ts';
import { scratchNames } from '../installation/stateFolder.ts';
import { replaceDatabase } from './database.ts';
import { kindOf, stopDatabase } from './databaseKind.ts';
import { createStorage, migrateDatabase } from './migration.ts';
import type { OpenRegistry } from './openRegistry.ts';
import { dumpName, loadPostgres } from './postgres.ts';
import { keepReplaced, releaseReplaced } from './replacedImages.ts';
import { disableUnits, requireContainers, restartUnits, startStopped, waitForRegistry } from './restart.ts';
import { noteUnfinished, restoreRegistry } from './restoration.ts';
import { createSecrets, removeSecrets } from './secrets.ts';
import {
  isForward,
  type ForwardJournal,
  type ForwardPhase,
  type PlannedChange,
  type UpgradeJournal,
  type RetiredUnits,
} from './upgradeJournal.ts';

/**
 * Finishes an interrupted change, or rolls it back if its rollback had begun. Returns the registry after that, with the
 * title of the change in `resumed`; the same registry if no change was unfinished. Throws the errors of
 * `changeRegistry`, and `conflict` if the files were changed since.
 */
export async function resumeUnfinished<T extends OpenRegistry>(
  registry: T,
): Promise<T & { readonly resumed?: string }> {
  const { records, context, files, detect } = registry;
  await startStopped(registry);
  const unfinished = await records.current();
  if (!unfinished) {
    await records.state.removeScratch();
    return registry;
  }
  const { title } = unfinished;
  context.log('warn', `${title} of an earlier run is unfinished: resuming`);
  if (!isForward(unfinished)) return rollBack(registry, unfinished, true, 'an earlier run began the rollback');
  await requireUntouched(registry, unfinished);
  await execute(registry, unfinished, true);
  return { ...registry, detected: await detectInstallation(files, detect), resumed: title };
}

/**
 * Changes a registry: saves the old files, writes the new ones, restarts the named units, and waits until the registry
 * is healthy. Restores everything if it does not become healthy. Throws `rolled-back`, `rollback-failed` and, before
 * any change, `disk-full` and `not-writable`.
 */
export async function changeRegistry(registry: OpenRegistry, change: PlannedChange): Promise<void> {
  await execute(registry, await registry.records.begin(change, registry.now), false);
}

/** Throws `conflict` if the files of a change were modified after it, unless `force`. */
export async function requireUntouched({ force, records }: OpenRegistry, journal: UpgradeJournal): Promise<void> {
  const modified = await records.listModified(journal);
  if (force || modified.length === 0) return;
  throw new PluginError('conflict', `${modified.join(' and ')} changed since ${journal.title}`, {
    hint: 'Another program or user changed it. Save a copy, and force the change.',
    settings: ['force'],
  });
}

interface ChangingRegistry extends OpenRegistry {
  /** When it stopped, on the clock of `performance`. A resumed run does not know it. */
  stopped: number | undefined;
}

/** What a step adds to the journal. The last one has no next phase. */
interface StepResult extends Pick<UpgradeJournal, 'copyDigest' | 'outage'> {
  readonly phase?: ForwardPhase;
}

const steps: Readonly<
  Record<ForwardPhase, (registry: ChangingRegistry, journal: UpgradeJournal) => Promise<StepResult>>
> = {
  async writing(registry, journal) {
    const { commands, records } = registry;
    const { database, replacesDatabase, migration } = journal;
    await keepReplaced(commands, journal);
    const phase = migration ? 'migrating' : replacesDatabase ? 'replacing' : 'restarting';
    if (database === undefined) return { phase };
    const [kind, backup] = [kindOf(journal), await records.folderOf(journal)];
    registry.stopped &&= performance.now();
    await stopDatabase(commands, journal);
    await kind.copy(commands, database, backup);
    // A damaged database may be the reason for its replacement.
    if (!replacesDatabase) await kind.check(commands, backup);
    return { phase, copyDigest: await kind.digest(commands, backup) };
  },
  async migrating(registry, { migration }) {
    if (migration) await migrateDatabase(registry, migration);
    return { phase: 'replacing' };
  },
  async replacing(registry, journal) {
    const { commands, records } = registry;
    const { migration, isPostgres } = journal;
    // A restart of the host may have started it since.
    await stopDatabase(commands, journal);
    const replacement = await records.state.locate(scratchNames.replacement);
    if (isPostgres && !migration) await loadPostgres(registry, join(replacement, dumpName));
    else {
      const database = migration ? await createStorage(registry, migration) : journal.database;
      const backup = await records.folderOf(journal);
      if (database !== undefined) await replaceDatabase(commands, { replacement, backup, database });
    }
    await records.apply(journal);
    return { phase: 'restarting' };
  },
  async restarting(registry, journal) {
    const { commands, records, noRestart } = registry;
    let outage: number | undefined;
    await records.apply(journal);
    await createSecrets(registry, journal.secrets ?? []);
    for (const { name, to } of journal.names) await commands.podman(['tag', to, name]);
    if (!noRestart && journal.restart.length > 0) {
      if (journal.database === undefined) registry.stopped &&= performance.now();
      await restartUnits(registry, journal);
      await waitForRegistry(registry);
      outage = registry.stopped && Math.ceil((performance.now() - registry.stopped) / 1000);
      await requireContainers(registry, journal);
    }
    await disableUnits(commands, journal.retired?.units ?? []);
    return outage === undefined ? {} : { outage };
  },
};

async function execute(registry: OpenRegistry, begun: ForwardJournal, isResumed: boolean): Promise<void> {
  const { records, context, keepBackups } = registry;
  const changing = { ...registry, stopped: isResumed ? undefined : performance.now() };
  let journal = begun;
  noteUnfinished(journal, context);
  try {
    for (;;) {
      const { phase, ...progress } = await steps[journal.phase](changing, journal);
      journal = { ...journal, ...progress };
      if (phase === undefined) break;
      journal = await records.advance(journal, phase);
    }
  } catch (error) {
    const why = isPluginError(error, 'interrupted') ? 'it was interrupted' : messageOf(error);
    await rollBack(registry, journal, isResumed, why, error);
  }
  await records.end(journal, true);
  context.onUnfinished?.(undefined);
  for (const expired of await records.listExpired(keepBackups)) await dropBackup(registry, expired);
}

/** Restores everything, and throws. After an interrupted run a newer Quay may have served, so its database is kept. */
async function rollBack(
  registry: OpenRegistry,
  journal: UpgradeJournal,
  keepNewer: boolean,
  why: string,
  cause?: unknown,
): Promise<never> {
  registry.context.log('warn', `rolling back ${journal.title}: ${why}`);
  await restoreRegistry(registry, journal, keepNewer);
  throw new PluginError('rolled-back', `${journal.title} was rolled back: ${why}`, {
    hint: `The registry is as it was before. ${hintOf(cause) ?? 'Fix the cause.'} Then run the same command again.`,
    cause,
  });
}

/**
 * Removes the backup of a change, with the names of its images, and with the units and secrets that only a rollback
 * would need. Keeps the data of PostgreSQL. An interrupted run is completed by the next one. Throws `command-failed`,
 * `not-writable`.
 */
export async function dropBackup(registry: OpenRegistry, journal: UpgradeJournal): Promise<void> {
  const { commands, records } = registry;
  if (journal.retired) await removeRetired(registry, journal.retired);
  await releaseReplaced(commands, journal);
  await kindOf(journal).removeCopy(commands, await records.folderOf(journal));
  await records.drop(journal);
}

async function removeRetired(registry: OpenRegistry, { units, secrets }: RetiredUnits): Promise<void> {
  const { files, commands, detect, context } = registry;
  const { installation, units: present } = await detectInstallation(files, detect);
  // Another program may use PostgreSQL again.
  if (installation.database === 'postgres') return;
  const { unitFolder: within } = installation;
  // An interrupted run may have removed them.
  await disableUnits(
    commands,
    units.filter((unit) => present.has(unit)),
  );
  for (const unit of units) {
    const name = join(within, `${unit}.service`);
    const parts = (present.get(unit)?.files ?? []).map(({ path }) => path);
    for (const path of [...parts.filter((each) => each !== name), name]) await removeFile(files, { path, within });
    context.log('info', `removed ${name}. Its data is kept: see podman volume ls`);
  }
  await commands.systemctl(['daemon-reload']);
  await removeSecrets(commands, secrets);
}
