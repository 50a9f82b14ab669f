import type { Context } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { readCertificates } from './certificates.ts';
import { checkDatabase, copyDatabase, restoreDatabase } from './database.ts';
import { detectInstallation } from './detect.ts';
import type { FileChange } from './fileChange.ts';
import { questionFor, waitForHealth, type HealthQuestion } from './health.ts';
import type { HostCommands } from './hostCommands.ts';
import type { HostFiles } from './hostFiles.ts';
import { findImage } from './images.ts';
import type { DetectOptions } from './scopes.ts';
import { stateFolderOf } from './stateFolder.ts';
import { UpgradeRecords, type UpgradeJournal } from './upgradeJournal.ts';

/** How a registry is changed, whatever the change is. */
export interface ExecutionRequest {
  readonly files: HostFiles;
  readonly detect: DetectOptions;
  readonly commands: HostCommands;
  readonly now: Date;
  /** Leave it to somebody else to start the registry again, and do not look whether it is well. */
  readonly noRestart: boolean;
  /** Go on although the registry is not well as it is, or although somebody changed its files since. */
  readonly force: boolean;
  /** How long the registry may take to come up, in seconds. */
  readonly healthTimeout: number;
  readonly keepBackups: number;
}

/** Opens the journal and the backups of the registry that a request is about. Throws as `detectInstallation`. */
export async function openRecords({ files, detect }: ExecutionRequest): Promise<UpgradeRecords> {
  const { installation } = await detectInstallation(files, detect);
  return new UpgradeRecords(files, stateFolderOf(installation));
}

/**
 * Ends what an earlier run began, forward, or back where it was on its way back. Returns whether there was anything. Throws as `carryOut`,
 * and `conflict` when somebody changed the files since.
 */
export async function finishEarlier(
  request: ExecutionRequest,
  records: UpgradeRecords,
  context: Context,
): Promise<boolean> {
  const unfinished = await records.current();
  if (!unfinished) return false;
  context.log('warn', `${unfinished.title} of an earlier run did not end: going on with it`);
  if (unfinished.phase === 'restoring') await rollBack(request, records, unfinished, context, 'that had begun before');
  await requireUntouched(request, records, unfinished);
  await carryOut(request, records, unfinished, context);
  return true;
}

/**
 * Changes a registry: keeps what is there, writes the files, starts what is named again, and waits until the registry is well. When it
 * does not get well, everything is put back. Throws `rolled-back`, `rollback-failed`, and before anything is changed `disk-full` and
 * `not-writable`.
 */
export async function changeRegistry(
  request: ExecutionRequest,
  records: UpgradeRecords,
  { changes, ...rest }: Omit<UpgradeJournal, 'id' | 'phase' | 'files'> & { readonly changes: readonly FileChange[] },
  context: Context,
): Promise<void> {
  const journal = await records.begin(changes, rest, request.now);
  await carryOut(request, records, journal, context);
}

/**
 * Takes back the change that has not ended, or else the last one: files, modes and owners as they were, the database too where Quay was
 * another. Returns what was taken back, undefined where there was nothing. Throws `rollback-failed`, and `conflict` when somebody changed
 * the files since.
 */
export async function rollBackRegistry(request: ExecutionRequest, context: Context): Promise<string | undefined> {
  const records = await openRecords(request);
  const journal = (await records.current()) ?? (await records.last());
  if (!journal) return undefined;
  if (journal.phase !== 'restoring') await requireUntouched(request, records, journal);
  if (request.noRestart && journal.database !== undefined) {
    throw new PluginError('usage', '--no-restart does not go with a database that has to be put back', {
      hint: 'Quay has to be stopped for that. Leave the option out.',
    });
  }
  await putBack(request, records, journal, context);
  return journal.title;
}

async function requireUntouched(
  { force }: ExecutionRequest,
  records: UpgradeRecords,
  journal: UpgradeJournal,
): Promise<void> {
  const foreign = await records.listForeign(journal);
  if (force || foreign.length === 0) return;
  throw new PluginError('conflict', `${foreign.join(' and ')} changed since ${journal.title}, by somebody else`, {
    hint: 'What was changed would be lost: keep it elsewhere, and then use --force.',
  });
}

