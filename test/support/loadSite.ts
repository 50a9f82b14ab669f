import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openBundle } from '../../lib/bundle/open.ts';
import type { Host } from '../../lib/machine/host.ts';
import { HostStorage } from '../../lib/node/images/hostStorage.ts';
import { loadBundle, type LoadOptions, type LoadResult } from '../../lib/node/images/load.ts';
import { extraImage } from './release/extraImage.ts';
import { makeBundle, type TestBundle } from './content/bundle.ts';
import { makeContext, type TestContext } from './context.ts';

/** The components of the bundle to load. */
export const components = ['cli', 'cluster-version-operator', 'etcd', 'rhel-coreos-8'];

/** Makes a bundle to load, with a manifest list and an extra image. */
export const makeLoadedBundle = (): Promise<TestBundle> =>
  makeBundle({ components, listOfOne: 'etcd', extraImages: [extraImage()] });

/** A folder for image stores, and a host whose own store is in it. */
export class LoadSite {
  readonly folder: string;
  readonly host: Host;
  readonly #made: TestBundle;

  private constructor(folder: string, host: Host, made: TestBundle) {
    this.folder = folder;
    this.host = host;
    this.#made = made;
  }

  static async open(made: TestBundle): Promise<LoadSite> {
    const folder = await mkdtemp(join(tmpdir(), 'load-'));
    const config = join(folder, 'storage.conf');
    const place = `driver = "overlay"\ngraphroot = "${folder}/main"\nrunroot = "${folder}/reader/run"\n`;
    await writeFile(config, `[storage]\n${place}[storage.options.overlay]\nskip_mount_home = "true"\n`);
    const host = { root: '/', environment: { ...process.env, CONTAINERS_STORAGE_CONF: config } };
    return new LoadSite(folder, host, made);
  }

  /** Loads the bundle, or that of `path`, into an additional store in the folder. */
  async load(
    options: Partial<LoadOptions> = {},
    context: TestContext = makeContext(),
    path = this.#made.path,
  ): Promise<LoadResult> {
    await using bundle = await openBundle(path, context);
    const store = { kind: 'additional', path: join(this.folder, 'store') } as const;
    const storage = await HostStorage.open(this.host);
    return await loadBundle(bundle, { storage, store, images: [], limits: { concurrency: 3 }, ...options }, context);
  }

  close(): Promise<void> {
    return rm(this.folder, { recursive: true, force: true });
  }
}
