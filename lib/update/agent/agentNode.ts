import type { Context } from '../../context.ts';
import { isPluginError, messageOf, type ErrorCode, type PluginError } from '../../errors.ts';
import type { FoundBundle } from '../../node/media/medium.ts';
import type { Digest } from '../../oci/digest.ts';
import { AgentJob } from './agentJob.ts';
import type { BundleCache, CachedBundle } from './bundleCache.ts';
import type { AgentImages } from './agentImages.ts';
import type { AgentPeers } from './agentPeers.ts';
import type { AgentServer } from './agentServer.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import { leaveOutExtras } from '../extraImages.ts';
import { MediaStates } from './mediaStates.ts';
import {
  isAtLeast,
  mayFetch,
  mayLoad,
  phaseOf,
  type NodePhase,
  type NodeProgress,
  type UpgradeBundle,
} from '../upgradeBundle.ts';

/** What a node works with. */
export interface AgentTools {
  readonly holdings: BundleCache;
  readonly images: Pick<AgentImages, keyof AgentImages>;
  readonly peers: AgentPeers;
  readonly server: AgentServer;
  /** What there is to say of the node besides: of media that cannot be used, of a rollout that it leads and that cannot go on. */
  remarks?(): readonly string[];
}

/** Who a node is, and whether the cluster pins images itself. */
export interface NodeFacts {
  readonly name: string;
  readonly controlPlane: boolean;
  /** The cluster has PinnedImageSets: there is nothing to pin on the node. */
  readonly pinsByCluster: boolean;
}

/**
 * What one node does for one bundle that is allowed: verifies it where it is on a medium, offers it to the others, brings it from
 * one of them, loads and pins its images. Each call of `advance` begins the next thing that there is to do; what there is to do follows
 * from the disk, so that it can be left at any point.
 */
export class AgentNode {
  readonly digest: Digest;
  readonly #tools: AgentTools;
  readonly #context: Context;
  readonly #job: AgentJob;
  readonly #verdicts: MediaStates;
  #holding: MediumHolding | undefined;
  #count = { loaded: 0, total: 0 };
  /** The phase, and the extra images that were allowed. */
  #countedIn: string | undefined;
  #bytes = 0;
  #isPinned = false;
  /** What keeps what is on the disk from being used. */
  #fault: string | undefined;
  /** Why a medium that has the bundle could not be read to its end, until the bundle comes from elsewhere or the media change. */
  #spoilt: PluginError | undefined;
  /** The medium that was pulled out while it was needed. */
  #lost: string | undefined;
  #note: string | undefined;

  constructor(digest: Digest, tools: AgentTools, context: Context) {
    this.digest = digest;
    this.#tools = tools;
    this.#context = context;
    this.#job = new AgentJob(context);
    this.#verdicts = new MediaStates(digest);
  }

  /** What is known of the bundle by now. */
  get facts(): BundleFacts | undefined {
    return this.#verdicts.facts;
  }

  /** The bundle that it offers to other nodes at present. */
  get offered(): Digest | undefined {
    return this.#holding && this.digest;
  }

  /** Aborted when what the node does now has ended. */
  get ended(): AbortSignal {
    return this.#job.ended;
  }