async function carryOut(
  request: ExecutionRequest,
  records: UpgradeRecords,
  begun: UpgradeJournal,
  context: Context,
): Promise<void> {
  const { commands, healthTimeout, keepBackups, noRestart } = request;
  const { signal } = context;
  let journal = begun;
  try {
    if (journal.phase === 'writing') {
      if (journal.database !== undefined) {
        await commands.systemctl(['stop', 'quay-app.service'], signal);
        await copyDatabase(commands, journal.database, records.folderOf(journal), signal);
        await checkDatabase(commands, records.folderOf(journal), signal);
      }
      journal = await records.advance(journal, 'restarting');
    }
    await records.apply(journal);
    for (const { name, to } of journal.names) await commands.podman(['tag', to, name], signal);
    if (!noRestart && journal.restart.length > 0) {
      await restart(request, journal, signal);
      const question = await lookAgain(request);
      context.log('info', 'waiting for the registry to be well');
      await waitForHealth(question, healthTimeout, signal);
      await requireContainers(request, journal, signal);
    }
  } catch (error) {
    await rollBack(request, records, journal, context, messageOf(error), error);
  }
  await records.end(journal, true, keepBackups);
}

/** Puts everything back and says so: never returns. */
async function rollBack(
  request: ExecutionRequest,
  records: UpgradeRecords,
  journal: UpgradeJournal,
  context: Context,
  why: string,
  cause?: unknown,
): Promise<never> {
  context.log('warn', `${why}: putting everything back`);
  await putBack(request, records, journal, context);
  throw new PluginError('rolled-back', `${journal.title} was rolled back: ${why}`, {
    hint: 'The registry is as it was before. See why, and try again.',
    cause,
  });
}

async function putBack(
  request: ExecutionRequest,
  records: UpgradeRecords,
  begun: UpgradeJournal,
  context: Context,
): Promise<void> {
  const { commands, healthTimeout, keepBackups, noRestart } = request;
  // Whoever interrupts an upgrade wants the registry back.
  const { signal } = new AbortController();
  try {
    const journal = await beginRestoring(records, begun);
    if (journal.database !== undefined) await commands.systemctl(['stop', 'quay-app.service'], signal);
    await records.restore(journal);
    for (const { name, from } of journal.names) {
      if (from !== undefined) await commands.podman(['tag', from, name], signal);
    }
    if (journal.database !== undefined) {
      await restoreDatabase(commands, records.folderOf(journal), journal.database, signal);
    }
    if (!noRestart && journal.restart.length > 0) {
      await restart(request, journal, signal);
      const question = await lookAgain(request);
      if (journal.wasHealthy) await waitForHealth(question, healthTimeout, signal);
    }
    await records.end(journal, false, keepBackups);
  } catch (cause) {
    const { signal: aborted } = context;
    throw new PluginError('rollback-failed', `the registry could not be put back: ${messageOf(cause)}`, {
      hint: `Mend that and run 'rollback'. What was there before is in ${records.folderOf(begun)}.${aborted.aborted ? ' It was interrupted.' : ''}`,
      cause,
    });
  }
}

async function beginRestoring(records: UpgradeRecords, begun: UpgradeJournal): Promise<UpgradeJournal> {
  await records.makeRoom(begun);
  // Nothing has touched the database as long as its copy was not whole.
  const journal = begun.phase === 'writing' ? { ...begun, database: undefined } : begun;
  try {
    return await records.advance(journal, 'restoring');
  } catch (error) {
    // Without a database, going on from the middle leads to the same end.
    if (isPluginError(error, 'disk-full') && journal.database === undefined) return journal;
    throw error;
  }
}

async function restart(
  { commands }: ExecutionRequest,
  { restart: units }: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  await commands.systemctl(['daemon-reload'], signal);
  for (const unit of units) await commands.systemctl(['restart', `${unit}.service`], signal);
}

/** A registry that is well may still be the one that should have ended. */
async function requireContainers(
  { commands }: ExecutionRequest,
  { containers }: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, image } of containers) {
    const format = '{{.State.Running}} {{.Image}}';
    const [running, id] = (await commands.podman(['container', 'inspect', '--format', format, name], signal))
      .trim()
      .split(' ');
    if (running === 'true' && id !== undefined && id === (await findImage(commands, image, signal))) continue;
    throw new PluginError('unreachable', `the container ${name} does not run ${image}`);
  }
}

async function lookAgain({ files, detect, now }: ExecutionRequest): Promise<HealthQuestion> {
  const detected = await detectInstallation(files, detect);
  return questionFor(detected, await readCertificates(files, detected.installation, now));
}
