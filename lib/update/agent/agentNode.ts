import type { Context, TransferEvent } from '../../context.ts';
import { isPluginError, messageOf, type ErrorCode, type PluginError } from '../../errors.ts';
import type { FoundBundle } from '../../node/media/medium.ts';
import type { Digest } from '../../oci/digest.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import { leaveOutExtras } from '../extraImages.ts';
import { phaseOf, type NodeProgress, type UpgradeBundle } from '../upgradeBundle.ts';
import type { AgentImages } from './agentImages.ts';
import { AgentJob } from './agentJob.ts';
import type { AgentPeers } from './agentPeers.ts';
import type { AgentServer } from './agentServer.ts';
import type { BundleCache, CachedBundle } from './bundleCache.ts';
import { MediaStates } from './mediaStates.ts';
import {
  chooseTask,
  initialState,
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
  /** The phase and the allowed extra images for which the images were last counted. */
  #countedFor: string | undefined;

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

  /** The digest of the bundle that the node offers to other nodes; undefined if it offers none. */
  get offered(): Digest | undefined {
    return this.#state.source.kind === 'open' ? this.digest : undefined;
  }

  /** Aborted when the running job ends. */
  get ended(): AbortSignal {
    return this.#job.ended;
  }

  /**
   * Starts the next task, unless one is running. Reports content of the disk that cannot be read, and retries it.
   * Throws `interrupted`.
   */
  async advance(bundle: UpgradeBundle, node: NodeFacts, found: readonly FoundBundle[]): Promise<void> {
    await this.#updateMedia(found);
    if (this.#job.name !== undefined) return;
    const fault = await this.#recall(bundle);
    const other = this.#media.findOther(found);
    const ignored = other && `${describe(other)} is not the bundle that spec.bundle.digest allows: it is ignored`;
    this.#set({ obstacle: fault, other: ignored });
    const unverified = found.find((each) => this.#media.stateOf(each) === undefined);
    const task = chooseTask(this.#state, unverified, bundle, node);
    if (task.kind === 'verify') this.#verify(task.medium);
    if (task.kind === 'fetch') this.#fetch();
    if (task.kind === 'load') this.#load(task.source, bundle);
    if (task.kind === 'pin') this.#pin(bundle);
  }

  /** Returns the progress that the node reports. */
  async describe(bundle: UpgradeBundle, node: NodeFacts): Promise<NodeProgress> {
    const free = await this.#tools.images.measureFree().catch((error: unknown) => void faultOf(error));
    const { images, bytes } = this.#state;
    const phase = nodePhase(this.#state, this.#job, bundle, node);
    const messages = [...nodeMessages(this.#state, this.#job, phase), ...(this.#tools.messages?.() ?? [])];
    return {
      name: node.name,
      phase,
      imagesLoaded: Math.min(images.loaded, images.total),
      imagesTotal: images.total,
      bytes,
      ...(free !== undefined && { free }),
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

  /**
   * Opens the copy on the disk, and counts the images again in each phase. Returns the message of an error in reading
   * them.
   */
  async #recall(bundle: UpgradeBundle): Promise<string | undefined> {
    const { cache, images } = this.#tools;
    let fault: string | undefined;
    try {
      if (this.#state.source.kind !== 'open') {
        const copy = await cache.openCopy(this.digest, this.#context).catch((error: unknown) => {
          fault = faultOf(error);
        });
        if (copy) this.#offer(copy, undefined);
      }
      this.#media.facts ??= await cache.recall(this.digest, this.#context);
      const stage = [phaseOf(bundle), ...(bundle.spec.allowExtraImages ?? [])].join();
      if (!this.facts || this.#countedFor === stage) return fault;
      this.#set({ images: await images.count(leaveOutExtras(this.facts, bundle), bundle.spec.store) });
      this.#countedFor = stage;
      return fault;
    } catch (error) {
      return faultOf(error);
    }
  }

  #verify(medium: FoundBundle): void {
    this.#job.start('verify', `verifying ${describe(medium)}`, async (context) => {
      if (this.#state.source.kind === 'removed') this.#set({ source: { kind: 'none' } });
      try {
        const verified = await this.#tools.cache.verify(medium, this.digest, context);
        this.#media.set(medium, 'verified');
        this.#offer(verified, medium);
      } catch (error) {
        if (isPluginError(error, 'digest-mismatch') && !this.#media.isExpected(medium)) {
          this.#media.set(medium, 'another');
          this.#context.log('warn', messageOf(error));
          return;
        }
        if (isContentFault(error)) this.#media.set(medium, 'unreadable');
        if (isContentFault(error)) this.#set({ source: { kind: 'unreadable', error } });
        throw error;
      }
    });
  }

  #fetch(): void {
    const { peers, cache, images } = this.#tools;
    this.#job.start('fetch', 'fetching the bundle from another node', async (context) => {
      this.#set({ bytes: 0 });
      const onEvent = (event: TransferEvent): void => {
        if (event.kind === 'plan') this.#set({ bytes: event.present });
        if (event.kind === 'bytes') this.#set({ bytes: this.#state.bytes + event.bytes });
      };
      const path = await images.stayAboveFloor(cache.folder, context, (within) =>
        peers.fetch(this.digest, cache.folder, { ...within, onEvent }),
      );
      const copy = path === undefined ? undefined : await cache.openCopy(this.digest, context);
      if (copy) this.#offer(copy, undefined);
      else if (this.#state.source.kind === 'unreadable') throw this.#state.source.error;
      // The nodes that have the bundle are busy: an immediate retry would only delay them.
      return copy !== undefined;
    });
  }

  #load({ cached, medium }: BundleSource & { readonly kind: 'open' }, bundle: UpgradeBundle): void {
    const { images, cache } = this.#tools;
    const facts = leaveOutExtras(cached.facts, bundle);
    const { total } = this.#state.images;
    this.#job.start('load', `loading ${total} images`, async (context) => {
      this.#set({ images: { loaded: 0, total } });
      const onEvent = ({ kind }: TransferEvent): void => {
        if (kind === 'image') this.#set({ images: { total, loaded: this.#state.images.loaded + 1 } });
      };
      try {
        await images.load(cached.bundle, facts, bundle.spec.store, { ...context, onEvent });
      } catch (error) {
        if (!isContentFault(error) || (await cache.isWhole(cached, context))) throw error;
        // Another node may have the complete bundle.
        if (medium !== undefined) {
          await this.#closeBundle({ kind: 'unreadable', error });
          this.#media.set(medium, 'unreadable');
          throw error;
        }
        await this.#closeBundle({ kind: 'none' });
        await cache.drop(cached, context);
      }
      this.#set({ images: await images.count(facts, bundle.spec.store) });
    });
  }

  #pin(bundle: UpgradeBundle): void {
    const { facts } = this;
    if (!facts) return;
    this.#job.start('pin', 'pinning the images', async (context) => {
      await this.#tools.images.pin(leaveOutExtras(facts, bundle), context);
      this.#set({ isPinned: true });
    });
  }

  #offer(cached: CachedBundle, medium: FoundBundle | undefined): void {
    this.#media.facts = cached.facts;
    const bytes = cached.facts.metadata.blobs.reduce((sum, { size }) => sum + size, 0);
    this.#set({ source: { kind: 'open', cached, medium }, bytes });
    this.#countedFor = undefined;
    this.#tools.server.offer(cached.bundle, this.digest);
  }

  /** Compares the media with those of the last call, and closes the bundle if its medium was removed. */
  async #updateMedia(found: readonly FoundBundle[]): Promise<void> {
    if (this.#media.update(found)) {
      // A fault of the earlier media says nothing about the present ones.
      this.#job.clearFailure();
      if (this.#state.source.kind === 'unreadable') this.#set({ source: { kind: 'none' } });
    }
    const { source } = this.#state;
    if (source.kind !== 'open' || source.medium === undefined) return;
    const { medium } = source;
    if (found.some(({ path }) => path === medium.path)) return;
    const message = `${describe(medium)} was removed: insert it again, unless another node has the bundle`;
    this.#context.log('warn', message);
    await this.#job.stop();
    await this.#closeBundle({ kind: 'removed', message });
    this.#set({ bytes: 0 });
  }

  async #closeBundle(next: BundleSource): Promise<void> {
    const { source } = this.#state;
    this.#set({ source: next });
    this.#tools.server.withdraw();
    if (source.kind === 'open') await source.cached.bundle.close();
  }
}

/** Returns the name of a bundle on a medium for messages. */
export function describe({ version, arch, path, device }: FoundBundle): string {
  return `${version} ${arch} on ${path.startsWith('/dev/') ? path : device}`;
}

/** Error codes that a corrupt bundle or a corrupt medium may cause. */
const contentFaults: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'digest-mismatch',
  'size-mismatch',
  'incomplete',
  'invalid-bundle',
  'invalid-manifest',
  'partial',
  'not-readable',
]);

function isContentFault(error: unknown): error is PluginError {
  return isPluginError(error) && contentFaults.has(error.code);
}

/** Returns the message of an error. Throws `interrupted`, and unexpected errors. */
function faultOf(error: unknown): string {
  if (!isPluginError(error) || error.code === 'interrupted') throw error;
  return error.message;
}
