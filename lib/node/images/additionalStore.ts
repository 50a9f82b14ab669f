import { readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Context } from '../../context.ts';
import { isPluginError, PluginError } from '../../errors.ts';
import { digestOf, hexOf } from '../../oci/digest.ts';
import { renameDurably } from '../../files/atomicWrite.ts';
import { describeWriteError, makeFolders, syncFolder } from '../../files/disk.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { runFolder } from '../../machine/paths.ts';
import { commandOnHost, findProgram, readCommand, runProgram } from '../../machine/programs.ts';
import type { HostStorage } from './hostStorage.ts';
import type { ImageStore } from './imageStore.ts';
import { storeMarker, writeMarker } from '../runtime/storeConfig.ts';

/** An additional store that is open for writing. */
export interface AdditionalStore {
  /** The store to write to: `<path>.partial`, or the path itself if it already has images. */
  readonly store: ImageStore;
  /**
   * Makes the store durable, sets its SELinux labels, and moves it to its final path. Returns the store there.
   */
  finish(context: Context): Promise<ImageStore>;
}

/** Files that containers/storage, podman and this program leave in a store, except those named after its driver. */
const leftovers = new Set([
  '.managed',
  'storage.lock',
  'userns.lock',
  'defaultNetworkBackend',
  'db.sql',
  'libpod',
  'mounts',
  'tmp',
]);

/**
 * Opens an additional store for writing. If the path has no images, writes a new store beside it, which `finish`
 * moves there. A store with images is in use: it gets more images, and each appears when it is complete. Resumes the store
 * of an interrupted run, unless its index is corrupt. Throws `usage` for a path with other content, `not-writable`, and
 * the errors of reading the index.
 */
export async function openAdditionalStore(
  storage: HostStorage,
  path: string,
  context: Context,
): Promise<AdditionalStore> {
  const { host } = storage;
  const { driver } = storage.main;
  await moveComplete(host, path, driver);
  const store = await findAdditionalStore(storage, path);
  const isUsed = store.graphRoot === path;
  try {
    if (!isUsed) await checkReplaceable(host, path, driver);
    if (!isUsed) await discardCorrupt(storage, store, context);
    await makeFolders(pathOnHost(host, store.graphRoot), 0o755);
  } catch (error) {
    throw describeWriteError(error, store.graphRoot);
  }
  return {
    store,
    finish: async (context) => {
      await writeMarker(host, store.graphRoot);
      await relabel(host, store.graphRoot, context);
      await flush(host, store.graphRoot, context);
      if (!isUsed) {
        await renameDurably(pathOnHost(host, store.graphRoot), pathOnHost(host, completePath(path)));
        await moveComplete(host, path, driver);
      }
      return { ...store, graphRoot: path };
    },
  };
}

/**
 * Finds the store to write to: the store at `path` if it has images, else the store that an interrupted run did not move
 * there, else `<path>.partial`. Throws the errors of StoreIndex.read.
 */
export async function findAdditionalStore(storage: HostStorage, path: string): Promise<ImageStore> {
  const { driver } = storage.main;
  const store: ImageStore = { kind: 'additional', driver, graphRoot: path, runRoot: runRootOf(path) };
  if (!(await storage.readIndex(store)).isEmpty) return store;
  const isComplete = await isPresent(storage.host, completePath(path));
  return { ...store, graphRoot: isComplete ? completePath(path) : `${path}.partial` };
}

/** The path of a durable store until all of it is at its final path. */
function completePath(path: string): string {
  return `${path}.complete`;
}

async function isPresent(host: Host, path: string): Promise<boolean> {
  return (await stat(pathOnHost(host, path)).catch(() => undefined)) !== undefined;
}

/**
 * Checks the path of an additional store. Throws `usage` for a path that container runtimes refuse, and for the main
 * store.
 */
export function checkStorePath(path: string, mainStore: string): void {
  // The rules of MachineConfigs. Image references with a store allow neither brackets nor colons in its path.
  if (!/^(?:\/[a-zA-Z0-9._-]+)+$/.test(path) || path.split('/').includes('..') || path.length > 256) {
    throw new PluginError('usage', `${path} cannot be the path of an additional store`, {
      hint: 'It must be absolute, of letters, digits, dots, dashes and underscores, and at most 256 characters.',
    });
  }
  if (`${path}/`.startsWith(`${mainStore}/`) || `${mainStore}/`.startsWith(`${path}/`)) {
    throw new PluginError('usage', `${path} cannot be an additional store: ${mainStore} is the main store`, {
      hint: 'Choose a folder outside of it, or the main store.',
      settings: ['storePath', 'store'],
    });
  }
}

