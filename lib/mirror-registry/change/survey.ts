import { readCertificates, type HostCertificates } from '../certificates/certificates.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import { defaultSqliteStorage, releaseComponents, type ReleaseComponent } from '../installation.ts';
import { type DetectedInstallation } from '../detect/detect.ts';
import { listImageChanges, planUpgrade, type UpgradePlan } from './plan.ts';
import { listMissingUnits } from './missingUnits.ts';
import { findUnmetNeeds } from './needs.ts';
import { findImage, type RegistryRelease, type TargetImages } from '../releases/images.ts';
import { readState } from '../detect/registryState.ts';
import { findRenewals, type RenewalNeed, type RenewalOptions } from '../certificates/renewal.ts';

/** The input of a survey. */
export interface SurveyRequest {
  readonly files: HostFiles;
  /** The detected registry. */
  readonly detected: DetectedInstallation;
  /** The images to change to; the images of `release` if it is given. */
  readonly target: TargetImages;
  readonly release: RegistryRelease | undefined;
  readonly renewal: RenewalOptions;
  /** The volume or folder for the database, if it moves to SQLite. */
  readonly sqliteStorage?: string | undefined;
}

/** The state of a registry, and the plan for it. */
export interface RegistrySurvey {
  readonly certificates: HostCertificates;
  /** The options of the renewal. */
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
  signal = new AbortController().signal,
): Promise<RegistrySurvey> {
  const { installation } = detected;
  const certificates = await readCertificates(files, installation, options.now);
  const state = await readState(files, installation);
  const respun: ReleaseComponent[] = [];
  const unknown: string[] = [];
  for (const component of releaseComponents) {
    const present = installation.images[component]?.value;
    const wanted = release?.images[component];
    if (present === undefined || wanted?.id === undefined || wanted.image !== present) continue;
    const recorded = state?.images[component];
    const known = recorded?.ref === present ? recorded.id : undefined;
    const id = podman ? await findImage(podman, present, signal) : known;
    if (id === undefined && !podman) unknown.push(present);
    else if (id !== wanted.id) respun.push(component);
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
    sqliteStorage,
    missing: listMissingUnits(detected, target),
    needs: podman ? await findUnmetNeeds(podman, detected, images, signal) : { blockers: [], warnings: [] },
  });
  return { certificates, renewal, renewals, plan };
}
