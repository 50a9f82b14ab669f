import type { Bundle } from '../../bundle/bundle.ts';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { measureDisk, stayAboveFloor } from '../../node/images/diskFloor.ts';
import { pathOnHost, type Host } from '../../machine/host.ts';
import { defaultStorePath } from '../../machine/paths.ts';
import { runProgram } from '../../machine/programs.ts';
import { StoreIndex, type ImageStore, type StoreImage } from '../../node/images/imageStore.ts';
import { loadBundle, openToLoad, type LoadOptions } from '../../node/images/load.ts';
import { storeImagesOf } from '../../node/images/loadPlan.ts';
import { readPinnedReleases, writePins, unpinReleases } from '../../node/runtime/pins.ts';
import { readStorageConfig } from '../../node/runtime/storageConfig.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import type { UpgradeBundle } from '../upgradeBundle.ts';

/** How many images at a time: the node has other work. */
const concurrency = 2;

/** The images of bundles in the image store of a node. */
export class AgentImages {
  readonly #host: Host;
  readonly #floor: number | undefined;

  /** `floor`: bytes to leave free, where it is not to be the usual. */
  constructor(host: Host, floor: number | undefined) {
    this.#host = host;
    this.#floor = floor;
  }

  /** How much is free where images are kept, in bytes. */
  async measureFree(): Promise<number> {
    const { graphRoot } = await readStorageConfig(this.#host);
    return (await measureDisk(pathOnHost(this.#host, graphRoot), this.#floor)).free;
  }

  /** Does what needs space, in a folder of this process, and ends it with `disk-full` when the floor is reached. */
  stayAboveFloor<T>(folder: string, context: Context, work: (context: Context) => Promise<T>): Promise<T> {
    return stayAboveFloor(folder, this.#floor, context, work);
  }

  /** How many of the images of a bundle are in the store, whole, and how many there are. A damaged store has none. */
  async count(facts: BundleFacts, wanted: UpgradeBundle['spec']['store']): Promise<{ loaded: number; total: number }> {
    const images = imagesOf(facts);
    const store = await this.#storeOf(wanted);
    const index = await StoreIndex.read(this.#host, store).catch(() => undefined);
    const lacks = index ? await Promise.all(images.map((image) => index.check(image))) : images;
    return { loaded: lacks.filter((lack) => lack === undefined).length, total: images.length };
  }

  /** Loads the images of a verified bundle. Throws what loadBundle does, and `disk-full` at the floor. */
  async load(
    { path, volumes }: Bundle,
    facts: BundleFacts,
    wanted: UpgradeBundle['spec']['store'],
    context: Context,
  ): Promise<void> {
    const store = await this.#choose(wanted);
    const expected = imagesOf(facts);
    // Extra images that are not allowed stay in the bundle.
    const options = { host: this.#host, store, images: expected.map(({ name }) => name), concurrency };
    const { graphRoot } = await this.#storeOf(wanted);
    await this.stayAboveFloor(pathOnHost(this.#host, graphRoot), context, async (within) => {
      // A device may have any name.
      const onMedium = volumes.every(({ size }) => size < Infinity);
      // Opened anew: what belongs to a delta may have come since.
      const bundle = await openToLoad(path, { bases: [], onMedium }, options, within);
      try {
        const { images } = await loadBundle(bundle, options, within);
        if (images.length === expected.length) return;
        const counts = `${images.length} images, and ${expected.length} were verified`;
        throw new PluginError('internal', `${path} has ${counts}`);
      } finally {
        await bundle.close();
      }
    });
  }

  /** Keeps the kubelet from removing the images, by a list of CRI-O’s own. Throws what pinImages does, and `command-failed`. */
  async pin(facts: BundleFacts, context: Context): Promise<void> {
    const names = imagesOf(facts).map(({ name }) => name);
    await writePins(this.#host, names, facts.metadata.release);
    // Also where the list was there: whoever wrote it may have ended before this.
    await this.#reload('the images are not pinned', context);
  }

  /** The releases whose images it keeps so. */
  pinnedReleases(): Promise<string[]> {
    return readPinnedReleases(this.#host);
  }

  /** Keeps the images of some releases no longer, but for those that it keeps for others too. Throws what unpinReleases does, and `command-failed`. */
  async unpin(releases: readonly string[], context: Context): Promise<void> {
    const { changed } = await unpinReleases(this.#host, releases);
    if (changed) await this.#reload('images of earlier releases stay pinned', context);
  }

  async #reload(until: string, context: Context): Promise<void> {
    const { code, stderr } = await runProgram(this.#host, 'systemctl', ['reload', 'crio'], context);
    if (code === 0) return;
    throw new PluginError('command-failed', `systemctl reload crio failed: ${stderr.trim()}`, {
      hint: `Until CRI-O has read its configuration again, ${until}.`,
    });
  }

  async #choose(wanted: UpgradeBundle['spec']['store']): Promise<LoadOptions['store']> {
    if (wanted === 'main') return { kind: 'main' };
    const { additionalStores } = await readStorageConfig(this.#host);
    // Nobody would look into a store that is not configured.
    const isConfigured = additionalStores.includes(defaultStorePath);
    if (wanted === 'auto' && !isConfigured) return { kind: 'main' };
    if (isConfigured) return { kind: 'additional', path: defaultStorePath };
    throw new PluginError('unsupported', `the additional store ${defaultStorePath} is not configured on this node`, {
      hint: 'Configure it in storage.conf on every node, or set spec.store to main.',
    });
  }

  async #storeOf(wanted: UpgradeBundle['spec']['store']): Promise<ImageStore> {
    const main: ImageStore = { kind: 'main', ...(await readStorageConfig(this.#host)) };
    const chosen = await this.#choose(wanted);
    return chosen.kind === 'main' ? main : { ...main, kind: 'additional', graphRoot: chosen.path };
  }
}

function imagesOf({ metadata, digest }: BundleFacts): StoreImage[] {
  return storeImagesOf({ metadata, path: `the bundle ${digest}` });
}