/**
 * Throws `usage` unless a folder can be replaced. It must not have content of other programs, and must not be a mount
 * point.
 */
async function checkReplaceable(host: Host, path: string, driver: string): Promise<void> {
  const names = await readdir(pathOnHost(host, path)).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  });
  if (!names) return;
  const own = ['', '-images', '-layers', '-containers'].map((end) => driver + end);
  const strange = names.find((name) => !leftovers.has(name) && !own.includes(name));
  if (strange !== undefined) {
    throw new PluginError('usage', `${path} is not an image store: it contains ${strange}`, {
      hint: 'Name a folder that does not exist, or one that is empty.',
    });
  }
  const [folder, above] = await Promise.all([path, dirname(path)].map((each) => stat(pathOnHost(host, each))));
  if (folder?.dev !== above?.dev) {
    throw new PluginError('usage', `${path} is the top of a file system, which a finished store cannot replace`, {
      hint: `Name a folder in it, such as ${path}/store.`,
      settings: ['storePath'],
    });
  }
}

/** Removes an unfinished store that a power failure corrupted. No other program uses it. */
async function discardCorrupt(storage: HostStorage, store: ImageStore, context: Context): Promise<void> {
  try {
    await storage.readIndex(store);
  } catch (error) {
    if (!isPluginError(error, 'incomplete')) throw error;
    context.log('warn', `${error.message}: starting with an empty store`);
    await rm(pathOnHost(storage.host, store.graphRoot), { recursive: true, force: true });
  }
}

// podman refuses long paths.
function runRootOf(path: string): string {
  return `${runFolder}/${hexOf(digestOf(path)).slice(0, 8)}`;
}

/**
 * Replaces the content of a folder with another folder, by one rename. So a container runtime that uses the folder
 * always finds it.
 */
async function moveComplete(host: Host, path: string, driver: string): Promise<void> {
  const [from, to] = [pathOnHost(host, completePath(path)), pathOnHost(host, path)];
  if (!(await isPresent(host, completePath(path)))) return;
  try {
    if (!(await isPresent(host, path))) {
      await renameDurably(from, to);
      return;
    }
    const present = await readdir(to);
    const names = (await readdir(from)).filter((name) => name !== storeMarker.name || !present.includes(name));
    const last = [`${driver}-layers`, `${driver}-images`];
    const order = [...names.filter((name) => !last.includes(name)), ...last.filter((name) => names.includes(name))];
    for (const name of order) await replace(join(from, name), join(to, name));
    await syncFolder(to);
    await rm(from, { recursive: true, force: true });
  } catch (error) {
    throw describeWriteError(error, to);
  }
}

async function replace(from: string, to: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    await rm(to, { recursive: true, force: true });
    try {
      await rename(from, to);
      return;
    } catch (error) {
      // A program that reads the store meanwhile creates a lock in it.
      const { code } = error as NodeJS.ErrnoException;
      if ((code !== 'ENOTEMPTY' && code !== 'EEXIST') || attempt === 10) throw error;
    }
  }
}

async function relabel(host: Host, path: string, context: Context): Promise<void> {
  const hasSelinux = await stat(pathOnHost(host, '/sys/fs/selinux/enforce')).catch(() => undefined);
  if (!hasSelinux || (await findProgram(host, 'restorecon')) === undefined) return;
  const { code, stderr } = await runProgram(host, 'restorecon', ['-R', path], context);
  if (code !== 0) context.log('warn', `restorecon of ${path} failed: ${stderr.trim()}`);
}

/**
 * Makes all files of the store durable, because containers/storage does not. A sync of the whole file system would stall etcd, which
 * waits for the same disk. Files that are synced together share commits of the journal, so this is several times as fast as one by one.
 */
async function flush(host: Host, path: string, context: Context): Promise<void> {
  const { environment } = host;
  const list = commandOnHost(host, 'find', [path, '-xdev', '(', '-type', 'f', '-o', '-type', 'd', ')', '-print0']);
  const input = readCommand(list, { environment, signal: context.signal });
  const args = ['-0', '-r', '-n', '64', '-P', '16', 'sync'];
  try {
    const { code, stderr } = await runProgram(host, 'xargs', args, context, { gentle: true, input });
    if (code !== 0) context.log('warn', `cannot sync ${path}: ${stderr.trim().slice(-1000)}`);
  } catch (error) {
    if (!isPluginError(error, 'command-failed')) throw error;
    context.log('warn', `cannot sync ${path}: ${error.message}`);
  }
}