  /** Begins the next thing to do, if it is time for it. What cannot be read on the disk is said, and tried again. Throws `interrupted`. */
  async advance(bundle: UpgradeBundle, node: NodeFacts, found: readonly FoundBundle[]): Promise<void> {
    await this.#letGo(found);
    if (this.#job.name !== undefined) return;
    this.#fault = undefined;
    await this.#recall(bundle).catch((error: unknown) => {
      this.#fault = faultOf(error);
    });
    const unknown = found.find((each) => this.#verdicts.judge(each) === undefined);
    const other = this.#verdicts.findStray(found);
    this.#note = other ? `${describe(other)} is another bundle than spec.bundle.digest allows: remove it` : this.#fault;
    if (!this.#holding && unknown) this.#verify(unknown);
    else if (this.#note !== undefined && !this.#isLoaded) return;
    else if (this.#isLoaded) this.#pin(bundle, node);
    else if (this.#holding && mayLoad(bundle, node)) this.#load(this.#holding, bundle);
    else if (!this.#holding && mayFetch(bundle, node)) this.#fetch();
  }

  /** What the node has to say of itself. */
  async describe(bundle: UpgradeBundle, node: NodeFacts): Promise<NodeProgress> {
    const phase = this.#phaseOf(bundle, node);
    const own = phase === 'Failed' ? (this.#note ?? this.#job.failure) : (this.#job.name ?? this.#note);
    const lost = this.#isLoaded ? undefined : this.#lost;
    const said = [own, lost, ...(this.#tools.remarks?.() ?? [])].filter((words) => words !== undefined);
    const { loaded, total } = this.#count;
    const free = await this.#tools.images.measureFree().catch((error: unknown) => void faultOf(error));
    return {
      ...{ name: node.name, phase, imagesLoaded: Math.min(loaded, total), imagesTotal: total, bytes: this.#bytes },
      ...(free !== undefined && { free }),
      ...(said.length > 0 && { message: said.join('; ') }),
    };
  }

  /** Ends what is under way, and offers nothing any more. */
  async close(): Promise<void> {
    await this.#job.stop();
    await this.#release();
  }

  get #isLoaded(): boolean {
    return this.#count.total > 0 && this.#count.loaded === this.#count.total;
  }

  #phaseOf(bundle: UpgradeBundle, { pinsByCluster }: NodeFacts): NodePhase {
    if (this.#isLoaded) {
      const isPinned = pinsByCluster ? isAtLeast(bundle, 'Pinned') : this.#isPinned;
      return this.#job.failure !== undefined ? 'Failed' : isPinned ? 'Pinned' : 'Loaded';
    }
    if (this.#job.failure !== undefined || this.#note !== undefined) return 'Failed';
    return this.#job.kind === 'fetch' || this.#job.kind === 'load' ? 'Loading' : 'Waiting';
  }

  /** Finds what is on the disk from before, and counts again whenever the rollout has come further. */
  async #recall(bundle: UpgradeBundle): Promise<void> {
    const { holdings, images } = this.#tools;
    if (!this.#holding) {
      const copy = await holdings.openCopy(this.digest, this.#context).catch((error: unknown) => {
        this.#fault = faultOf(error);
      });
      if (copy) this.#hold(copy, undefined);
    }
    this.#verdicts.facts ??= await holdings.recall(this.digest, this.#context);
    const stage = [phaseOf(bundle), ...(bundle.spec.allowExtraImages ?? [])].join();
    if (!this.facts || this.#countedIn === stage) return;
    this.#count = await images.count(leaveOutExtras(this.facts, bundle), bundle.spec.store);
    this.#countedIn = stage;
  }

  #verify(found: FoundBundle): void {
    this.#job.start('verify', `verifying ${describe(found)}`, async (context) => {
      this.#lost = undefined;
      try {
        const holding = await this.#tools.holdings.verify(found, this.digest, context);
        this.#verdicts.set(found, 'verified');
        this.#hold(holding, found);
      } catch (error) {
        if (!isPluginError(error, 'digest-mismatch') || this.#verdicts.isMeant(found)) throw this.#spoil(found, error);
        this.#verdicts.set(found, 'another');
        this.#context.log('warn', messageOf(error));
      }
    });
  }

  /** Notes that a medium cannot be read, and gives the reason; other errors as they are. */
  #spoil(medium: FoundBundle, error: unknown): unknown {
    if (!isContentFault(error)) return error;
    this.#verdicts.set(medium, 'unreadable');
    this.#spoilt = error;
    return error;
  }

  #fetch(): void {
    const { peers, holdings, images } = this.#tools;
    this.#job.start('fetch', 'fetching the bundle from another node', async (context) => {
      this.#bytes = 0;
      const path = await images.stayAboveFloor(holdings.folder, context, (within) =>
        peers.fetch(this.digest, holdings.folder, this.#counting(within)),
      );
      const copy = path === undefined ? undefined : await holdings.openCopy(this.digest, context);
      if (copy) this.#hold(copy, undefined);
      if (!copy && this.#spoilt) throw this.#spoilt;
      // Whoever has it has enough to do: to ask at once again would only keep them, and the cluster, from it.
      return copy !== undefined;
    });
  }

  #load(holding: MediumHolding, bundle: UpgradeBundle): void {
    const { images, holdings } = this.#tools;
    const facts = leaveOutExtras(holding.facts, bundle);
    this.#job.start('load', `loading ${this.#count.total} images`, async (context) => {
      this.#count = { ...this.#count, loaded: 0 };
      try {
        await images.load(holding.bundle, facts, bundle.spec.store, this.#counting(context));
      } catch (error) {
        if (!isContentFault(error) || (await holdings.isWhole(holding, context))) throw error;
        // Another node may have it whole.
        await this.#release();
        if (holding.medium !== undefined) throw this.#spoil(holding.medium, error);
        await holdings.drop(holding, context);
      }
      this.#count = await images.count(facts, bundle.spec.store);
    });
  }

  #pin(bundle: UpgradeBundle, { pinsByCluster }: NodeFacts): void {
    const { facts } = this;
    if (pinsByCluster || this.#isPinned || !facts || !isAtLeast(bundle, 'Loaded')) return;
    this.#job.start('pin', 'pinning the images', async (context) => {
      await this.#tools.images.pin(leaveOutExtras(facts, bundle), context);
      this.#isPinned = true;
    });
  }

  /** A context that keeps count of what arrives and what is loaded. */
  #counting(context: Context): Context {
    return {
      ...context,
      onEvent: (event) => {
        if (event.kind === 'plan' && event.images === 0) this.#bytes = event.present;
        if (event.kind === 'bytes' && this.#count.total === 0) this.#bytes += event.bytes;
        if (event.kind === 'image') this.#count = { ...this.#count, loaded: this.#count.loaded + 1 };
      },
    };
  }

  #hold(holding: CachedBundle, medium: FoundBundle | undefined): void {
    this.#holding = { ...holding, medium };
    this.#spoilt = undefined;
    this.#lost = undefined;
    this.#verdicts.facts = holding.facts;
    this.#bytes = holding.facts.metadata.blobs.reduce((sum, { size }) => sum + size, 0);
    this.#countedIn = undefined;
    this.#tools.server.offer(holding.bundle, this.digest);
  }

  /** Notices that the medium with the bundle is gone, or any other about which something was known. */
  async #letGo(found: readonly FoundBundle[]): Promise<void> {
    // What was wrong with the media before need not be wrong with these.
    if (this.#verdicts.update(found)) {
      this.#job.forgive();
      this.#spoilt = undefined;
    }
    const medium = this.#holding?.medium;
    if (medium === undefined || found.some(({ path }) => path === medium.path)) return;
    this.#lost = `${describe(medium)} is gone: insert it again, unless another node has the bundle`;
    this.#context.log('warn', this.#lost);
    await this.#job.stop();
    await this.#release();
    this.#bytes = 0;
  }

  async #release(): Promise<void> {
    const holding = this.#holding;
    this.#holding = undefined;
    this.#tools.server.withdraw();
    await holding?.bundle.close();
  }
}

/** What to call a bundle on a medium. */
export function describe({ version, arch, path, device }: FoundBundle): string {
  return `${version} ${arch} on ${path.startsWith('/dev/') ? path : device}`;
}

/** A bundle at hand, and the medium that it is on; undefined for a copy on the node’s own disk. */
type MediumHolding = CachedBundle & { readonly medium: FoundBundle | undefined };

/** What a damaged bundle, or one on a damaged medium, may show as. */
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

/** What to say of something that failed. Throws `interrupted`, and what nobody foresaw. */
function faultOf(error: unknown): string {
  if (!isPluginError(error) || error.code === 'interrupted') throw error;
  return error.message;
}
