import { join } from 'node:path';
import { parseJson } from '#content/oci';
import { messageOf, PluginError } from '#errors';
import type { HostFiles, ConfinedPath, Scope } from '#node/machine';
import { choice, list, matches, object, text, type Static } from '#schema';
import { removeFile, replaceFile } from '../installation/fileChange.ts';
import { parseUnitFile, type Unit, type UnitFile } from './units.ts';

/** The places to search for an installation. */
export interface DetectOptions {
  readonly scope: 'auto' | Scope;
  /** The home directory of the user whose systemd may run the registry, as a path of the host. */
  readonly home: string;
  /** The folder with `quay-config`, if the units do not name it, as a path of the host. */
  readonly quayRoot?: string;
}

/** The units of one installation and their scope. */
export interface ScopedUnits {
  readonly scope: Scope;
  readonly folder: string;
  readonly units: ReadonlyMap<string, Unit>;
}

/** The units that installers of all versions write, without `.service`. */
export const unitNames: readonly string[] = ['quay-app', 'quay-redis', 'quay-pod', 'quay-postgres', 'quay-migrate'];

/**
 * Finds the units. Throws `unsupported` for an installation of version 3, `not-found` for none, and `conflict` for two.
 */
export async function findUnits(host: HostFiles, { scope, home }: DetectOptions): Promise<ScopedUnits> {
  const folders: [Scope, string][] = [
    ['system', '/etc/systemd/system'],
    ['user', join(home, '.config/systemd/user')],
  ];
  const chosenFolders = folders.filter(([name]) => scope === 'auto' || scope === name);
  const all = await Promise.all(
    chosenFolders.map(async ([name, folder]): Promise<ScopedUnits> => {
      return { scope: name, folder, units: await readUnits(host, folder) };
    }),
  );
  const registries = all.filter(({ units }) => units.has('quay-app'));
  const [first, second] = registries;
  if (first && second) {
    throw new PluginError('conflict', `there are two mirror registries: in ${first.folder} and in ${second.folder}`, {
      hint: 'Choose the scope: system or user.',
      settings: ['scope'],
    });
  }
  // The migration to version 3 leaves the old units behind.
  const successor = await findSuccessor(host, home, scope);
  if (successor !== undefined) {
    const message = `the mirror registry of ${successor} has version 3, which uses a Quadlet unit`;
    const hint = 'This program is for versions 1 and 2. Use the mirror-registry program of version 3.';
    throw new PluginError('unsupported', message, { hint });
  }
  if (first) return first;
  const kept = await readKept(host, { scope, home });
  if (kept) {
    const data = [...kept.folders, ...kept.volumes.map((name) => `the volume ${name}`)].join(', ');
    const message = `the mirror registry of this host was uninstalled, and its data was kept: ${data}`;
    const hint = "'uninstall' with the removal of data removes it. Install the registry again to use it.";
    throw new PluginError('not-found', message, { hint, settings: ['removeData'] });
  }
  const places = chosenFolders.map(([, folder]) => host.locate(folder)).join(' and ');
  throw new PluginError('not-found', `there is no mirror registry on this host: no quay-app.service in ${places}`, {
    hint:
      'Run this on the host of the registry as the user who installed it, or give the home of that user or the ' +
      'root of the host.',
    settings: ['userHome', 'root'],
  });
}

async function findSuccessor(host: HostFiles, home: string, scope: 'auto' | Scope): Promise<string | undefined> {
  const folders = {
    system: ['/etc/containers/systemd', '/usr/share/containers/systemd'],
    // The last one from podman 6 on.
    user: [
      join(home, '.config/containers/systemd'),
      '/etc/containers/systemd/users',
      '/usr/share/containers/systemd/users',
    ],
  };
  const looked = scope === 'auto' ? [...folders.system, ...folders.user] : folders[scope];
  for (const folder of looked) {
    // podman 6 installs a Quadlet with its other files in a folder of its own, and systemd’s generator looks there too.
    const names = (await host.list(folder)).filter((name) => name !== 'users' && !name.endsWith('.container'));
    const within = names.map((name) => join(folder, name));
    for (const path of [folder, ...within].map((each) => join(each, 'quay.container')))
      if (await host.exists(path)) return path;
  }
  return undefined;
}

async function readUnits(host: HostFiles, folder: string): Promise<Map<string, Unit>> {
  const units = new Map<string, Unit>();
  for (const name of unitNames) {
    const file = await readUnitFile(host, join(folder, `${name}.service`));
    if (!file) continue;
    const extra = join(folder, `${name}.service.d`);
    const names = (await host.list(extra)).filter((each) => each.endsWith('.conf'));
    const dropIns = await Promise.all(names.map((each) => readUnitFile(host, join(extra, each))));
    units.set(name, { name, files: [file, ...dropIns.filter((each) => each !== undefined)] });
  }
  return units;
}

async function readUnitFile(host: HostFiles, path: string): Promise<UnitFile | undefined> {
  const text = await host.readText(path);
  return text === undefined ? undefined : parseUnitFile(path, text);
}

const path = text({ pattern: '^/' });
// podman would take others as options.
const name = text({ pattern: String.raw`^\w` });
const kept = object({
  scope: choice(['system', 'user']),
  unitFolder: path,
  quayRoot: path,
  volumes: list(name),
  keptImages: list(name),
  folders: list(path),
});

/** The data of an uninstalled registry, and where its units were. Paths are paths of the host. */
export type KeptData = Static<typeof kept>;

/** The scope of the registry, and the home of its user. */
interface Place {
  readonly scope: 'auto' | Scope;
  readonly home: string;
}

/** Reads the record of kept data; undefined if there is none in that scope. Throws `not-readable`, `invalid-file`. */
export async function readKept(
  files: HostFiles,
  { scope, home }: Place,
): Promise<(KeptData & { readonly path: string }) | undefined> {
  for (const each of scope === 'auto' ? (['system', 'user'] as const) : [scope]) {
    const { path } = recordOf(each, home);
    const value = parseRecord(path, (await files.readText(path)) ?? 'null');
    if (matches(kept, value)) return { ...value, path };
  }
  return undefined;
}

function parseRecord(path: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch (cause) {
    throw new PluginError('invalid-file', `${path}, the record of kept data, is damaged: ${messageOf(cause)}`, {
      hint: 'Move it away, and remove the kept data by hand.',
      cause,
    });
  }
}

/** Writes the record durably, for root or the user only. Throws `disk-full` and `not-writable`. */
export async function writeKept(files: HostFiles, kept: KeptData, { home }: Pick<Place, 'home'>): Promise<void> {
  await replaceFile(files, recordOf(kept.scope, home), `${JSON.stringify(kept, null, 2)}\n`, { mode: 0o600 });
}

/** Removes the record, if it exists. Throws `not-writable`. */
export async function removeKept(files: HostFiles, scope: Scope, { home }: Pick<Place, 'home'>): Promise<void> {
  await removeFile(files, recordOf(scope, home));
}

/** Returns the place of the record, which no installation has to be found for. */
function recordOf(scope: Scope, home: string): ConfinedPath {
  const within = join(scope === 'system' ? '/var/lib' : join(home, '.local/share'), 'oc-mirror-registry');
  return { path: join(within, 'uninstalled.json'), within };
}
