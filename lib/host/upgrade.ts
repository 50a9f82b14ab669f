import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { serveBundle } from '../bundle/serve.ts';
import type { Bundle } from '../bundle/open.ts';
import type { Context } from '../context.ts';
import { isPluginError, messageOf, PluginError } from '../errors.ts';
import { releaseRepository } from '../store/directory.ts';
import { readCertificates } from './certificates.ts';
import { detectInstallation } from './detect.ts';
import type { FileChange } from './fileChange.ts';
import { askHealth, questionFor, waitForHealth } from './health.ts';
import type { HostCommands } from './hostCommands.ts';
import type { HostFiles } from './hostFiles.ts';
import type { DetectedInstallation } from './installation.ts';
import { isUpToDate, planUpgrade, requireFeasible, type TargetImages, type UpgradePlan } from './plan.ts';
import { findRenewals, renewCertificates, type RenewalOptions } from './renewal.ts';
import { imagesOfBundle } from './registryBundle.ts';
import type { DetectOptions } from './scopes.ts';
import { UpgradeRecords, type UpgradeJournal } from './upgradeJournal.ts';
import { stateFolderOf } from './stateFolder.ts';

/** What an upgrade works on, and how. */
export interface UpgradeRequest {
  readonly files: HostFiles;
  readonly detect: DetectOptions;
  readonly commands: HostCommands;
  readonly target: TargetImages;
  /** Where the images come from; without one podman pulls them. */
  readonly bundle: Bundle | undefined;
  readonly renewal: RenewalOptions;
  /** How long the registry may take to come up, in seconds. */
  readonly healthTimeout: number;
  readonly keepBackups: number;
}

/** What became of it. */
export interface UpgradeResult {
  readonly outcome: 'unchanged' | 'upgraded' | 'resumed';
  readonly plan: UpgradePlan | undefined;
}

/**
 * Upgrades a mirror registry: images first, then a backup, then the units and certificates, then it is started again and has to be well.
 * When it does not get well, everything is put back. A run that was killed is gone on with. The caller holds the lock. Throws
 * `rolled-back`, `rollback-failed`, `unsupported` for what cannot be done, and before anything is changed what reading and loading throw.
 */
export async function upgradeRegistry(request: UpgradeRequest, context: Context): Promise<UpgradeResult> {
  const { files, renewal } = request;
  const detected = await detectInstallation(files, request.detect);
  const records = new UpgradeRecords(files, stateFolderOf(detected.installation));
  const unfinished = await records.current();
  if (unfinished) {
    context.log('warn', `an earlier run did not end: going on with it`);
    if (unfinished.phase === 'restoring') await rollBack(request, records, unfinished, context, 'it had begun before');
    await carryOut(request, records, unfinished, context);
    return { outcome: 'resumed', plan: undefined };
  }
  const certificates = await readCertificates(files, detected.installation, renewal.now);
  const renewals = findRenewals(certificates, detected.installation, renewal);
  const plan = planUpgrade({ detected, certificates: certificates.status, renewals, target: request.target });
  if (isUpToDate(plan)) return { outcome: 'unchanged', plan };
  requireFeasible(plan);

  const problem = await askHealth(questionFor(detected, certificates), context.signal);
  if (problem !== undefined) context.log('warn', `the registry is not well as it is: ${problem}`);
  await loadImages(request, plan, context);
  const renewed =
    renewals.server.length > 0
      ? await renewCertificates(files, certificates, detected.installation, renewal)
      : undefined;
  const units = plan.units.map(({ path, before, after }): FileChange => {
    return { path, before: Buffer.from(before), after: Buffer.from(after) };
  });
  const quayChanges = plan.images.some(({ component }) => component === 'quay');
  const journal = await records.begin(
    [...units, ...(renewed?.changes ?? [])],
    {
      restart: plan.restart,
      database: quayChanges ? await findDatabase(request, detected, context.signal) : undefined,
      wasHealthy: problem === undefined,
    },
    renewal.now,
  );
  await carryOut(request, records, journal, context);
  return { outcome: 'upgraded', plan };
}

/**
 * Takes back the upgrade that has not ended, or else the last one: files, modes and owners as they were, the database too where Quay was
 * another. Returns whether there was one. Throws `rollback-failed`.
 */
export async function rollBackRegistry(request: UpgradeRequest, context: Context): Promise<boolean> {
  const detected = await detectInstallation(request.files, request.detect);
  const records = new UpgradeRecords(request.files, stateFolderOf(detected.installation));
  const journal = (await records.current()) ?? (await records.last());
  if (!journal) return false;
  await putBack(request, records, journal, context);
  return true;
}

async function carryOut(
  request: UpgradeRequest,
  records: UpgradeRecords,
  begun: UpgradeJournal,
  context: Context,
): Promise<void> {
  const { commands, healthTimeout, keepBackups } = request;
  const { signal } = context;
  let journal = begun;
  try {
    if (journal.phase === 'writing') {
      if (journal.database !== undefined) {
        await commands.systemctl(['stop', 'quay-app.service'], signal);
        await copyDatabase(commands, journal.database, records.folderOf(journal), signal);
      }
      journal = await records.advance(journal, 'restarting');
    }
    await records.apply(journal);
    await restart(request, journal, signal);
    const { question } = await lookAgain(request);
    context.log('info', 'waiting for the registry to be well');
    await waitForHealth(question, healthTimeout, signal);
  } catch (error) {
    await rollBack(request, records, journal, context, messageOf(error), error);
  }
  await records.end(journal, true, keepBackups);
}

