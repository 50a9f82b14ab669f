import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import { isMissing } from '#content/files';
import { messageOf, PluginError } from '#errors';
import { listOf, textOf, type Fields } from '#fields';
import { pathOnHost, type Host, storageFile, vendorStorageFile } from '../machine/host.ts';

/** The storage.conf of a machine. Its paths are paths of the machine. */
export interface StorageConfig {
  readonly driver: string;
  readonly graphRoot: string;
  readonly runRoot: string;
  /** The store of images if it is not the one of containers; undefined if they share one. */
  readonly imageStore: string | undefined;
  /**
   * The program that mounts overlays, which hosts need if their file system has no overlays of its own; by default
   * none.
   */
  readonly mountProgram: string | undefined;
  readonly additionalStores: readonly string[];
}

/**
 * How programs read storage.conf. Before containers/storage 1.63 they read one file, from then on drop-ins too
 * (container-libs, storage/types/options.go and storage/pkg/configfile/parse.go). Upstream, skopeo has it from 1.23 on,
 * podman from 6.0 on, and CRI-O 1.37 has not. Distributions build with others: podman 5.8.6 of Debian reads drop-ins.
 */
export type StorageRules = 'one-file' | 'drop-ins';

/**
 * Reads the storage configuration as programs of root do that follow some rules. Throws `not-readable`, also if a file
 * that a variable names is missing, and `invalid-file`.
 */
export async function readStorageConfig(host: Host, rules: StorageRules): Promise<StorageConfig> {
  const { environment } = host;
  const files = await Promise.all(
    (await listStorageFiles(host, rules)).map(async (path) => {
      const text = await readIfThere(host, path);
      if (text === undefined) throw new PluginError('not-readable', `${path} does not exist`);
      return readToml(text, path);
    }),
  );
  const last = (key: string): string => files.flatMap((values) => stringsOf(values, key) ?? []).at(-1) ?? '';
  const driver = environment['STORAGE_DRIVER'] || last('storage.driver') || 'overlay';
  return {
    driver: driver === 'overlay2' ? 'overlay' : driver,
    graphRoot: last('storage.graphroot') || '/var/lib/containers/storage',
    runRoot: last('storage.runroot') || '/run/containers/storage',
    imageStore: last('storage.imagestore') || undefined,
    mountProgram: last('storage.options.overlay.mount_program') || last('storage.options.mount_program') || undefined,
    additionalStores: joinLists(files, 'storage.options.additionalimagestores'),
  };
}

/**
 * Joins the lists of several files: a later one replaces the earlier ones, or is added to them (`{ append = true }`).
 */
function joinLists(files: readonly TomlValues[], key: string): string[] {
  let isAdded = false;
  return files.reduce<string[]>((before, values) => {
    const own = stringsOf(values, key);
    // The attribute stays for all later files (configfile/slice.go).
    isAdded = values.get(`${key}.append`)?.some((value) => value === true) ?? isAdded;
    return own === undefined ? before : [...(isAdded ? before : []), ...own];
  }, []);
}

/** Lists the files in the order in which they are read. Only files that a variable names may be missing. */
async function listStorageFiles(host: Host, rules: StorageRules): Promise<string[]> {
  const variable = (name: string): string | undefined => host.environment[name] || undefined;
  const [named, more] = [variable('CONTAINERS_STORAGE_CONF'), variable('CONTAINERS_STORAGE_CONF_OVERRIDE')];
  const home = variable('HOME');
  const ownFolder = variable('XDG_CONFIG_HOME') ?? (rules === 'drop-ins' && home ? join(home, '.config') : undefined);
  const own = ownFolder === undefined ? [] : [join(ownFolder, 'containers/storage.conf')];
  const main = named === undefined ? await findFirst(host, [...own, storageFile, vendorStorageFile]) : [named];
  if (rules === 'one-file') return main;
  const folders = [
    ...[vendorStorageFile, storageFile].flatMap((path) => [`${path}.d`, path.replace(/conf$/, 'rootful.conf.d')]),
    ...own.map((path) => `${path}.d`),
  ];
  const dropIns = named === undefined ? await listDropIns(host, folders) : [];
  return [...main, ...dropIns, ...(more === undefined ? [] : [more])];
}

async function findFirst(host: Host, paths: readonly string[]): Promise<string[]> {
  for (const path of paths) if ((await readIfThere(host, path)) !== undefined) return [path];
  return [];
}

