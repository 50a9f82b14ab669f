import type { Context } from '../../context.ts';
import { isPluginError } from '../../errors.ts';
import type { FoundBundle } from '../../node/media/medium.ts';
import { isDigest } from '../../oci/digest.ts';
import { digestIn } from '../../oci/reference.ts';
import type { AgentMedia } from './agentMedia.ts';
import { AgentNode, describe, type AgentTools } from './agentNode.ts';
import type { NodeFacts } from './nodeState.ts';
import { AgentReport } from './agentReport.ts';
import { UpgradeBundleReader } from './upgradeBundleReader.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { clusterVersionReference, listNeededReleases } from '../../kubernetes/clusterVersion.ts';
import { readNode } from '../../preflight/node.ts';
import { isControlPlane } from '../../preflight/nodeCheck.ts';
import { servesPins } from '../../preflight/pinnedImageSets.ts';
import { chooseProposal } from '../proposal.ts';
import { activeBundle, phaseOf, type NodeProgress, type UpgradeBundle } from '../upgradeBundle.ts';

/** What the loop of an agent works with. */
export interface AgentLoopOptions {
  /** The name of the node. */
  readonly node: string;
  readonly media: Pick<AgentMedia, 'look' | 'wait'>;
  readonly tools: AgentTools;
  /** Milliseconds between two looks, more or less. */
  readonly interval: number;
}

/** Looks at the media and at the cluster again and again, has the node do what follows, and reports. */
export class AgentLoop {
  readonly #cluster: Cluster;
  readonly #options: AgentLoopOptions;
  readonly #context: Context;
  readonly #glance: UpgradeBundleReader;
  readonly #report: AgentReport;
  #node: AgentNode | undefined;
  #facts: NodeFacts | undefined;
  #trouble = '';
  /** The updates after which pins were looked through. */
  #tidied = '';

  constructor(cluster: Cluster, options: AgentLoopOptions, context: Context) {
    this.#cluster = cluster;
    this.#options = options;
    this.#context = context;
    this.#glance = new UpgradeBundleReader(cluster);
    this.#report = new AgentReport(cluster, options.tools.server.origin);
  }

  /** Runs until the signal ends it. What fails is said once, and tried again. */
  async run(): Promise<void> {
    const { signal } = this.#context;
    const isOver = (): boolean => signal.aborted;
    while (!isOver()) {
      try {
        await this.#round();
        this.#trouble = '';
      } catch (error) {
        if (!isPluginError(error)) throw error;
        if (isOver()) return;
        if (error.message !== this.#trouble) this.#context.log('warn', error.message);
        this.#trouble = error.message;
      }
      const ended = this.#node?.ended;
      await this.#options.media.wait(this.#pause(), ended ? AbortSignal.any([signal, ended]) : signal);
    }
  }

  /** Ends what is under way. */
  async close(): Promise<void> {
    await this.#node?.close();
  }

  async #round(): Promise<void> {
    const bundles = await this.#glance.list();
    const active = activeBundle(bundles);
    const found = await this.#options.media.look(active?.spec.bundle.file);
    const digest = active?.spec.bundle.digest;
    const allowed = digest !== undefined && isDigest(digest) ? digest : undefined;
    if (this.#node && this.#node.digest !== allowed) {
      await this.#node.close();
      this.#node = undefined;
    }
    if (!active) {
      await this.#discard(bundles);
      // The controller makes an UpgradeBundle of it, which goes no further until its digest is allowed.
      await this.#report.propose(chooseProposal(found), await this.#offerOf(found));
      await this.#unpin(bundles);
      return;
    }
    const facts = (this.#facts ??= await this.#readNode());
    if (!allowed) {
      await this.#report.send(active, await this.#offerOf(found), undefined);
      return;
    }
    this.#node ??= new AgentNode(allowed, this.#options.tools, this.#context);
    await this.#node.advance(active, facts, found);
    await this.#report.send(active, await this.#node.describe(active, facts), this.#node.offered);
  }

  /** Copies stay as long as somebody may ask for them: until the update is completed, or its object is gone. */
  async #discard(bundles: readonly UpgradeBundle[]): Promise<void> {
    const wanted = bundles.filter(({ metadata, status }) => {
      return metadata.deletionTimestamp === undefined && status?.phase !== 'Completed';
    });
    const digests = wanted.map(({ spec }) => spec.bundle.digest ?? '').filter(isDigest);
    await this.#options.tools.cache.discard(new Set(digests), this.#context);
  }

  /** After an update, lets go of images that CRI-O keeps for releases that the cluster neither runs nor can go back to. */
  async #unpin(bundles: readonly UpgradeBundle[]): Promise<void> {
    const { images } = this.#options.tools;
    const completed = bundles.filter((bundle) => phaseOf(bundle) === 'Completed').map(({ metadata }) => metadata.uid);
    const updates = completed.sort().join();
    if (updates === '' || updates === this.#tidied) return;
    const pinned = await images.pinnedReleases();
    if (pinned.length > 0) {
      const version = await this.#cluster.read(clusterVersionReference);
      const needed = version && listNeededReleases(version);
      if (!needed) return;
      // By digests: the same release may be named by a mirror of it.
      const kept = new Set(needed.map(digestIn));
      const rest = pinned.filter((release) => !kept.has(digestIn(release)));
      if (rest.length > 0) this.#context.log('info', `the images of ${rest.join(', ')} are pinned no longer`);
      await images.unpin(rest, this.#context);
    }
    this.#tidied = updates;
  }

  /** What to say of bundles none of which is allowed. */
  async #offerOf(found: readonly FoundBundle[]): Promise<NodeProgress> {
    const words = found.map((each) => {
      const digest = each.digest === undefined ? '' : `, ${each.digest} as the file beside it says`;
      return `${describe(each)}${digest}`;
    });
    const offered = found.length > 0 ? [`${words.join('; ')}: waiting for its digest in spec.bundle.digest`] : [];
    const said = [...offered, ...(this.#options.tools.messages?.() ?? [])];
    return {
      ...{ name: this.#options.node, phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 },
      free: await this.#options.tools.images.measureFree(),
      ...(said.length > 0 && { message: said.join('; ') }),
    };
  }

  async #readNode(): Promise<NodeFacts> {
    const name = this.#options.node;
    const node = await this.#cluster.read({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
    const controlPlane = node !== undefined && isControlPlane(readNode(node));
    return { name, controlPlane, pinsByCluster: await servesPins(this.#cluster) };
  }

  /** Not all nodes at the same moment. */
  #pause(): number {
    return this.#options.interval * (0.75 + Math.random() / 2);
  }
}
