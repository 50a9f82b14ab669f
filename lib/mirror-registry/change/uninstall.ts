import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { removeFile } from '../fileChange.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import type { HostFiles } from '../../machine/hostFiles.ts';
import { resolveTrusted } from '../hostFolder.ts';
import type { Scope } from '../../machine/hostCommands.ts';
import type { Inherited } from '../installation.ts';
import { configMountOf, findCommand, mountOf } from '../detect/detect.ts';
import { valuesOf, type PodmanCommand } from '../detect/podmanCommand.ts';
import { findUnits, type DetectOptions, type ScopedUnits } from '../detect/scopes.ts';
import { stateFolderOf } from '../stateFolder.ts';
import { keptNames } from './upgradeJournal.ts';
import { UpgradeRecords } from './upgradeRecords.ts';

/** Everything that an installation consists of on a host, as far as it exists. Paths are as the host has them. */
export interface UninstallPlan {
  readonly scope: Scope;
  /** Names with their suffix, in the order in which they are stopped. */
  readonly units: readonly string[];
  /** The files of the units, and their drop-ins. The unit of Quay, by which the installation is found, is the last. */
  readonly unitFiles: readonly string[];
  readonly pods: readonly string[];
  readonly containers: readonly string[];
  readonly secrets: readonly string[];
  /** Volumes by name, with the images’ content and the database. */
  readonly volumes: readonly string[];
  /** The names by which podman keeps images for a rollback. */
  readonly keptImages: readonly string[];
  /** Folders with the configuration, the certificates, the images’ content, the database, and the state of this program. */
  readonly folders: readonly string[];
}

/** Where an installation is, by its units alone. Paths are as the host has them. */
export interface LocatedInstallation {
  readonly scope: Scope;
  readonly unitFolder: string;
  readonly quayRoot: Inherited<string>;
}

/** What is uninstalled. */
export interface UninstallRequest {
  readonly files: HostFiles;
  readonly commands: HostCommands;
  readonly detect: DetectOptions;
}

/** The units of all installers in the order of a stop, and those of the timer that this program prints. */
const stopOrder = ['quay-app', 'quay-migrate', 'quay-redis', 'quay-postgres', 'quay-pod'];
const timerUnits = ['oc-mirror-registry-check.timer', 'oc-mirror-registry-check.service'];

const dataMounts = ['/datastorage', '/sqlite', '/var/lib/pgsql/data'];

/**
 * Finds everything that an installation consists of, by its units alone: one whose configuration is missing can be uninstalled too. Changes
 * nothing. Throws as `locateInstallation`, `conflict` for an unfinished change, and `command-failed`.
 */
export async function planUninstall(
  { files, commands, detect }: UninstallRequest,
  signal: AbortSignal,
): Promise<UninstallPlan> {
  const located = await locateInstallation(files, detect);
  const { scope, unitFolder: folder, quayRoot } = located;
  const found = await findUnits(files, detect);
  const { units } = found;
  const podmanCommands = listCommands(found);
  const named = (option: string): string[] =>
    podmanCommands.flatMap((each) => valuesOf(each, option).map(({ value }) => value));
  const stores = podmanCommands.flatMap((each) =>
    dataMounts.map((target) => mountOf(each, target, detect.home)?.value),
  );
  const data = [...new Set(stores.filter((store) => store !== undefined))];
  const timers: string[] = [];
  for (const name of timerUnits) if (await files.exists(join(folder, name))) timers.push(name);
  const installed = stopOrder.filter((name) => units.has(name));
  const isPod = (each: PodmanCommand): boolean => each.image === undefined;
  const namesOf = (wanted: boolean): string[] =>
    podmanCommands
      .filter((each) => isPod(each) === wanted)
      .flatMap((each) => valuesOf(each, 'name').map(({ value }) => value));
  return {
    scope,
    units: [...timers, ...installed.map((name) => `${name}.service`)],
    unitFiles: [
      ...timers.map((name) => join(folder, name)),
      ...installed.toReversed().flatMap((name) => (units.get(name)?.files ?? []).map(({ path }) => path).toReversed()),
    ],
    pods: await keepExisting(namesOf(true), (name) => commands.podman(['pod', 'exists', name], signal)),
    containers: await keepExisting(namesOf(false), (name) => commands.podman(['container', 'exists', name], signal)),
    secrets: await keepExisting([...new Set(named('secret').map((value) => value.split(',')[0] ?? ''))], (name) =>
      commands.podman(['secret', 'inspect', name], signal),
    ),
    volumes: await keepExisting(
      data.filter((store) => !store.startsWith('/')),
      (name) => commands.podman(['volume', 'exists', name], signal),
    ),
    keptImages: await keepExisting(await listKept(files, located), (name) =>
      commands.podman(['image', 'exists', name], signal),
    ),
    folders: await listFolders(files, [
      ...data.filter((store) => store.startsWith('/')),
      join(quayRoot.value, 'quay-rootCA'),
      join(quayRoot.value, 'quay-config'),
      stateFolderOf(located),
    ]),
  };
}

