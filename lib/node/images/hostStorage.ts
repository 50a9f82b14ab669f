import { stat } from 'node:fs/promises';
import { pathOnHost, type Host } from '../machine/host.ts';
import { readStorageConfig, type StorageConfig } from '../runtime/storageConfig.ts';
import { indexFiles, StoreIndex, type ImageStore } from './imageStore.ts';

interface CachedIndex {
  /** Changes with each change of the index files and of their paths. */
  readonly version: string;
  readonly index: StoreIndex;
}

/** The image storage of a host. Reads storage.conf once, and the index of its store again only if it changed. */
export class HostStorage {
  readonly host: Host;
  readonly config: StorageConfig;
  #cached: CachedIndex | undefined;

  private constructor(host: Host, config: StorageConfig, cached: CachedIndex | undefined) {
    this.host = host;
    this.config = config;
    this.#cached = cached;
  }

  /** Reads storage.conf; `earlier` is a storage of the same host, whose index is kept. Throws `not-readable` and `invalid-file`. */
  static async open(host: Host, earlier?: HostStorage): Promise<HostStorage> {
    return new HostStorage(host, await readStorageConfig(host), earlier ? earlier.#cached : undefined);
  }

  /** The store that the programs of the host use by default. */
  get main(): ImageStore {
    const { driver, graphRoot, runRoot } = this.config;
    return { driver, graphRoot, runRoot };
  }

  /** Reads the index of the main store. Throws the errors of StoreIndex.read. */
  async readIndex(): Promise<StoreIndex> {
    // Before the files are read, so that a change meanwhile gives another version the next time.
    const version = (await Promise.all(indexFiles(this.main).map((path) => this.#versionOf(path)))).join();
    if (this.#cached?.version === version) return this.#cached.index;
    const index = await StoreIndex.read(this.host, this.main);
    this.#cached = { version, index };
    return index;
  }

  /** containers/storage replaces its index files, so that each version has another inode. */
  async #versionOf(path: string): Promise<string> {
    const stats = await stat(pathOnHost(this.host, path), { bigint: true }).catch(() => undefined);
    return `${path} ${stats ? `${stats.ino} ${stats.size} ${stats.mtimeNs}` : ''}`;
  }
}
