import { rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { HostCommands, Scope, HostFiles } from '#node/machine';
import { configMountOf, findCommand, mountOf } from '../detect/detect.ts';
import { valuesOf, type PodmanCommand } from '../detect/podmanCommand.ts';
import {
  readKept,
  removeKept,
  writeKept,
  type KeptData,
  findUnits,
  type DetectOptions,
  type ScopedUnits,
} from '../detect/scopes.ts';
import { checkWritable, removeFile } from '../installation/fileChange.ts';
import type { Inherited } from '../installation/installation.ts';
import { stateFolderOf, takeStateLock } from '../installation/stateFolder.ts';
import { type ExecutionRequest, UpgradeRecords } from './openRegistry.ts';
import { rollbackContainers, rollbackTags } from './upgradeJournal.ts';

/** The parts of an installation that exist on a host. Paths are paths of the host. */
export interface UninstallPlan {
  readonly scope: Scope;
  /** The names of the units with their suffix, in the order in which they stop. */
  readonly units: readonly string[];
  /** The files of the units and their drop-ins. The last is Quay’s unit, which identifies the installation. */
  readonly unitFiles: readonly string[];
  readonly pods: readonly string[];
  readonly containers: readonly string[];
  readonly secrets: readonly string[];
  /** The names of volumes with the images and the database. */
  readonly volumes: readonly string[];
  /** The names of images that are kept for a rollback. */
  readonly keptImages: readonly string[];
  /** Folders with the configuration, the certificates, the images, the database, and the state of this program. */
  readonly folders: readonly string[];
}

/** The location of an installation, from its units. Paths are paths of the host. */
export interface LocatedInstallation {
  readonly scope: Scope;
  readonly unitFolder: string;
  readonly quayRoot: Inherited<string>;
  /** The data that an earlier uninstallation kept, if the units are gone. */
  readonly kept?: KeptData;
}

/** The input of an uninstallation. */
export type UninstallRequest = Pick<ExecutionRequest, 'files' | 'commands' | 'detect'>;

/** Units of all installers in the order in which they stop, and the units of the timer that this program prints. */
const stopOrder = ['quay-app', 'quay-migrate', 'quay-redis', 'quay-postgres', 'quay-pod'];
const timerUnits = ['oc-mirror-registry-check.timer', 'oc-mirror-registry-check.service'];

const dataMounts = ['/datastorage', '/sqlite', '/var/lib/pgsql/data'];

/**
 * Lists all parts of an installation from its units. Its configuration may be missing. Changes nothing. Throws the
 * errors of `locateInstallation`, `conflict` for an unfinished change, and `command-failed`.
 */
export async function planUninstall({ files, commands, detect }: UninstallRequest): Promise<UninstallPlan> {
  const located = await locateInstallation(files, detect);
  const { scope, unitFolder: folder, quayRoot, kept } = located;
  const scopedUnits: ScopedUnits = kept ? { scope, folder, units: new Map() } : await findUnits(files, detect);
  const { units } = scopedUnits;
  const ended = kept ? [] : await new UpgradeRecords(files, located).requireEnded();
  const podmanCommands = listCommands(scopedUnits);
  const named = (option: string): string[] =>
    podmanCommands.flatMap((each) => valuesOf(each, option).map(({ value }) => value));
  const stores = podmanCommands.flatMap((each) =>
    dataMounts.map((target) => mountOf(each, target, detect.home)?.value),
  );
  const recorded = [...(kept?.volumes ?? []), ...(kept?.folders ?? [])];
  const data = [...new Set([...stores.filter((store) => store !== undefined), ...recorded])];
  const timers: string[] = [];
  for (const name of timerUnits) if (await files.exists(join(folder, name))) timers.push(name);
  const installed = stopOrder.filter((name) => units.has(name));
  const isPod = (each: PodmanCommand): boolean => each.image === undefined;
  const namesOf = (arePods: boolean): string[] =>
    podmanCommands
      .filter((each) => isPod(each) === arePods)
      .flatMap((each) => valuesOf(each, 'name').map(({ value }) => value));
  const keepExisting = async (
    kind: Parameters<HostCommands['exists']>[0],
    names: readonly string[],
  ): Promise<string[]> => {
    const existing: string[] = [];
    for (const name of names) if (await commands.exists(kind, name)) existing.push(name);
    return existing;
  };
  return {
    scope,
    units: [...timers, ...installed.map((name) => `${name}.service`)],
    unitFiles: [
      ...timers.map((name) => join(folder, name)),
      ...installed.toReversed().flatMap((name) => (units.get(name)?.files ?? []).map(({ path }) => path).toReversed()),
    ],
    // The first installer has no unit for the pod.
    pods: await keepExisting('pod', [...new Set([...namesOf(true), ...named('pod')])]),
    containers: await keepExisting('container', [...namesOf(false), ...ended.flatMap(rollbackContainers)]),
    secrets: await keepExisting('secret', [...new Set(named('secret').map((value) => value.split(',')[0] ?? ''))]),
    volumes: await keepExisting(
      'volume',
      data.filter((store) => !store.startsWith('/')),
    ),
    keptImages: await keepExisting('image', kept?.keptImages ?? ended.flatMap(rollbackTags)),
    folders: await listFolders(files, [
      ...new Set([
        ...data.filter((store) => store.startsWith('/')),
        join(quayRoot.value, 'quay-rootCA'),
        join(quayRoot.value, 'quay-config'),
        stateFolderOf(located),
      ]),
    ]),
  };
}

/**
 * Locates an installation, even if its configuration is missing, or an uninstalled one whose data was kept. Throws the
 * errors of `findUnits`, and `invalid-file`.
 */
export async function locateInstallation(files: HostFiles, detect: DetectOptions): Promise<LocatedInstallation> {
  const unitsOrRecord = await findUnits(files, detect).catch(async (error: unknown) => {
    const kept = isPluginError(error, 'not-found') ? await readKept(files, detect) : undefined;
    if (kept) return kept;
    throw error;
  });
  if ('volumes' in unitsOrRecord) {
    const { scope, unitFolder, quayRoot, path } = unitsOrRecord;
    return { scope, unitFolder, quayRoot: { value: quayRoot, file: path, line: 0 }, kept: unitsOrRecord };
  }
  const { scope, folder, units } = unitsOrRecord;
  const mount = configMountOf(findCommand(units.get('quay-app')), detect);
  if (mount) {
    return { scope, unitFolder: folder, quayRoot: { ...mount, value: mount.value.replace(/\/quay-config\/?$/, '') } };
  }
  throw new PluginError('invalid-file', `${join(folder, 'quay-app.service')} does not name the folder quay-config`, {
    hint: 'Give the folder that contains it.',
    settings: ['quayRoot'],
  });
}

/**
 * Removes the units, containers and secrets of an installation and, with `removeData`, its volumes and folders. Skips
 * missing parts, so a second run resumes. Returns the plan. Throws `busy`, the errors of `planUninstall`,
 * `command-failed` and, before anything stops, `not-writable` and `unsupported`.
 */
export async function uninstallRegistry(
  request: UninstallRequest,
  removeData: boolean,
  { log }: Context,
): Promise<UninstallPlan> {
  const { files, commands, detect } = request;
  const located = await locateInstallation(files, detect);
  const { unitFolder, quayRoot } = located;
  await using _lock = await takeStateLock(files, located);
  const plan = await planUninstall(request);
  const removed = removeData ? plan.folders : [];
  const folders = await Promise.all(removed.map((path) => requireRemovable(files, path, detect.home)));
  const { scope, volumes, keptImages } = plan;
  const kept = { scope, unitFolder, quayRoot: quayRoot.value, volumes, keptImages, folders: plan.folders };
  for (const path of plan.unitFiles) await checkWritable(files, { path, within: unitFolder });
  await writeKept(files, kept, detect);
  for (const unit of plan.units) {
    log('info', `stopping ${unit}`);
    await commands.systemctl(['disable', '--now', unit]);
  }
  if (plan.containers.length > 0) await commands.podman(['rm', '--force', '--ignore', ...plan.containers]);
  if (plan.pods.length > 0) await commands.podman(['pod', 'rm', '--force', '--ignore', ...plan.pods]);
  for (const name of plan.secrets) await commands.podman(['secret', 'rm', name]);
  if (removeData) {
    for (const name of plan.volumes) await commands.podman(['volume', 'rm', name]);
    for (const name of plan.keptImages) await commands.podman(['untag', name, name]);
    for (const path of folders) await commands.removeFolder(path);
    // The folder may have archives of the installer.
    await removeEmptyFolder(files, quayRoot.value);
  }
  // The unit of Quay is last, so that the next run still finds the installation.
  for (const path of plan.unitFiles) await removeFile(files, { path, within: unitFolder });
  await commands.systemctl(['daemon-reload']);
  if (removeData) await removeKept(files, scope, detect);
  return plan;
}

function listCommands({ units }: ScopedUnits): PodmanCommand[] {
  return [...units.values()].map(findCommand).filter((each) => each !== undefined);
}

async function listFolders(files: HostFiles, paths: readonly string[]): Promise<string[]> {
  const existing: string[] = [];
  for (const path of paths) if (await files.exists(path)) existing.push(path);
  return existing;
}

async function removeEmptyFolder(files: HostFiles, path: string): Promise<void> {
  const { folder, name } = await files.openParent({ path, within: '/' });
  await using _open = folder;
  await rmdir(folder.at(name)).catch(() => undefined);
}

/** Returns the path of a folder on this machine. Throws `unsupported` if other programs use it too. */
async function requireRemovable(files: HostFiles, path: string, home: string): Promise<string> {
  const resolved = await files.resolve(path);
  const isShared = ['/etc', '/usr', '/var/lib', home].some((other) => `${other}/`.startsWith(`${resolved}/`));
  if (!isShared && resolved.split('/').length > 2) return files.locate(resolved);
  throw new PluginError('unsupported', `${resolved} is not removed, because it has more than the registry`, {
    hint: 'Nothing was changed. Keep the data, and remove the files of the registry yourself.',
  });
}
