import { sumSizes, type Digest } from '#content/oci';
import type { Context, TransferEvent } from '#context';
import { asFailure, ignoreFailure, isPluginError, messageOf } from '#errors';
import type { FoundBundle } from '#node/media';
import { serveBaseBlobs } from '#node/transfer';
import { type BundleFacts, describeMismatch, parseOutline } from '../record/bundleFacts.ts';
import { chooseFacts } from '../record/extraImages.ts';
import type { NodeReport } from '../record/nodeReport.ts';
import { isAtLeast, needsFacts, type NodeProgress, type UpgradeBundle } from '../record/upgradeBundle.ts';
import type { ScreenFacts } from '../screen/screenText.ts';
import type { AgentBackup } from './agentBackup.ts';
import type { AgentImages } from './agentImages.ts';
import { AgentJob, WorkShare } from './agentJob.ts';
import type { AgentPeers, FetchOutcome } from './agentPeers.ts';
import type { AgentServer } from './agentServer.ts';
import type { BundleCache, CachedBundle } from './bundleCache.ts';
import { isContentFault, type ImageServing } from './imageServing.ts';
import { describeFound, MediaStates } from './mediaStates.ts';
import {
  chooseTask,
  countStage,
  describeLateHold,
  findNodeReason,
  describeServing,
  initialState,
  loadLimits,
  nodeMessages,
  nodePhase,
  type BundleSource,
  type NodeFacts,
  type NodeState,
} from './nodeState.ts';

/** The components that a node agent works with. */
export interface AgentTools {
  readonly cache: BundleCache;
  readonly images: Pick<AgentImages, keyof AgentImages>;
  readonly peers: AgentPeers;
  readonly server: AgentServer;
  readonly backup?: Pick<AgentBackup, keyof AgentBackup>;
  readonly serving?: Pick<ImageServing, keyof ImageServing>;
  /** Further messages to report, such as media that cannot be used. */
  messages?(): readonly string[];
}

/**
 * Does the work of one node for one allowed bundle: gets it from a medium or from another node, offers it to other
 * nodes, loads its images and pins them. `advance` starts the next task. The task follows from the disk, so the process
 * may end at any point.
 */
export class AgentNode {
  readonly digest: Digest;
  readonly #tools: AgentTools;
  readonly #context: Context;
  readonly #job: AgentJob;
  readonly #media: MediaStates;
  #state: NodeState = initialState;
  /** See countStage. */
  #countedFor: string | undefined;
  /** What a mirror could not read when the copy was checked last. */
  #checkedFor = '';
  /** See describeLateHold. */
  #lateHold: string | undefined;
  /** The progress of the running job, if it is known. */
  #share: WorkShare | undefined;

  constructor(digest: Digest, tools: AgentTools, context: Context) {
    this.digest = digest;
    this.#tools = tools;
    this.#context = context;
    this.#job = new AgentJob(context);
    this.#media = new MediaStates(digest);
  }

  /** The verified facts about the bundle; undefined until they are known. */
  get facts(): BundleFacts | undefined {
    return this.#media.facts;
  }

  /** What the node reports about the bundle: whether it offers the bundle, its base, and the counted release. */
  get report(): Pick<NodeReport, 'offers' | 'base' | 'version'> {
    const { source, base, version } = this.#state;
    return { offers: source.kind === 'open' ? this.digest : undefined, base, version };
  }

  /** Whether the images are counted, and all of them are loaded. */
  get isComplete(): boolean {
    const { loaded, total } = this.#state.images;
    return total > 0 && loaded === total;
  }

