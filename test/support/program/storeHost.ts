import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { HostStorage } from '../../../lib/node/images/hostStorage.ts';

/** This machine with an image store of its own in a folder, and with stand-ins for programs first on its path. */
export class StoreHost implements AsyncDisposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Makes an empty store of the driver `vfs`, `main` in the folder. */
  static async make(): Promise<StoreHost> {
    const host = new StoreHost(await mkdtemp(join(tmpdir(), 'store-host-')));
    const { folder } = host;
    const roots = [`graphroot = "${folder}/main"`, `runroot = "${folder}/run"`, 'driver = "vfs"'];
    await host.write('storage.conf', '[storage]', ...roots);
    return host;
  }

  /** Replaces a file of the folder at once, as containers/storage replaces its index files. */
  async write(path: string, ...lines: readonly string[]): Promise<void> {
    await this.#replace(path, `${lines.join('\n')}\n`, 0o644);
  }

  /** Replaces a file of the folder with JSON. */
  async writeJson(path: string, value: unknown): Promise<void> {
    await this.#replace(path, JSON.stringify(value), 0o644);
  }

  /** Puts a shell script first on the path. */
  async addProgram(name: string, ...lines: readonly string[]): Promise<void> {
    await this.#replace(name, `${['#!/bin/sh', ...lines].join('\n')}\n`, 0o755);
  }

  /** Opens the storage as the product does. */
  open(environment: Readonly<Record<string, string>> = {}): Promise<HostStorage> {
    const PATH = `${this.folder}:${process.env['PATH'] ?? ''}`;
    const CONTAINERS_STORAGE_CONF = join(this.folder, 'storage.conf');
    return HostStorage.open({ root: '/', environment: { PATH, CONTAINERS_STORAGE_CONF, ...environment } });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true });
  }

  async #replace(path: string, text: string, mode: number): Promise<void> {
    const file = join(this.folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(`${file}.new`, text, { mode });
    await rename(`${file}.new`, file);
  }
}
