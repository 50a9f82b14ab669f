import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { messageOf, PluginError } from '../../errors.ts';
import { isMissing } from '../../content/files/fileContent.ts';
import { pathOnHost, type Host } from '../machine/host.ts';
import { storageFile, vendorStorageFile } from '../machine/paths.ts';
import { readToml, stringsOf, type TomlValues } from './toml.ts';

/** The storage.conf of a machine. Its paths are paths of the machine. */
export interface StorageConfig {
  readonly driver: string;
  readonly graphRoot: string;
  readonly runRoot: string;
  readonly additionalStores: readonly string[];
}

const dropIns = [`${vendorStorageFile}.d`, `${storageFile}.d`];

/**
 * Reads the storage configuration as programs of root do: the file that CONTAINERS_STORAGE_CONF names, or the first
 * that exists, and the files of storage.conf.d. Throws `not-readable` and `invalid-file`.
 */
export async function readStorageConfig(host: Host): Promise<StorageConfig> {
  const read = async (path: string): Promise<TomlValues | undefined> => {
    const text = await readIfThere(host, path);
    return text === undefined ? undefined : readToml(text, path);
  };
  const main = await Promise.all(mainPlaces(host).map(read));
  const files = [
    main.find((values) => values !== undefined),
    ...(await Promise.all((await listDropIns(host)).map(read))),
  ];
  const last = (key: string): string[] | undefined =>
    files.map((values) => values && stringsOf(values, key)).findLast((strings) => strings !== undefined);
  const first = (key: string, otherwise: string): string => last(key)?.[0] ?? otherwise;
  return {
    driver: host.environment['STORAGE_DRIVER'] || first('storage.driver', '') || 'overlay',
    graphRoot: first('storage.graphroot', '/var/lib/containers/storage'),
    runRoot: first('storage.runroot', '/run/containers/storage'),
    additionalStores: last('storage.options.additionalimagestores') ?? [],
  };
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

/**
 * Returns the storage.conf of a host without its additional stores; undefined if it has none. A program that uses it
 * writes every layer of an image into the main store, and does not refer to layers of an additional one.
 */
export async function describeMainStore(host: Host): Promise<string | undefined> {
  const { additionalStores, driver, graphRoot, runRoot } = await readStorageConfig(host);
  if (additionalStores.length === 0) return undefined;
  const texts = await Promise.all(mainPlaces(host).map((path) => readIfThere(host, path)));
  const text = texts.find((each) => each !== undefined);
  return (text ?? `[storage]\ndriver = "${driver}"\ngraphroot = "${graphRoot}"\nrunroot = "${runRoot}"\n`).replace(
    /^[ \t]*additionalimagestores[ \t]*=[ \t]*\[[^\]]*\]/m,
    'additionalimagestores = []',
  );
}

/** Returns the paths of the configuration, of which the first that exists counts. */
function mainPlaces({ environment }: Host): string[] {
  const named = environment['CONTAINERS_STORAGE_CONF'];
  return named === undefined || named === '' ? [storageFile, vendorStorageFile] : [named];
}

async function listDropIns(host: Host): Promise<string[]> {
  const paths = (await Promise.all(dropIns.map((folder) => listFolder(host, folder)))).flat();
  return paths.filter((path) => path.endsWith('.conf'));
}