/** Finds where an installation is, even if its configuration is missing. Throws as `findUnits`, and `invalid-file`. */
export async function locateInstallation(files: HostFiles, detect: DetectOptions): Promise<LocatedInstallation> {
  const { scope, folder, units } = await findUnits(files, detect);
  const mount = configMountOf(findCommand(units.get('quay-app')), detect);
  if (mount) {
    return { scope, unitFolder: folder, quayRoot: { ...mount, value: mount.value.replace(/\/quay-config\/?$/, '') } };
  }
  throw new PluginError('invalid-file', `${join(folder, 'quay-app.service')} does not tell where quay-config is`, {
    hint: 'Name the folder that holds it with --quay-root.',
  });
}

/**
 * Removes what a plan names: units, containers and secrets, and with `removeData` the volumes and folders too. What is gone already is
 * skipped, so an interrupted run is finished by the next. Throws `command-failed`, `not-writable`, and `unsupported` before anything stops.
 */
export async function uninstallRegistry(
  { files, commands, detect }: UninstallRequest,
  plan: UninstallPlan,
  removeData: boolean,
  { log, signal }: Context,
): Promise<void> {
  const { unitFolder, quayRoot } = await locateInstallation(files, detect);
  const removed = removeData ? plan.folders : [];
  const folders = await Promise.all(removed.map((path) => requireRemovable(files, path, detect.home)));
  for (const unit of plan.units) {
    log('info', `stopping ${unit}`);
    await commands.systemctl(['disable', '--now', unit], signal);
  }
  if (plan.containers.length > 0) await commands.podman(['rm', '--force', '--ignore', ...plan.containers], signal);
  if (plan.pods.length > 0) await commands.podman(['pod', 'rm', '--force', '--ignore', ...plan.pods], signal);
  for (const name of plan.secrets) await commands.podman(['secret', 'rm', name], signal);
  if (removeData) {
    for (const name of plan.volumes) await commands.podman(['volume', 'rm', name], signal);
    for (const name of plan.keptImages) await commands.podman(['untag', name, name], signal);
    for (const path of folders) await commands.removeFolder(path, signal);
    // The installer may have left its archives there.
    await rmdir(files.locate(await resolveTrusted(files, quayRoot.value))).catch(() => undefined);
  }
  // Quay’s own unit comes last: by that the next run finds what this one leaves.
  for (const path of plan.unitFiles) await removeFile(files, { path, within: unitFolder });
  await commands.systemctl(['daemon-reload'], signal);
}

function listCommands({ units }: ScopedUnits): PodmanCommand[] {
  return [...units.values()].map(findCommand).filter((each) => each !== undefined);
}

/** The names of things that exist, by a command of podman that fails for others. */
async function keepExisting(names: readonly string[], check: (name: string) => Promise<unknown>): Promise<string[]> {
  const existing: string[] = [];
  for (const name of names) {
    try {
      await check(name);
      existing.push(name);
    } catch (error) {
      if (!isPluginError(error, 'command-failed')) throw error;
    }
  }
  return existing;
}

async function listKept(files: HostFiles, located: LocatedInstallation): Promise<string[]> {
  const records = new UpgradeRecords(files, located);
  const unfinished = await records.current();
  if (!unfinished) return (await records.listEnded()).flatMap(keptNames);
  throw new PluginError('conflict', `${unfinished.title} is unfinished`, {
    hint: "Nothing was changed. Finish it by running the same command again, or end it with 'rollback' or 'rollback --abandon'.",
  });
}

async function listFolders(files: HostFiles, paths: readonly string[]): Promise<string[]> {
  const existing: string[] = [];
  for (const path of paths) if (await files.exists(path)) existing.push(path);
  return existing;
}

/** Where a folder is on this machine. Throws `unsupported` for one that holds more than the registry. */
async function requireRemovable(files: HostFiles, path: string, home: string): Promise<string> {
  const resolved = await resolveTrusted(files, path);
  const isShared = ['/etc', '/usr', '/var/lib', home].some((other) => `${other}/`.startsWith(`${resolved}/`));
  if (!isShared && resolved.split('/').length > 2) return files.locate(resolved);
  throw new PluginError('unsupported', `${resolved} holds more than the registry, and is not removed`, {
    hint: 'Nothing was changed. Leave out the option that removes data, and remove the files of the registry yourself.',
  });
}
