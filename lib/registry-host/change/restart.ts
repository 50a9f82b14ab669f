import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { readCertificates } from '../certificates/certificates.ts';
import { detectInstallation, type DetectedInstallation } from '../detect/detect.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import { healthCheckOf, waitForHealth } from './health.ts';
import type { HostFiles } from '../../node/machine/hostFiles.ts';
import type { HostCommands } from '../../node/machine/hostCommands.ts';
import { findImage } from '../releases/images.ts';
import type { DetectOptions } from '../detect/scopes.ts';
import { isForward, type UpgradeJournal } from './upgradeJournal.ts';

/** Stops units and disables their start at boot. Throws `command-failed`. */
export async function disableUnits(commands: HostCommands, units: readonly string[]): Promise<void> {
  for (const unit of units) await commands.systemctl(['disable', '--now', `${unit}.service`]);
}

/**
 * Reloads systemd, and restarts the units of a change in order; units that the change disables only on the way back.
 * Throws `command-failed`.
 */
export async function restartUnits(request: ExecutionRequest, journal: UpgradeJournal): Promise<void> {
  const { commands } = request;
  const retired = isForward(journal) ? (journal.retired?.units ?? []) : [];
  await commands.systemctl(['daemon-reload']);
  for (const unit of journal.restart) {
    if (retired.includes(unit)) continue;
    await commands.systemctl(['restart', `${unit}.service`]);
    if (unit === 'quay-pod') await waitForPod(request);
  }
}

/**
 * Waits until the pod exists. systemd takes its unit as started before that, and restarts a container that finds no
 * pod only after 30 s. The health check reports a pod that never exists.
 */
async function waitForPod({ commands, detected }: ExecutionRequest): Promise<void> {
  const [name] = valuesOf(detected.commands.pause, 'name');
  for (let tries = 0; name && tries < 100; tries += 1) {
    const isThere = await commands.exists('pod', name.value).catch((error: unknown) => {
      if (!isPluginError(error, 'command-failed')) throw error;
      return false;
    });
    if (isThere) return;
    await sleep(100);
  }
}

/** Detects the registry again, and waits until it is healthy. Throws the errors of `waitForHealth`. */
export async function waitForRegistry(
  { files, commands, detect, now, healthTimeout }: ExecutionRequest,
  { log }: Context,
): Promise<void> {
  const detected = await detectInstallation(files, detect);
  const check = healthCheckOf(detected, await readCertificates(files, detected.installation, now));
  log('info', 'waiting for the registry to become healthy');
  await waitForHealth(check, healthTimeout, commands.signal);
}

/**
 * Checks that the containers run the new images, because a healthy registry may still be the old one. Throws
 * `unreachable`.
 */
export async function requireContainers({ commands }: ExecutionRequest, { containers }: UpgradeJournal): Promise<void> {
  for (const { name, image } of containers) {
    const format = '{{.State.Running}} {{.Image}}';
    const [running, id] = (await commands.podman(['container', 'inspect', '--format', format, name])).trim().split(' ');
    if (running === 'true' && id !== undefined && id === (await findImage(commands, image))) continue;
    throw new PluginError('unreachable', `the container ${name} does not run ${image}`);
  }
}

/** The input of each change. */
export interface ExecutionRequest {
  readonly files: HostFiles;
  /** The registry before the change. `detect` finds it again. */
  readonly detected: DetectedInstallation;
  readonly detect: DetectOptions;
  readonly commands: HostCommands;
  readonly now: Date;
  /** Skip the restart and the health check. */
  readonly noRestart: boolean;
  /** Continue even if the registry is not healthy, or if its files were changed since. */
  readonly force: boolean;
  /** The time to wait for a healthy registry, in seconds. */
  readonly healthTimeout: number;
  readonly keepBackups: number;
}
