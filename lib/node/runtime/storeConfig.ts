import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isPluginError, PluginError } from '../../errors.ts';
import { writeAtomically } from '../../files/atomicWrite.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { storageFile, vendorStorageFile } from '../../machine/paths.ts';
import { readIfThere, readStorageConfig } from './storageConfig.ts';
import { readToml, stringsOf } from './toml.ts';

/**
 * The file that keeps the folder of a store. A container runtime does not start if the folder of a configured store is
 * missing, so a MachineConfig writes this file on nodes that join later.
 */
export const storeMarker = {
  name: '.managed',
  content:
    'This folder is an additional image store, made by oc adm-upgrade-bundle. The container runtime does not start\n' +
    'without it: take it out of additionalimagestores and restart the runtime before removing it.\n',
};

const listPattern = /^[ \t]*additionalimagestores[ \t]*=[ \t]*\[[^\]]*\]/m;
const key = 'storage.options.additionalimagestores';
const header = '# Written by oc adm-upgrade-bundle storage, which also removes it.\n';

/**
 * Returns the storage.conf of a host with one more additional store. Throws `unsupported` for a file with a list that
 * cannot be changed safely.
 */
export async function describeStorage(host: Host, store: string): Promise<string> {
  const { additionalStores, driver, graphRoot, runRoot } = await readStorageConfig(host);
  const text =
    (await readFirst(host)) ?? `[storage]\ndriver = "${driver}"\ngraphroot = "${graphRoot}"\nrunroot = "${runRoot}"\n`;
  return addStore(text, additionalStores, store);
}

/**
 * Adds a store to the additional stores of a storage.conf. Throws `unsupported` for a text with a list that cannot be
 * changed safely.
 */
export function addStore(text: string, additionalStores: readonly string[], store: string): string {
  if (additionalStores.includes(store)) return text;
  const line = `additionalimagestores = [${[...additionalStores, store].map((path) => JSON.stringify(path)).join(', ')}]`;
  const present = storesIn(text) !== undefined;
  const added = present
    ? text.replace(listPattern, () => line)
    : /^\[storage\.options\][ \t]*$/m.test(text)
      ? text.replace(/^\[storage\.options\][ \t]*$/m, (table) => `${table}\n${line}`)
      : `${text.trimEnd()}\n\n[storage.options]\n${line}\n`;
  try {
    if (storesIn(added)?.includes(store)) return added;
  } catch (error) {
    if (!isPluginError(error, 'invalid-file')) throw error;
  }
  throw new PluginError('unsupported', `${storageFile} lists additional stores in an unsupported form`, {
    hint: `Add ${store} to additionalimagestores by hand.`,
  });
}

/**
 * Returns the storage.conf of a host without its additional stores; undefined if it has none. A program that uses it writes every layer of an image into
 * the main store, and does not refer to layers of an additional one.
 */
export async function describeMainStore(host: Host): Promise<string | undefined> {
  const { additionalStores, driver, graphRoot, runRoot } = await readStorageConfig(host);
  if (additionalStores.length === 0) return undefined;
  const named = host.environment['CONTAINERS_STORAGE_CONF'];
  const text = named === undefined || named === '' ? await readFirst(host) : await readIfThere(host, named);
  return (text ?? `[storage]\ndriver = "${driver}"\ngraphroot = "${graphRoot}"\nrunroot = "${runRoot}"\n`).replace(
    listPattern,
    'additionalimagestores = []',
  );
}

async function readFirst(host: Host): Promise<string | undefined> {
  return (await readIfThere(host, storageFile)) ?? (await readIfThere(host, vendorStorageFile));
}

/** Returns the additional stores that the text of a storage.conf lists; undefined if it has no list. Throws `invalid-file`. */
export function storesIn(text: string): string[] | undefined {
  return stringsOf(readToml(text, storageFile), key);
}

/**
 * Adds an additional store to the storage.conf of a host without a machine config operator, and creates its folder
 * first. Changes only a file that this program wrote. Returns whether it changed. Throws `conflict` for a file of
 * another program.
 */
export async function configureStore(host: Host, store: string): Promise<boolean> {
  if ((await readStorageConfig(host)).additionalStores.includes(store)) return false;
  const before = await readIfThere(host, storageFile);
  if (before !== undefined && !before.startsWith(header)) {
    throw new PluginError('conflict', `${storageFile} was not written by this program, and is not changed`, {
      hint: 'Print the content instead, and install the file as you installed the present one, such as by a MachineConfig.',
    });
  }
  const text = await describeStorage(host, store);
  await writeMarker(host, store);
  await writeAtomically(pathOnHost(host, storageFile), text.startsWith(header) ? text : header + text);
  return true;
}

/** Removes the storage.conf that this program wrote. Returns whether there was one. */
export async function removeStoreConfig(host: Host): Promise<boolean> {
  const text = await readIfThere(host, storageFile);
  if (!text?.startsWith(header)) return false;
  await rm(pathOnHost(host, storageFile));
  return true;
}

/**
 * Writes the file that keeps the folder of a store, and creates the folder. Leaves a file with this content alone, because the machine config
 * operator checks it at each event. Throws `not-writable`.
 */
export async function writeMarker(host: Host, path: string): Promise<void> {
  const file = pathOnHost(host, join(path, storeMarker.name));
  if ((await readFile(file, 'utf8').catch(() => undefined)) === storeMarker.content) return;
  await writeAtomically(file, storeMarker.content);
}
