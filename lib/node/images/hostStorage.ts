import { stat } from 'node:fs/promises';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { readStorageConfig, type StorageConfig } from '../runtime/storageConfig.ts';
import { indexFiles, StoreIndex, type ImageStore } from './imageStore.ts';

interface CachedIndex {
  /** Changes with each change of the index files. */
  readonly version: string;
  readonly index: StoreIndex;
}

/** The image storage of a host. Reads storage.conf once, and the index of a store again only if it changed. */
export class HostStorage {
  readonly host: Host;
  readonly config: StorageConfig;
  readonly #indexes: Map<string, CachedIndex>;

  private constructor(host: Host, config: StorageConfig, indexes: Map<string, CachedIndex>) {
    this.host = host;
    this.config = config;
    this.#indexes = indexes;
  }

  /** Reads storage.conf; `earlier` is a storage of the same host, whose indexes are kept. Throws `not-readable` and `invalid-file`. */
  static async open(host: Host, earlier?: HostStorage): Promise<HostStorage> {
    const indexes = earlier ? earlier.#indexes : new Map<string, CachedIndex>();
    return new HostStorage(host, await readStorageConfig(host), indexes);
  }

  /** The store that the programs of the host use by default. */
  get main(): ImageStore {
    const { driver, graphRoot, runRoot } = this.config;
    return { kind: 'main', driver, graphRoot, runRoot };
  }

  /** Reads the index of a store. Throws the errors of StoreIndex.read. */
  async readIndex(store: ImageStore): Promise<StoreIndex> {
    // Before the files are read, so that a change meanwhile gives another version the next time.
    const version = (await Promise.all(indexFiles(store).map((path) => this.#versionOf(path)))).join();
    const cached = this.#indexes.get(store.graphRoot);
    if (cached?.version === version) return cached.index;
    const index = await StoreIndex.read(this.host, store);
    this.#indexes.set(store.graphRoot, { version, index });
    return index;
  }

  /** containers/storage replaces its index files, so that each version has another inode. */
  async #versionOf(path: string): Promise<string> {
    const found = await stat(pathOnHost(this.host, path), { bigint: true }).catch(() => undefined);
    return found ? `${found.ino} ${found.size} ${found.mtimeNs}` : '';
  }
}
