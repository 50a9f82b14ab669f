import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import { originAfter, renewCertificates, type RenewalOptions } from '../certificates/renewal.ts';
import { editQuayConfiguration } from '../detect/configuration.ts';
import { detectInstallation, type DetectedInstallation } from '../detect/detect.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import { describeState } from '../detect/registryState.ts';
import type { FileChange } from '../installation/fileChange.ts';
import {
  loadImages,
  type ImageChange,
  type LoadedImages,
  type RegistryRelease,
  type TargetImages,
} from '../releases/images.ts';
import { listMissingUnits, writeMissingUnits } from '../releases/missingUnits.ts';
import { findDatabase } from './databaseKind.ts';
import { changeRegistry, resumeUnfinished } from './execution.ts';
import { requireHealth } from './health.ts';
import { prepareMigration } from './migration.ts';
import { sqliteUri } from './migrationPlan.ts';
import { lockRegistry, type ExecutionRequest } from './openRegistry.ts';
import { isUpToDate, requireFeasible, type UpgradePlan } from './plan.ts';
import { requireReadiness } from './readiness.ts';
import { findReplaced } from './replacedImages.ts';
import { listMissingSecrets } from './secrets.ts';
import { surveyHost, type RegistrySurvey } from './survey.ts';
import type { RetiredUnits, UpgradeJournal } from './upgradeJournal.ts';

/** The input of an upgrade. */
export interface UpgradeRequest extends ExecutionRequest {
  readonly target: TargetImages;
  /** The source of the images; without it, podman pulls them. */
  readonly release: RegistryRelease | undefined;
  /** The digest of the whole release, if given. */
  readonly expectedDigest: Digest | undefined;
  readonly renewal: RenewalOptions;
  /** The volume or folder for the database, if it moves to SQLite. */
  readonly sqliteStorage: string;
}

const restartOrder = ['quay-pod', 'quay-redis', 'quay-postgres', 'quay-app'];

/** The result of an upgrade. */
export interface UpgradeResult {
  /** `resumed` if only the change of an earlier run had to be finished. */
  readonly outcome: 'unchanged' | 'upgraded' | 'resumed';
  readonly plan: UpgradePlan;
}

/**
 * Upgrades a mirror registry: loads images, makes a backup, changes units and certificates, restarts, and waits until
 * it is healthy. Restores everything if it does not become healthy. Resumes an interrupted change first. Throws
 * `busy`, `rolled-back`, `rollback-failed`, `unsupported` if the upgrade is blocked and, before any change,
 * the errors of reading and loading.
 */
export async function upgradeRegistry(request: UpgradeRequest, context: Context): Promise<UpgradeResult> {
  await using locked = await lockRegistry(request, context);
  const present = await resumeUnfinished(locked);
  const { files, commands, release, noRestart, force, records } = present;
  const first = await surveyHost(present, commands);
  requireFeasible(first.plan);
  if (isUpToDate(first.plan)) return { outcome: present.resumed ? 'resumed' : 'unchanged', plan: first.plan };
  const missing = listMissingUnits(present.detected, request.target);
  if (missing.length > 0) await writeMissingUnits(present, missing);
  const detected = missing.length > 0 ? await detectInstallation(files, request.detect) : present.detected;
  const registry = { ...present, detected };
  const survey = missing.length > 0 ? await surveyHost(registry, commands) : first;
  const { certificates, renewal, renewals } = survey;
  const { repairs, restart } = first.plan;
  const plan = {
    ...survey.plan,
    repairs,
    restart: restartOrder.filter((unit) => [...restart, ...survey.plan.restart].includes(unit)),
  };

  const quay = plan.images.find(({ component }) => component === 'quay');
  if (noRestart && (quay || plan.images.some(({ from, to }) => from === to))) {
    throw new PluginError('usage', 'a change of Quay, or of an image of the same name, must restart the registry', {
      hint: 'The database is copied while Quay is stopped. Allow the restart.',
    });
  }
  const database = quay && (await findDatabase(registry, detected.installation));
  const databaseSize = database ? await database.kind.size(commands, database.folder) : 0;
  const migration =
    plan.migration &&
    (await prepareMigration(registry, { image: quay?.to ?? '', storage: plan.migration.storage }, databaseSize));
  if (plan.images.length > 0) {
    await requireReadiness({ commands, release, databaseSize, backups: await records.state.locate() });
    await release?.check(request.expectedDigest, context);
  }
  const wasHealthy = !noRestart && (await requireHealth(detected, certificates, force || missing.length > 0, context));
  const { postgres } = detected.installation.images;
  const old = [...plan.images.map(({ from }) => from), ...(migration && postgres ? [postgres.value] : [])];
  const replaced = await findReplaced(commands, old, context);
  const loaded = await loadImages(commands, release, plan.images, context);
  const renewed =
    renewals.server.length > 0
      ? await renewCertificates(files, certificates, detected.installation, renewal)
      : undefined;
  const changes = [
    // First, so that an old Quay cannot start on the wrong database.
    ...(plan.migration ? [await changeDatabaseUri(files, plan.migration.configuration)] : []),
    ...plan.units.map(({ path, before, after }): FileChange => {
      return { path, before: Buffer.from(before), after: Buffer.from(after) };
    }),
    ...(renewed?.changes ?? []),
  ];
  await changeRegistry(registry, {
    title: 'the upgrade',
    changes: [...changes, await recordUpgrade(registry, survey, loaded, changes)],
    restart: migration ? withPostgres(plan.restart) : plan.restart,
    database: database?.folder,
    isPostgres: detected.installation.database === 'postgres',
    ...(migration && { migration, retired: retiredUnits(detected) }),
    secrets: await listMissingSecrets(commands, plan.restart, detected),
    containers: containersOf(detected, plan.images),
    names: loaded.names,
    replaced,
    wasHealthy,
  });
  return { outcome: 'upgraded', plan };
}

async function changeDatabaseUri(files: HostFiles, path: string): Promise<FileChange> {
  const before = await files.read(path);
  const after = editQuayConfiguration(path, before?.toString() ?? '', [[['DB_URI'], sqliteUri]]);
  return { path, before, after: Buffer.from(after) };
}

/** Adds the unit of PostgreSQL, which a rollback starts before Quay. */
function withPostgres(restart: readonly string[]): string[] {
  return [...restart.filter((unit) => unit !== 'quay-app'), 'quay-postgres', 'quay-app'];
}

function retiredUnits({ commands: { postgres } }: DetectedInstallation): RetiredUnits {
  const secrets = valuesOf(postgres, 'secret').map(({ value }) => value.split(',')[0] ?? '');
  return { units: ['quay-postgres'], secrets };
}

function recordUpgrade(
  { files, detected, now }: UpgradeRequest,
  { certificates, renewal, plan }: RegistrySurvey,
  { ids }: LoadedImages,
  changes: readonly FileChange[],
): Promise<FileChange> {
  const images = plan.images.flatMap(({ component, to }) => {
    const id = ids.get(component);
    return id === undefined ? [] : [[component, { ref: to, id }] as const];
  });
  return describeState(files, {
    detected,
    version: plan.to,
    images: new Map(images),
    changes,
    lastUpgrade: now.toISOString(),
    origin: originAfter(renewal, certificates),
  });
}

/** Returns the containers with new images. The container of the pod has no name. */
function containersOf(
  { commands }: DetectedInstallation,
  images: readonly ImageChange[],
): UpgradeJournal['containers'] {
  return images.flatMap(({ component, to }) => {
    const [named] = component === 'pause' ? [] : valuesOf(commands[component], 'name');
    return named ? [{ name: named.value, image: to }] : [];
  });
}
