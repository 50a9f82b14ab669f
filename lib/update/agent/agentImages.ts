import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Bundle, describeMissingBlobs } from '#bundle/open';
import { measureFree } from '#content/files';
import type { Context } from '#context';
import { ignoreFailure, PluginError, nameSome } from '#errors';
import {
  stayAboveFloor,
  HostStorage,
  type StoreImage,
  type StoreIndex,
  LayerCheck,
  type DamagedImage,
  completeToLoad,
  isUnsynced,
  listMissingBaseBlobs,
  loadBundle,
  type LoadOptions,
  removeDamagedImages,
  storeImagesOf,
} from '#node/images';
import { pathOnHost, type Host, nodeStateFolder, runProgram, runProgramWithin } from '#node/machine';
import {
  holdImages,
  readHold,
  readPinnedReleases,
  releaseImages,
  unpinReleases,
  writePins,
  findGuardedImages,
  removeRecord,
  type GuardedImage,
} from '#node/runtime';
import { listUnpinnable } from '#readiness/nodes';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { isAtLeast, type NodeProgress, type UpgradeBundle } from '../record/upgradeBundle.ts';
import { checkStage, type BundleSource, type NodeState } from './nodeState.ts';

/** The images of bundles in the image store of a node. */
export class AgentImages {
  readonly #host: Host;
  readonly #floor: number | undefined;
  #storage: HostStorage | undefined;
  /** The running check of layers, what it is for, and whether it has found damage that is not repaired. */
  #check: { readonly stage: string; readonly layers: LayerCheck } | undefined;
  #isDamaged = false;
  #pulledAt = -Infinity;

  /** `floor`: bytes to leave free; by default what stayAboveFloor leaves. */
  constructor(host: Host, floor: number | undefined) {
    this.#host = host;
    this.#floor = floor;
  }