  /**
   * What a person in front of the node must know of its work. `media` are those of the last `advance`. The drive may be
   * removed once every node has every image of the last release, and this node also what its mirror keeps.
   */
  screen(
    bundle: UpgradeBundle,
    { retains }: NodeFacts,
    media: readonly FoundBundle[],
  ): Pick<ScreenFacts, 'version' | 'drive' | 'work' | 'reason'> {
    const { source, servesImages = false } = this.#state;
    const { kind } = this.#job;
    const here = media.find((medium) => this.#media.stateOf(medium) !== 'another');
    const isHere = here !== undefined;
    const last = this.facts?.hops?.at(-1) ?? this.facts;
    const isLast = last !== undefined && last.metadata.version === bundle.status?.version;
    const keepsCopy = source.kind === 'open' && source.medium !== undefined && (retains === 'all' || servesImages);
    const isDone = isAtLeast(bundle, 'Loaded') && isLast && this.isComplete && !keepsCopy && kind !== 'verify';
    const reads = kind === 'verify' && isHere;
    const copies = kind === 'load' || (kind === 'fetch' && this.#state.unoffered === undefined);
    return {
      drive: isHere ? (isDone ? 'removable' : 'needed') : 'none',
      work: reads || copies ? { kind: reads ? 'check' : 'copy', share: this.#share?.share } : undefined,
      reason: findNodeReason(this.#state, this.#job, needsFacts(bundle)),
      version: here?.version,
    };
  }

  /** Whether the node gives images to its own runtime, or is to do so once it has a copy of the bundle. */
  get servesImages(): boolean {
    return this.#state.servesImages === true;
  }

  /** See AgentJob. */
  get ended(): AbortSignal {
    return this.#job.ended;
  }

  /**
   * Starts the next task, unless one is running. Reports content of the disk that cannot be read, and retries it.
   * `unread`: what the mirror of the node cannot read of its copy. Throws `interrupted`.
   */
  async advance(
    bundle: UpgradeBundle,
    node: NodeFacts,
    media: readonly FoundBundle[],
    unread: readonly string[] = [],
  ): Promise<void> {
    await this.#updateMedia(media);
    if (this.#job.name !== undefined) return;
    this.#lateHold = describeLateHold(node, bundle);
    await this.#noticeRemoval();
    if (this.#checkCopy(unread.join())) return;
    const obstacle = (await this.#recall(bundle)) ?? this.#state.images.damage;
    const isOther = this.facts !== undefined && describeMismatch(bundle, this.facts) !== undefined;
    this.#set({ obstacle, isOther, other: this.#media.describeOther(media) });
    const unverified = this.#media.nextToVerify(media, bundle.spec.bundle.version);
    const task = chooseTask(this.#state, unverified, bundle, node, this.facts !== undefined);
    if (task.kind === 'verify') this.#verify(task.medium);
    if (task.kind === 'fetch') this.#fetch(bundle);
    if (task.kind === 'fetchBase') this.#fetchBase(task.source);
    if (task.kind === 'load') this.#load(task.source, bundle, node);
    if (task.kind === 'retain') this.#retain(task.source);
    if (task.kind === 'pin') this.#pin(bundle);
  }

  async describe(bundle: UpgradeBundle, node: NodeFacts): Promise<NodeProgress> {
    const disks = await this.#tools.images.measureDisks().catch(ignoreFailure);
    const { images, bytes } = this.#state;
    const phase = nodePhase(this.#state, this.#job, bundle, node);
    const messages = [...nodeMessages(this.#state, this.#job, phase), ...(this.#tools.messages?.() ?? [])];
    return {
      name: node.name,
      phase,
      imagesLoaded: Math.min(images.loaded, images.total),
      imagesTotal: images.total,
      bytes,
      ...disks,
      ...(messages.length > 0 && { message: messages.join('; ') }),
    };
  }

  /** Stops the running job, and withdraws the offer. */
  async close(): Promise<void> {
    await this.#job.stop();
    await this.#closeBundle({ kind: 'none' });
  }

  #set(change: Partial<NodeState>): void {
    this.#state = { ...this.#state, ...change };
  }

  /** Closes the copy if its file was removed: an open file would stay readable, and no mirror serves it. */
  async #noticeRemoval(): Promise<void> {
    const { source } = this.#state;
    if (source.kind !== 'open' || source.medium || (await this.#tools.cache.has(this.digest))) return;
    this.#context.log('info', `${source.cached.bundle.path} was removed`);
    this.#set({ isDamaged: false });
    await this.#closeBundle({ kind: 'none' });
  }

  /** Reads the copy again if the mirror cannot read all of it. Returns whether that has begun. */
  #checkCopy(unread: string): boolean {
    const { source } = this.#state;
    if (unread === '' || unread === this.#checkedFor || source.kind !== 'open' || source.medium) return false;
    const { cached } = source;
    this.#job.start('verify', 'checking the copy of the bundle, which the mirror cannot read', async (context) => {
      const isDamaged = !(await this.#tools.cache.isWhole(cached, context));
      this.#checkedFor = unread;
      this.#noteDamage(isDamaged);
    });
    return true;
  }

  /** Lets a medium, or another node, replace the copy. */
  #noteDamage(isDamaged: boolean): void {
    this.#set({ isDamaged });
    if (!isDamaged) return;
    this.#media.forgetVerified();
    this.#tools.server.withdraw();
  }

  /**
   * Opens the copy on the disk, counts the images again in each phase and minute, and finds the base blobs. Returns the
   * message of an error in reading them.
   */
  async #recall(bundle: UpgradeBundle): Promise<string | undefined> {
    const { cache, images } = this.#tools;
    let fault: string | undefined;
    try {
      if (this.#state.source.kind !== 'open') {
        const copy = await cache.openCopy(this.digest, this.#context).catch((error: unknown) => {
          fault = asFailure(error).message;
        });
        if (copy) await this.#offer(copy, undefined);
      }
      this.#media.facts ??= await cache.recall(this.digest, this.#context);
      const [version, stage] = [bundle.status?.version, countStage(bundle)];
      const facts = this.facts && chooseFacts(this.facts, bundle);
      if (!facts) return fault ?? (this.facts && describeMismatch(bundle, this.facts));
      if (this.#countedFor === stage) return fault;
      if (this.#state.version !== version) this.#set({ isPinned: false, version });
      this.#set({ images: await images.count(facts, bundle, this.#context) });
      this.#set({ refused: await images.describeRefused(facts, this.#context).catch(ignoreFailure) });
      await this.#serveImages(bundle, facts.metadata.images);
      await this.#hold(() => images.settleHold(facts, this.#state.isPinned, this.#context));
      if (this.#state.base !== 'offered') this.#set(await images.findBase(this.#state.source, this.#context));
      this.#countedFor = stage;
      return fault;
    } catch (error) {
      return asFailure(error).message;
    }
  }

  #verify(medium: FoundBundle): void {
    this.#job.start('verify', `verifying ${describeFound(medium)}`, async (context) => {
      if (this.#state.source.kind === 'removed') this.#set({ source: { kind: 'none' } });
      const share = (this.#share = new WorkShare(medium.size));
      try {
        const verified = await this.#tools.cache.verify(medium, this.digest, context, (bytes) => {
          share.add(bytes);
        });
        this.#media.set(medium, 'verified');
        await this.#offer(verified, medium);
      } catch (error) {
        if (isPluginError(error, 'digest-mismatch') && !this.#media.isExpected(medium)) {
          this.#media.set(medium, 'another', messageOf(error));
          this.#context.log('warn', messageOf(error));
          return;
        }
        if (isContentFault(error)) this.#media.set(medium, 'unreadable');
        if (isContentFault(error)) this.#set({ source: { kind: 'unreadable', error } });
        throw error;
      }
    });
  }

  #fetch(bundle: UpgradeBundle): void {
    const { peers, cache, images } = this.#tools;
    const { loaded, total } = this.#state.images;
    const outline = this.facts?.outline ?? parseOutline(bundle.status);
    // Mirrors of the cluster give a few images faster than another node a whole bundle.
    const lost = loaded > 0 && loaded < total && isAtLeast(bundle, 'Upgrading');
    this.#job.start('fetch', 'fetching the bundle from another node', async (context) => {
      const facts = this.facts && chooseFacts(this.facts, bundle);
      if (lost && facts && (await images.pull(facts, context))) {
        this.#set({ images: await images.count(facts, bundle, context) });
        return true;
      }
      // Another copy takes the place of a damaged one.
      const isExtra = total > 0 && loaded === total && this.#state.isDamaged !== true;
      if (isExtra) await cache.requireRoom(this.facts?.metadata.size ?? 0, context);
      const isFetched = await this.#askPeers('bundle', 0, context, (within, floor) =>
        peers.fetch(this.digest, cache.folder, within, { outline, floor }),
      );
      const copy = isFetched ? await cache.openCopy(this.digest, context) : undefined;
      if (copy) await this.#offer(copy, undefined);
      else if (this.#state.source.kind === 'unreadable') throw this.#state.source.error;
      return copy !== undefined;
    });
  }

  #fetchBase({ cached, medium }: BundleSource & { readonly kind: 'open' }): void {
    const { peers, cache } = this.#tools;
    const { base, blobs } = cached.facts.metadata;
    this.#job.start('fetch', 'fetching the base of the delta bundle from another node', async (context) => {
      const isFetched = await this.#askPeers('base', sumSizes(blobs), context, (within, floor) =>
        peers.fetchBase(this.digest, base?.blobs ?? [], cache.folder, within, { floor }),
      );
      if (isFetched) await this.#offer(await cache.addBaseBlobs(cached, context), medium);
      return isFetched;
    });
  }