/** Lists drop-ins by their names over all folders. One in a later folder replaces one of the same name. */
async function listDropIns(host: Host, folders: readonly string[]): Promise<string[]> {
  const byName = new Map<string, string>();
  for (const folder of folders) {
    const entries = await readdir(pathOnHost(host, folder), { withFileTypes: true }).catch(() => []);
    for (const entry of entries)
      if (!entry.isDirectory() && entry.name.endsWith('.conf')) byName.set(entry.name, join(folder, entry.name));
  }
  const sorted = [...byName.keys()].sort().flatMap((name) => byName.get(name) ?? []);
  const texts = await Promise.all(sorted.map((path) => readIfThere(host, path)));
  // A link may lead nowhere.
  return sorted.filter((_, index) => texts[index] !== undefined);
}

/** Reads a file of the host; undefined if it does not exist. Throws `not-readable`. */
export async function readIfThere(host: Host, path: string): Promise<string | undefined> {
  try {
    return await readFile(pathOnHost(host, path), 'utf8');
  } catch (cause) {
    if (isMissing(cause)) return undefined;
    throw new PluginError('not-readable', `${path} cannot be read: ${messageOf(cause)}`, { cause });
  }
}

/**
 * Lists the files of a folder of the host as paths, sorted; none if it does not exist. CRI-O also reads the folders in
 * its own (`recursive`, cri-o#3172), and other programs do not.
 */
export async function listFolder(host: Host, folder: string, recursive = false): Promise<string[]> {
  const root = pathOnHost(host, folder);
  const entries = await readdir(root, { withFileTypes: true, recursive }).catch(() => []);
  const files = entries.filter((entry) => !entry.isDirectory());
  return files.map(({ parentPath, name }) => join(folder, relative(root, parentPath), name)).sort();
}

/** A storage.conf for a run of a program, and the variable that names it. */
export interface RunConfig {
  readonly variable: 'CONTAINERS_STORAGE_CONF' | 'CONTAINERS_STORAGE_CONF_OVERRIDE';
  readonly text: string;
}

/**
 * Returns a configuration with which a program uses the main store of a host alone; undefined if the host has no
 * additional store. The program then writes every layer of an image, and refers to no layer of another store.
 */
export async function describeMainStore(host: Host, rules: StorageRules): Promise<RunConfig | undefined> {
  const { additionalStores } = await readStorageConfig(host, rules);
  if (additionalStores.length === 0) return undefined;
  if (rules === 'drop-ins') {
    const text = '[storage.options]\nadditionalimagestores = [{ append = false }]\n';
    return { variable: 'CONTAINERS_STORAGE_CONF_OVERRIDE', text };
  }
  const [path = ''] = await listStorageFiles(host, rules);
  const text = (await readIfThere(host, path)) ?? '';
  const main = text.replace(/^[ \t]*additionalimagestores[ \t]*=[ \t]*\[[^\]]*\]/m, 'additionalimagestores = []');
  return { variable: 'CONTAINERS_STORAGE_CONF', text: main };
}

/** The values of a TOML file by their keys: `storage.options.additionalimagestores`. */
type TomlValues = ReadonlyMap<string, readonly unknown[]>;

/**
 * Reads a TOML file. A key of several tables with the same name has the values of all of them. Throws `invalid-file`
 * with the line number, but without the text, which may have passwords.
 */
export function readToml(text: string, where: string): TomlValues {
  const values = new Map<string, unknown[]>();
  const collect = (value: unknown, key: string): void => {
    if (Array.isArray(value) && value.some(isTable)) for (const each of value) collect(each, key);
    else if (isTable(value))
      for (const [name, each] of Object.entries(value)) collect(each, key === '' ? name : `${key}.${name}`);
    else values.set(key, [...(values.get(key) ?? []), ...(Array.isArray(value) ? (value as unknown[]) : [value])]);
  };
  collect(parseToml(text, where), '');
  return values;
}

/**
 * Reads the mirrors of each registry in a registries.conf, by its prefix or location, in the order in which to try
 * them. Throws as readToml.
 */
export function readRegistries(text: string, where: string): ReadonlyMap<string, readonly string[]> {
  return new Map(
    listOf(parseToml(text, where)['registry']).map(({ prefix, location, mirror }) => [
      textOf(prefix) || String(location),
      listOf(mirror).map((each) => String(each['location'])),
    ]),
  );
}

/** Returns the strings among the values of a key; undefined if the file does not set it. */
export function stringsOf(values: TomlValues, key: string): string[] | undefined {
  return values.get(key)?.filter((value) => typeof value === 'string');
}

function parseToml(text: string, where: string): Fields {
  try {
    return parse(text);
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    throw new PluginError('invalid-file', `${where} is not valid TOML: line ${cause.line}`);
  }
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
