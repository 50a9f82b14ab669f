import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { type Digest, digestIn } from '../../lib/content/oci/reference.ts';
import { loadBundle, type LoadOptions, type LoadResult } from '../../lib/node/images.ts';
import { HostStorage } from '../../lib/node/images/hostStorage.ts';
import type { StoreImage } from '../../lib/node/images/imageStore.ts';
import type { Host } from '../../lib/node/machine/host.ts';
import { requireRoot, storageIn, type ReadStore } from './archive/storeReader.ts';
import { makeBundle, type TestBundle } from './content/bundle.ts';
import { makeContext, type TestContext } from './context.ts';
import { extraImage } from './release/extraImage.ts';

/** The components of the bundle to load. */
export const components = ['cli', 'cluster-version-operator', 'etcd', 'rhel-coreos-8'];

/** Makes a bundle to load, with a manifest list and an extra image. */
const makeLoadedBundle = (): Promise<TestBundle> =>
  makeBundle({ components, listOfOne: 'etcd', extraImages: [extraImage()] });

/** A folder with an image store, and a host whose store it is. */
export class LoadSite {
  readonly folder: string;
  readonly host: Host;
  readonly made: TestBundle;

  private constructor(folder: string, host: Host, made: TestBundle) {
    this.folder = folder;
    this.host = host;
    this.made = made;
  }

  static async open(made: TestBundle): Promise<LoadSite> {
    const folder = await mkdtemp(join(tmpdir(), 'load-'));
    const host = { root: '/', environment: { ...process.env, ...(await storageIn(folder)) } };
    return new LoadSite(folder, host, made);
  }

  /** The store, for podman. */
  get store(): ReadStore {
    return { kind: 'main', path: join(this.folder, 'main') };
  }

  /** The names of the images of the bundle. */
  get names(): readonly string[] {
    return this.made.result.metadata.images;
  }

  /** The images of the bundle. */
  get images(): StoreImage[] {
    return this.names.map((name) => ({ name, digest: digestIn(name) as Digest }));
  }

  /** Loads the bundle, or that of `path`, into the store. */
  async load(
    options: Partial<LoadOptions> = {},
    context: TestContext = makeContext(),
    path = this.made.path,
  ): Promise<LoadResult> {
    await using bundle = await openBundle(path, context);
    const storage = await HostStorage.open(this.host);
    return await loadBundle(bundle, { storage, images: [], limits: { concurrency: 3 }, ...options }, context);
  }

  close(): Promise<void> {
    return rm(this.folder, { recursive: true, force: true });
  }
}

/**
 * Gives each test of the present suite a site of its own, all with one bundle. Skips the suite for users other than
 * root. Returns a function for the site of the running test.
 */
export function openLoadSites(): () => LoadSite {
  let made: TestBundle | undefined;
  let site: LoadSite | undefined;
  before(async function () {
    await requireRoot(this);
    made = await makeLoadedBundle();
  });
  // There is none if the suite is skipped.
  after(() => made?.remove());
  beforeEach(async () => {
    site = made && (await LoadSite.open(made));
  });
  afterEach(() => site?.close());
  return () => site ?? expect.fail('a site is there only during a test');
}