/** Puts everything back and says so: never returns. */
async function rollBack(
  request: UpgradeRequest,
  records: UpgradeRecords,
  journal: UpgradeJournal,
  context: Context,
  why: string,
  cause?: unknown,
): Promise<never> {
  context.log('warn', `${why}: putting everything back`);
  await putBack(request, records, journal, context);
  throw new PluginError('rolled-back', `the upgrade was rolled back: ${why}`, {
    hint: 'The registry is as it was before. See why, and try again.',
    cause,
  });
}

async function putBack(
  request: UpgradeRequest,
  records: UpgradeRecords,
  begun: UpgradeJournal,
  context: Context,
): Promise<void> {
  const { commands, healthTimeout, keepBackups } = request;
  // Whoever interrupts an upgrade wants the registry back.
  const { signal } = new AbortController();
  try {
    const hasSnapshot = begun.database !== undefined && begun.phase !== 'writing';
    const journal = await records.advance(begun, hasSnapshot ? 'restoring' : begun.phase);
    if (journal.database !== undefined) await commands.systemctl(['stop', 'quay-app.service'], signal);
    await records.restore(journal);
    if (journal.database !== undefined && hasSnapshot) {
      await restoreDatabase(commands, records.folderOf(journal), journal.database, signal);
    }
    await restart(request, journal, signal);
    const { question } = await lookAgain(request);
    if (journal.wasHealthy) await waitForHealth(question, healthTimeout, signal);
    await records.end(journal, false, keepBackups);
  } catch (cause) {
    const { signal: aborted } = context;
    throw new PluginError('rollback-failed', `the registry could not be put back: ${messageOf(cause)}`, {
      hint: `Mend that and run 'rollback'. What was there before is in ${records.folderOf(begun)}.${aborted.aborted ? ' It was interrupted.' : ''}`,
      cause,
    });
  }
}

async function restart(
  { commands }: UpgradeRequest,
  { restart: units }: UpgradeJournal,
  signal: AbortSignal,
): Promise<void> {
  await commands.systemctl(['daemon-reload'], signal);
  for (const unit of units) await commands.systemctl(['restart', `${unit}.service`], signal);
}

async function lookAgain(request: UpgradeRequest): Promise<{ question: ReturnType<typeof questionFor> }> {
  const detected = await detectInstallation(request.files, request.detect);
  const certificates = await readCertificates(request.files, detected.installation, request.renewal.now);
  return { question: questionFor(detected, certificates) };
}

/** Has podman hold every image before anything is stopped. What comes out of a bundle is served to it by digest. */
async function loadImages({ commands, bundle }: UpgradeRequest, plan: UpgradePlan, context: Context): Promise<void> {
  const { signal } = context;
  if (plan.images.length === 0) return;
  const held = bundle && imagesOfBundle(bundle.metadata, bundle.path);
  const server = bundle && (await serveBundle(bundle, { host: '127.0.0.1', port: 0 }, context));
  try {
    for (const { component, to } of plan.images) {
      context.log('info', `loading ${to}`);
      const own = held?.[component];
      if (server && own?.image === to) {
        const source = `${new URL(server.url).host}/${releaseRepository}@${own.digest}`;
        await commands.podman(['pull', '--quiet', '--tls-verify=false', source], signal);
        await commands.podman(['tag', source, to], signal);
      } else if (!(await hasImage(commands, to, signal))) {
        await commands.podman(['pull', '--quiet', to], signal);
      }
      await commands.podman(['image', 'exists', to], signal);
    }
  } finally {
    await server?.close();
  }
}

async function hasImage(commands: HostCommands, image: string, signal: AbortSignal): Promise<boolean> {
  try {
    await commands.podman(['image', 'exists', image], signal);
    return true;
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return false;
    throw error;
  }
}

async function findDatabase(
  { files, commands }: UpgradeRequest,
  { installation }: DetectedInstallation,
  signal: AbortSignal,
): Promise<string | undefined> {
  const storage = installation.databaseStorage?.value;
  if (storage === undefined) return undefined;
  if (storage.startsWith('/')) return files.locate(storage);
  return (await commands.podman(['volume', 'inspect', '--format', '{{.Mountpoint}}', storage], signal)).trim();
}

const databaseName = /^quay_sqlite\.db(?:-wal|-shm)?$/;

async function copyDatabase(commands: HostCommands, from: string, to: string, signal: AbortSignal): Promise<void> {
  const names = (await readdir(from)).filter((name) => databaseName.test(name));
  for (const name of names) await commands.copy(join(from, name), join(to, name), signal);
}

async function restoreDatabase(commands: HostCommands, from: string, to: string, signal: AbortSignal): Promise<void> {
  const kept = (await readdir(from)).filter((name) => databaseName.test(name));
  // What a newer Quay left in a log of its own would be applied to the old database.
  for (const name of (await readdir(to)).filter((each) => databaseName.test(each) && !kept.includes(each))) {
    await commands.remove(join(to, name), signal);
  }
  for (const name of kept) await commands.copy(join(from, name), join(to, name), signal);
}
