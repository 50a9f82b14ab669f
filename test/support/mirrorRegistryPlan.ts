import { writeFile } from 'node:fs/promises';
import { readCertificates } from '../../lib/host/certificates.ts';
import { detectInstallation } from '../../lib/host/detect.ts';
import { HostFiles } from '../../lib/host/hostFiles.ts';
import { planUpgrade, type TargetImages, type UpgradePlan } from '../../lib/host/plan.ts';
import { findRenewals } from '../../lib/host/renewal.ts';
import type { Fixture } from './mirrorRegistry.ts';

/** Plans the upgrade of a fixture, with the usual options for its certificates. */
export async function planFixture({ root, home }: Fixture, target: TargetImages): Promise<UpgradePlan> {
  const files = new HostFiles(root);
  const now = new Date();
  const detected = await detectInstallation(files, { scope: 'auto', home });
  const certificates = await readCertificates(files, detected.installation, now);
  const options = { now, renewBefore: 90, certDays: 397, caDays: 1024, addHosts: [], force: false };
  const renewals = findRenewals(certificates, detected.installation, options);
  return planUpgrade({ detected, certificates: certificates.status, renewals, target });
}

/** Writes the units of a plan into a fixture. */
export async function writeUnits({ root }: Fixture, { units }: UpgradePlan): Promise<void> {
  for (const { path, after } of units) await writeFile(root + path, after);
}