  /** Measures the file system of the images and, if it is another one, that of the bundle’s copy and the backups. */
  async measureDisks(): Promise<Pick<NodeProgress, 'free' | 'size' | 'system'>> {
    const { main } = await this.#openStorage();
    const measure = async (path: string) => {
      const { folder, free, size } = await measureFree(join(pathOnHost(this.#host, path), 'each'));
      return { free, size, device: (await stat(folder)).dev };
    };
    const [images, state] = [await measure(main.graphRoot), await measure(nodeStateFolder)];
    return {
      free: images.free,
      size: images.size,
      ...(images.device !== state.device && { system: { free: state.free, size: state.size } }),
    };
  }

  /** Runs work that fills a folder of this process, and passes it the floor. Ends it with `disk-full` at the floor. */
  stayAboveFloor<T>(
    folder: string,
    context: Context,
    work: (context: Context, floor: number) => Promise<T>,
  ): Promise<T> {
    return stayAboveFloor(folder, this.#floor, context, work);
  }

  /**
   * Counts the images of a bundle, and how many of them the store has completely. A corrupt store has none. A main
   * store that an interrupted load left unsynced lacks at least one, so that the images are loaded again and synced.
   * From Loaded on, also looks for files of layers that lost content. Before the update begins, it checks all at once,
   * and later a part in each call, after each start of the agent and each day. Removes images with such layers, which
   * are then missing.
   */
  async count(facts: BundleFacts, bundle: UpgradeBundle, context: Context): Promise<NodeState['images']> {
    const images = imagesOf(facts);
    const storage = await this.#openStorage();
    const index = await storage.readIndex().catch(() => undefined);
    const lost = index ? await index.listMissing(images) : images;
    const total = images.length;
    const isDurable = !(await isUnsynced(storage));
    // A damaged node takes the update back to Loading, and must not count as loaded there.
    const isDue = this.#isDamaged || isAtLeast(bundle, 'Loaded');
    const present = images.filter((image) => !lost.includes(image));
    const damaged = index && isDurable && isDue ? await this.#findDamaged(index, present, bundle, context) : [];
    this.#isDamaged = damaged.length > 0;
    const stays = this.#isDamaged ? await removeDamagedImages(storage, damaged, context) : undefined;
    const loaded = total - lost.length - damaged.length;
    const missing = loaded > 0 && lost.length > 0 && { missing: nameSome(lost.map(({ name }) => name)) };
    return {
      loaded: isDurable ? loaded : Math.min(loaded, Math.max(total - 1, 0)),
      total,
      ...missing,
      ...(stays && { damage: `${stays.message}. ${stays.hint ?? ''}` }),
    };
  }

  async #findDamaged(
    index: StoreIndex,
    images: readonly StoreImage[],
    bundle: UpgradeBundle,
    context: Context,
  ): Promise<DamagedImage[]> {
    const before = checkStage(bundle);
    const stage = before ?? `day ${Math.floor(performance.now() / checkPause)}`;
    const isContinued = this.#check?.stage === stage || (this.#isDamaged && this.#check);
    if (!this.#check || !isContinued) this.#check = { stage, layers: new LayerCheck(this.#host, { content: false }) };
    const limit = before === undefined ? checkTime : Infinity;
    return await this.#check.layers.findDamaged(index, images, limit, context);
  }

  /**
   * Describes images of a bundle that are loaded, and that the kubelet would still request from a registry, by its own
   * records; undefined if there are none. Removes records that it cannot read.
   */
  async describeRefused(facts: BundleFacts, context: Context): Promise<string | undefined> {
    const index = await (await this.#openStorage()).readIndex();
    const ids = imagesOf(facts).flatMap((image) => {
      const id = index.idOf(image);
      return id === undefined ? [] : [[image.name, id] as const];
    });
    const refused: GuardedImage[] = [];
    for (const image of await findGuardedImages(this.#host, ids)) {
      const { name, record, isUnreadable } = image;
      const isRemoved =
        isUnreadable &&
        (await removeRecord(this.#host, image).then(
          () => true,
          () => false,
        ));
      if (isRemoved) context.log('warn', `${record} was corrupt and is removed: the kubelet uses ${name} again`);
      else refused.push(image);
    }
    if (refused.length === 0) return undefined;
    const words = refused.map(({ name, reason, record }) => `${name}: ${reason} (${record})`);
    const count = refused.length === 1 ? 'an image that is loaded' : `${refused.length} images that are loaded`;
    return (
      `the kubelet would request ${count} from a registry: ${nameSome(words, 3, '; ')}. If a pod needs one, ` +
      'remove its record and restart the kubelet'
    );
  }

  /**
   * Finds where the base blobs of an open delta bundle are, and describes the blobs that the bundle was opened without
   * and that the store lacks. Throws the errors of reading the index of the store.
   */
  async findBase(source: BundleSource, context: Context): Promise<Pick<NodeState, 'base' | 'lack'>> {
    if (source.kind !== 'open' || !source.cached.facts.metadata.base) return { base: undefined, lack: undefined };
    const { bundle } = source.cached;
    const storage = await this.#openStorage();
    const missing = await listMissingBaseBlobs(bundle, storage, context);
    if (missing.length === 0) return { base: 'stored', lack: undefined };
    return { base: 'missing', lack: describeMissingBlobs(bundle.metadata.base, missing) };
  }

  /**
   * Loads the images of a verified bundle, which stays open. Throws the errors of loadBundle, and `disk-full` at the
   * floor.
   */
  async load(verified: Bundle, facts: BundleFacts, limits: LoadOptions['limits'], context: Context): Promise<void> {
    const storage = await this.#openStorage();
    const expected = imagesOf(facts);
    // Extra images are loaded only if they are allowed.
    const options = { storage, limits, images: expected.map(({ name }) => name) };
    await this.stayAboveFloor(pathOnHost(this.#host, storage.main.graphRoot), context, async (within) => {
      // The base of a delta may have appeared since the verification.
      await using bundle = await completeToLoad(
        { ...verified, [Symbol.asyncDispose]: () => Promise.resolve() },
        [],
        storage,
        within,
      );
      const { images } = await loadBundle(bundle, options, within);
      if (images.length === expected.length) return;
      const counts = `${images.length} images, but ${expected.length} were verified`;
      throw new PluginError('internal', `${bundle.path} has ${counts}`);
    });
  }

  /**
   * Pulls the missing images of a bundle by the configuration of the node, which may name mirrors. Tries it once in a
   * few minutes. Returns whether the node has all of them then.
   */
  async pull(facts: BundleFacts, context: Context): Promise<boolean> {
    if (performance.now() < this.#pulledAt + pullPause) return false;
    this.#pulledAt = performance.now();
    const index = await (await this.#openStorage()).readIndex();
    const limit = AbortSignal.timeout(pullTimeout);
    for (const { name } of await index.listMissing(imagesOf(facts))) {
      const pulled = await runProgramWithin(this.#host, 'crictl', ['pull', name], limit, context).catch(ignoreFailure);
      if (pulled?.code !== 0) return false;
      context.log('info', `pulled again: ${name}`);
    }
    return true;
  }

  /**
   * Holds the images from before they are loaded, so that nothing removes them before they are pinned. Throws the
   * errors of holdImages, and `command-failed`.
   */
  async hold(facts: BundleFacts, context: Context): Promise<void> {
    await holdImages(this.#host, namesOf(facts));
    // As in `pin`.
    await this.#reload(unheld, context);
  }

  /**
   * Ends the hold if the images are pinned: by the node itself (`isPinned`), or else by PinnedImageSets. Otherwise
   * takes over what others pin meanwhile. Does nothing without a hold. Throws the errors of `hold`.
   */
  async settleHold(facts: BundleFacts, isPinned: boolean, context: Context): Promise<void> {
    const unpinnable = new Set(listUnpinnable(facts.metadata.images));
    const names = namesOf(facts);
    const pinnable = names.filter((name) => !unpinnable.has(name));
    const hold = await readHold(this.#host, pinnable);
    if (!hold.isHeld) return;
    if (isPinned || hold.isPinned) await this.release(context);
    else if (await holdImages(this.#host, names)) await this.#reload(unheld, context);
  }

  /** Ends the hold of images; see `hold`. Throws `not-writable` and `command-failed`. */
  async release(context: Context): Promise<void> {
    if (await releaseImages(this.#host)) await this.#reload('images are held that the cluster does not pin', context);
  }

  /**
   * Pins the images in CRI-O, so that the kubelet never removes them. Throws the errors of writePins, and
   * `command-failed`.
   */
  async pin(facts: BundleFacts, context: Context): Promise<void> {
    await writePins(this.#host, namesOf(facts), facts.metadata.release);
    // Reload even if the list did not change: the process that wrote it may have ended before its reload.
    await this.#reload('the images are not pinned', context);
  }

  /** Returns the releases whose images are pinned. */
  pinnedReleases(): Promise<string[]> {
    return readPinnedReleases(this.#host);
  }

  /**
   * Unpins the images of releases, except images that other releases pin too. Throws the errors of unpinReleases, and
   * `command-failed`.
   */
  async unpin(releases: readonly string[], context: Context): Promise<void> {
    const { changed } = await unpinReleases(this.#host, releases);
    if (changed) await this.#reload('images of earlier releases stay pinned', context);
  }

  async #reload(until: string, context: Context): Promise<void> {
    const { code, stderr } = await runProgram(this.#host, 'systemctl', ['reload', 'crio'], context);
    if (code === 0) return;
    throw new PluginError('command-failed', `systemctl reload crio failed: ${stderr.trim()}`, {
      hint: `Until CRI-O reads its configuration again, ${until}.`,
    });
  }

  /** Reads storage.conf again, because the administrator may have changed it. */
  async #openStorage(): Promise<HostStorage> {
    return (this.#storage = await HostStorage.open(this.#host, this.#storage));
  }
}

/** The pause between two tries to pull missing images, and the limit of one, in milliseconds. */
const [pullPause, pullTimeout] = [300_000, 120_000];
/**
 * The pause between two checks of layers after the update has begun, and the time for a part of one, in milliseconds.
 */
const [checkPause, checkTime] = [24 * 3_600_000, 10_000];
const unheld = 'nothing holds the images that are loaded';

function namesOf(facts: BundleFacts): string[] {
  return imagesOf(facts).map(({ name }) => name);
}

function imagesOf({ metadata, digest }: BundleFacts): StoreImage[] {
  return storeImagesOf({ metadata, path: `the bundle ${digest}` });
}
