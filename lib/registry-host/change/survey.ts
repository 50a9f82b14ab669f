import { join } from 'node:path';
import { measureFree } from '#content/files';
import type { HostCommands, HostFiles } from '#node/machine';
import { readCertificates, type HostCertificates } from '../certificates/certificates.ts';
import { findRenewals, type RenewalNeed, type RenewalOptions } from '../certificates/renewal.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { readState } from '../detect/registryState.ts';
import {
  defaultSqliteStorage,
  releaseComponents,
  type HostAccess,
  type ReleaseComponent,
} from '../installation/installation.ts';
import { stateFolderOf } from '../installation/stateFolder.ts';
import { findImage, type RegistryRelease, type TargetImages } from '../releases/images.ts';
import { listMissingUnits } from '../releases/missingUnits.ts';
import { findDatabase } from './databaseKind.ts';
import { UpgradeRecords } from './openRegistry.ts';
import { listImageChanges, planUpgrade, type UpgradePlan } from './plan.ts';
import { findUnmetNeeds } from './readiness.ts';

/** The input of a survey. */
export interface SurveyRequest {
  readonly files: HostFiles;
  readonly detected: DetectedInstallation;
  /** The images to change to; the images of `release` if it is given. */
  readonly target: TargetImages;
  readonly release: RegistryRelease | undefined;
  readonly renewal: RenewalOptions;
  /** The volume or folder for the database, if it moves to SQLite. */
  readonly sqliteStorage?: string;
}

/** The state of a registry, and the plan for it. */
export interface RegistrySurvey {
  readonly certificates: HostCertificates;
  readonly renewal: RenewalOptions;
  readonly renewals: RenewalNeed;
  readonly plan: UpgradePlan;
}

/**
 * Surveys the registry of a host, and plans its upgrade. Writes nothing. Without `podman`, recorded IDs of images are
 * used, and what podman has is not compared. Throws the errors of `readCertificates`.
 */
export async function surveyHost(
  { files, detected, target, release, renewal: options, sqliteStorage = defaultSqliteStorage }: SurveyRequest,
  podman?: HostCommands,
): Promise<RegistrySurvey> {
  const { installation } = detected;
  const certificates = await readCertificates(files, installation, options.now);
  const state = await readState(files, installation);
  const respun: ReleaseComponent[] = [];
  const unknown: string[] = [];
  for (const component of releaseComponents) {
    const present = installation.images[component]?.value;
    const releaseImage = release?.images[component];
    if (present === undefined || releaseImage?.id === undefined || releaseImage.image !== present) continue;
    const recorded = state?.images[component];
    const recordedId = recorded?.ref === present ? recorded.id : undefined;
    const id = podman ? await findImage(podman, present) : recordedId;
    if (id === undefined && !podman) unknown.push(present);
    else if (id !== releaseImage.id) respun.push(component);
  }
  const images = listImageChanges(installation, target, respun);
  const withQuay = images.some(({ component }) => component === 'quay');
  const renewal = { ...options, withQuay };
  const renewals = findRenewals(certificates, installation, renewal);
  const plan = planUpgrade({
    detected,
    certificates: certificates.status,
    renewals,
    images,
    unknown,
    renewBefore: options.renewBefore,
    now: options.now,
    sqliteStorage,
    missing: listMissingUnits(detected, target),
    needs: podman
      ? await findUnmetNeeds({ files, commands: podman }, detected, images)
      : { blockers: [], warnings: [] },
  });
  return { certificates, renewal, renewals, plan };
}

/** What an upgrade costs on this host. Sizes are in bytes, times in seconds. */
export interface Forecast {
  /** The size of the database that is copied while Quay is stopped; 0 if it is not copied. */
  readonly databaseSize: number;
  /** The time to copy and check it, from the measured time to read it. */
  readonly copyTime: number;
  /** The outage of the last change on this host that copied the database, or not, as this one. */
  readonly lastOutage: number | undefined;
  /** The space for the backup, and the free space there. */
  readonly backupSize: number;
  readonly free: number;
}

/** A copy is read, written, read for its digest, copied again for the check of SQLite, and checked. */
const passes = 5;

/**
 * Measures what a plan costs on this host. Changes nothing. Throws `command-failed`, `not-readable`, `invalid-file`.
 */
export async function forecastUpgrade(
  host: HostAccess & { readonly detected: DetectedInstallation },
  { images }: UpgradePlan,
): Promise<Forecast> {
  const { files, commands, detected } = host;
  const { installation } = detected;
  const copies = images.some(({ component }) => component === 'quay');
  const database = copies ? await findDatabase(host, installation) : undefined;
  const databaseSize = database ? await database.kind.size(commands, database.folder) : 0;
  const begun = performance.now();
  if (database) await commands.digestOf(database.folder, []);
  const readTime = (performance.now() - begun) / 1000;
  const { free } = await measureFree(files.locate(join(stateFolderOf(installation), 'each')));
  const ended = await new UpgradeRecords(files, installation).listEnded();
  const last = ended.findLast(({ outage, database }) => outage !== undefined && (database !== undefined) === copies);
  return {
    databaseSize,
    copyTime: database ? passes * readTime : 0,
    lastOutage: last?.outage,
    backupSize: 2.2 * databaseSize,
    free,
  };
}