  /** Fetches content from other nodes. `present`: bytes that the node has already. Returns false if no node has it. */
  async #askPeers(
    content: 'bundle' | 'base',
    present: number,
    context: Context,
    fetch: (context: Context, floor: number) => Promise<FetchOutcome>,
  ): Promise<boolean> {
    const { cache, images } = this.#tools;
    this.#share = undefined;
    const onEvent = (event: TransferEvent): void => {
      if (event.kind === 'plan') {
        this.#share = new WorkShare(event.bytes, event.present);
        this.#set({ bytes: present + event.present, unoffered: undefined });
      }
      if (event.kind !== 'bytes') return;
      this.#share?.add(event.bytes);
      this.#set({ bytes: this.#state.bytes + event.bytes });
    };
    this.#set({ bytes: present });
    const outcome = await images.stayAboveFloor(cache.folder, context, (within, floor) =>
      fetch({ ...within, onEvent }, floor),
    );
    this.#set({ unoffered: outcome === 'none' ? content : undefined });
    return outcome === 'fetched';
  }

  #load({ cached, medium }: BundleSource & { readonly kind: 'open' }, bundle: UpgradeBundle, node: NodeFacts): void {
    const { images, cache } = this.#tools;
    const facts = chooseFacts(cached.facts, bundle);
    if (!facts) return;
    const { total } = this.#state.images;
    this.#job.start('load', `loading ${total} images`, async (context) => {
      let seen = 0;
      const share = (this.#share = new WorkShare(total));
      const onEvent = ({ kind }: TransferEvent): void => {
        if (kind === 'image') {
          seen += 1;
          share.add(1);
        }
        // Images that are present are reported first.
        this.#set({ images: { total, loaded: Math.max(this.#state.images.loaded, seen) } });
      };
      await this.#hold(() => images.hold(facts, context));
      try {
        await images.load(cached.bundle, facts, loadLimits(node), { ...context, onEvent });
      } catch (error) {
        // The images are counted again, because the store may be unsynced.
        this.#countedFor = undefined;
        if (!isContentFault(error) || (await cache.isWhole(cached, context))) throw error;
        // Another node may have the complete bundle.
        if (medium !== undefined) {
          await this.#closeBundle({ kind: 'unreadable', error });
          this.#media.set(medium, 'unreadable');
          throw error;
        }
        await this.#closeBundle({ kind: 'none' });
        this.#set({ isDamaged: false });
        await cache.drop(this.digest, context);
      }
      this.#set({ images: await images.count(facts, bundle, context) });
    });
  }

  /**
   * Lets the node give images to its own runtime, from its copy, while its kubelet refuses loaded images. After the
   * update too, because the kubelet has no note of an image that no pod has needed.
   */
  async #serveImages(bundle: UpgradeBundle, names: readonly string[]): Promise<void> {
    const { serving } = this.#tools;
    if (!serving || !isAtLeast(bundle, 'Loading')) return;
    const { source, refused } = this.#state;
    const policy = await serving.findPolicy(names);
    const isNeeded = refused !== undefined || policy !== undefined;
    const servesImages = isNeeded && (await serving.canServe(names));
    this.#set({ servesImages });
    if (!servesImages) return;
    try {
      const isReady = source.kind === 'open' && source.medium === undefined;
      if (isReady) await serving.start(names, this.#context);
      this.#set({ refused: describeServing(policy, refused, isReady) });
    } catch (error) {
      this.#context.log('warn', `the node cannot serve its own images: ${asFailure(error).message}`);
    }
  }

  /** Changes what is held. Images are loaded and counted without it too, and the node reports what they risk. */
  async #hold(change: () => Promise<void>): Promise<void> {
    try {
      await change();
      this.#set({ unheld: this.#lateHold });
    } catch (error) {
      const { message } = asFailure(error);
      if (this.#state.unheld !== message) this.#context.log('warn', message);
      this.#set({ unheld: message });
    }
  }

  #retain({ cached }: BundleSource & { readonly kind: 'open' }): void {
    this.#job.start('retain', 'copying the bundle to the disk for the mirror', async (context) => {
      if (this.#state.isDamaged) await this.#tools.cache.drop(cached.facts.digest, context);
      const copy = await this.#tools.cache.keep(cached, context);
      if (copy) await this.#offer(copy, undefined);
    });
  }

  #pin(bundle: UpgradeBundle): void {
    const facts = this.facts && chooseFacts(this.facts, bundle);
    if (!facts) return;
    this.#job.start('pin', 'pinning the images', async (context) => {
      await this.#tools.images.pin(facts, context);
      this.#set({ isPinned: true });
    });
  }

  async #offer(cached: CachedBundle, medium: FoundBundle | undefined): Promise<void> {
    const base = await serveBaseBlobs(cached.bundle);
    const { source } = this.#state;
    this.#media.facts = cached.facts;
    const bytes = sumSizes(cached.facts.metadata.blobs) + (base?.size ?? 0);
    const wasDamaged = this.#state.isDamaged === true;
    const isDamaged = medium !== undefined && wasDamaged;
    this.#set({
      source: { kind: 'open', cached, medium },
      base: base && 'offered',
      unoffered: undefined,
      bytes,
      isDamaged,
    });
    this.#countedFor = undefined;
    this.#tools.server.offer(cached.bundle, this.digest, base);
    // The delta of another medium, which lies beside its base.
    if (source.kind === 'open' && (source.medium !== medium || (wasDamaged && !isDamaged)))
      await source.cached.bundle[Symbol.asyncDispose]();
  }

  /** Compares the media with those of the last call, and closes the bundle if its medium was removed. */
  async #updateMedia(media: readonly FoundBundle[]): Promise<void> {
    if (this.#media.update(media)) {
      // A fault of the earlier media says nothing about the present ones.
      this.#job.clearFailure();
      if (this.#state.source.kind === 'unreadable') this.#set({ source: { kind: 'none' } });
    }
    const medium = this.#state.source.kind === 'open' ? this.#state.source.medium : undefined;
    if (!medium || media.some(({ path }) => path === medium.path)) return;
    this.#context.log('warn', `${describeFound(medium)} was removed`);
    await this.#job.stop();
    await this.#closeBundle({ kind: 'removed', medium: describeFound(medium) });
    this.#set({ bytes: 0 });
  }

  async #closeBundle(next: BundleSource): Promise<void> {
    const { source } = this.#state;
    this.#set({ source: next, base: undefined, unoffered: undefined });
    this.#tools.server.withdraw();
    if (source.kind === 'open') await source.cached.bundle[Symbol.asyncDispose]();
  }
}
