import { setTimeout as sleep } from 'node:timers/promises';
import { ignoring, PluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import { shellCommand } from '#text';
import { readCertificates } from '../certificates/certificates.ts';
import { detectInstallation } from '../detect/detect.ts';
import { valuesOf } from '../detect/podmanCommand.ts';
import { findImage } from '../releases/images.ts';
import { healthCheckOf, waitForHealth } from './health.ts';
import type { ExecutionRequest, OpenRegistry } from './openRegistry.ts';
import { isForward, type UpgradeJournal } from './upgradeJournal.ts';

/** File that exists while Quay is stopped for a task. */
const markName = 'stopped';

const quay = 'quay-app';
const quayUnit = `${quay}.service`;

/**
 * Stops units in order, and checks that their containers have ended, because a database in use must not be copied or
 * replaced. Throws `command-failed`, and `busy` if a container still runs.
 */
export async function stopUnits(commands: HostCommands, units: readonly string[]): Promise<void> {
  for (const unit of units) {
    await commands.systemctl(['stop', `${unit}.service`]);
    await requireStopped(commands, unit);
  }
}

/** Throws `busy` if a container runs that its unit does not stop, such as one that a person started. */
async function requireStopped(commands: HostCommands, name: string): Promise<void> {
  const words = ['ps', '--quiet', '--filter', `name=^${name}$`, '--filter', 'status=running'];
  if ((await commands.podman(words)).trim() === '') return;
  throw new PluginError('busy', `the container ${name} runs, although its unit is stopped`, {
    hint: shellCommand`Stop it: podman stop ${name}. If it comes back, disable the unit or restart policy that starts it.`,
  });
}

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
    if (await commands.exists('pod', name.value).catch(ignoring('command-failed'))) return;
    await sleep(100);
  }
}

/** Detects the registry again, and waits until it is healthy. Throws the errors of `waitForHealth`. */
export async function waitForRegistry(registry: OpenRegistry): Promise<void> {
  const { files, commands, detect, now, healthTimeout, context } = registry;
  const detected = await detectInstallation(files, detect);
  const check = healthCheckOf(detected, await readCertificates(files, detected.installation, now));
  context.log('info', 'waiting for the registry to become healthy');
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

/**
 * Stops Quay for a task, and starts it again, also if the task fails. If this process is killed, the next command that
 * changes the registry starts it. A registry that does not run is not started. Throws as the task and `stopUnits`.
 */
export async function whileStopped<T>(registry: OpenRegistry, task: () => Promise<T>): Promise<T> {
  const { commands, records, context } = registry;
  if (!(await isActive(commands))) {
    await requireStopped(commands, quay);
    return task();
  }
  await records.state.write(markName, '');
  const hint = `Start it: systemctl start ${quayUnit}. The next command that changes the registry starts it too.`;
  context.onUnfinished?.(new PluginError('interrupted', 'Quay is stopped', { hint }));
  try {
    await stopUnits(commands, [quay]);
    return await task();
  } finally {
    await startQuay(registry);
    context.onUnfinished?.(undefined);
  }
}

/** Starts Quay if an earlier run was killed while it was stopped. Throws `command-failed`. */
export async function startStopped(registry: OpenRegistry): Promise<void> {
  if ((await registry.records.state.read(markName)) === undefined) return;
  registry.context.log('warn', 'an earlier run was interrupted while the registry was stopped: starting it');
  await startQuay(registry);
}

async function startQuay({ commands, records }: OpenRegistry): Promise<void> {
  // An interruption must not leave it stopped.
  await commands.uninterrupted().systemctl(['restart', quayUnit]);
  await records.state.remove(markName);
}

/** Throws `command-failed` if systemd cannot be asked, because a database in use must not be copied. */
async function isActive(commands: HostCommands): Promise<boolean> {
  const state = await commands.systemctl(['show', '--property=ActiveState', '--value', quayUnit]);
  return !/^(?:inactive|failed)$/.test(state.trim());
}
