import { writeFile } from 'node:fs/promises';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import type { UpgradePlan } from '../../../lib/registry-host/change/plan.ts';
import { surveyHost } from '../../../lib/registry-host/change/survey.ts';
import { detectInstallation, type DetectedInstallation } from '../../../lib/registry-host/detect/detect.ts';
import type { DetectOptions } from '../../../lib/registry-host/detect/scopes.ts';
import type { TargetImages } from '../../../lib/registry-host/releases/images.ts';
import type { Fixture } from './mirrorRegistry.ts';

/** Finds the registry of a fixture. */
export function detectFixture(
  { root, home }: Pick<Fixture, 'root' | 'home'>,
  scope: DetectOptions['scope'] = 'auto',
): Promise<DetectedInstallation> {
  return detectInstallation(new HostFiles(root), { scope, home });
}

/** Plans the upgrade of a fixture, with the default options for certificates. */
export async function planFixture(fixture: Fixture, target: TargetImages, now = new Date()): Promise<UpgradePlan> {
  const renewal = { now, renewBefore: 90, certDays: 397, caDays: 1024, addHosts: [], force: false };
  const files = new HostFiles(fixture.root);
  const detected = await detectFixture(fixture);
  return (await surveyHost({ files, detected, target, release: undefined, renewal })).plan;
}

/** Writes the units of a plan into a fixture. */
export async function writeUnits({ root }: Fixture, { units }: UpgradePlan): Promise<void> {
  for (const { path, after } of units) await writeFile(root + path, after);
}
