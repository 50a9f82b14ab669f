import type { HostCommands } from '../../machine/hostCommands.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import type { DetectedInstallation } from '../detect/detect.ts';
import { findImage, type ImageChange } from '../releases/images.ts';
import { findSecretProblem } from './secrets.ts';

/** What a registry needs of podman and podman does not have: sentences for a plan. */
export interface UnmetNeeds {
  readonly blockers: readonly string[];
  readonly warnings: readonly string[];
}

/**
 * Compares what the units name with what podman has: secrets with their values, volumes, and the images that do not
 * change. Throws `command-failed`, `interrupted`.
 */
export async function findUnmetNeeds(
  commands: HostCommands,
  detected: DetectedInstallation,
  changes: readonly ImageChange[],
  signal: AbortSignal,
): Promise<UnmetNeeds> {
  const { installation } = detected;
  const { storage, databaseStorage, images } = installation;
  const blockers: string[] = [];
  const warnings: string[] = [];
  for (const each of [storage, databaseStorage]) {
    if (!each || each.value.startsWith('/') || (await commands.exists('volume', each.value, signal))) continue;
    const place = `${each.file}:${each.line}`;
    blockers.push(`podman has no volume ${each.value} (${place}): a restart would begin with an empty one`);
  }
  const named = Object.values(detected.commands).flatMap((command) => valuesOf(command, 'secret'));
  const secrets = new Set(named.map(({ value }) => value.split(',')[0] ?? ''));
  for (const name of [...secrets, 'redis_pass']) {
    const problem = await findSecretProblem(commands, name, secrets.has(name), detected, signal);
    if (problem !== undefined && !blockers.includes(problem)) blockers.push(problem);
  }
  const stays = Object.entries(images).filter(([name]) => !changes.some(({ component }) => component === name));
  for (const [, { value }] of stays) {
    if ((await findImage(commands, value, signal)) === undefined) {
      warnings.push(`podman does not have ${value}, and pulls it when its unit restarts`);
    }
  }
  return { blockers, warnings };
}
