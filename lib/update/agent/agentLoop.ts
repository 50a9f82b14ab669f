import { basename, join } from 'node:path';
import type { VerifyTrust } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import { clusterVersionReference, listNeededReleases } from '#cluster/version';
import { sumSizes, isDigest, type Digest, digestIn } from '#content/oci';
import type { Context } from '#context';
import { ignoreFailure, isPluginError } from '#errors';
import { mirrorFolder } from '#node/machine';
import type { FoundBundle } from '#node/media';
import { readNode, isControlPlane, servesPins } from '#readiness/nodes';
import { chooseFacts } from '../record/extraImages.ts';
import { readMirrorContent, type MirrorContent } from '../record/mirrorContent.ts';
import {
  type MirrorState,
  type NodeReport,
  type Proposal,
  readMirrorState,
  chooseProposal,
} from '../record/nodeReport.ts';
import {
  activeBundle,
  lastCompleted,
  lastEnded,
  phaseOf,
  type NodeProgress,
  type UpgradeBundle,
} from '../record/upgradeBundle.ts';
import { reasonOfUpdate, type ScreenReason } from '../screen/screenCode.ts';
import { plainVersion, type ScreenFacts } from '../screen/screenText.ts';
import { AgentBackup } from './agentBackup.ts';
import { AgentImages } from './agentImages.ts';
import { AgentMedia, type AgentMediaOptions } from './agentMedia.ts';
import { type AgentState, serveMetrics } from './agentMetrics.ts';
import { AgentNode, type AgentTools } from './agentNode.ts';
import { AgentPeers, connectToPeers } from './agentPeers.ts';
import { AgentReport } from './agentReport.ts';
import { AgentScreen, type AgentScreenOptions } from './agentScreen.ts';
import { AgentServer, type AgentServerOptions } from './agentServer.ts';
import { BundleCache } from './bundleCache.ts';
import { DriveReports } from './driveReports.ts';
import { ImageServing } from './imageServing.ts';
import { describeFound } from './mediaStates.ts';
import type { NodeFacts } from './nodeState.ts';
import { UpgradeBundleReader } from './upgradeBundleReader.ts';

/** Options of an AgentLoop. */
interface AgentLoopOptions {
  readonly node: string;
  readonly media: Pick<AgentMedia, 'find' | 'wait' | 'unusable'>;
  /** Writes reports onto drives; undefined if the site does not allow them. */
  readonly reports?: Pick<DriveReports, 'follow' | 'stateOf'> | undefined;
  readonly tools: AgentTools;
  /** Reads the state of the mirror of the node; undefined if it has none. */
  readonly mirror?: () => Promise<MirrorState | undefined>;
  /** Says on the screen of the node what a person there must know; by default nothing does. */
  readonly screen?: Pick<AgentScreen, 'show' | 'noteFailure' | 'close'>;
  /** The average pause between two rounds, in milliseconds. */
  readonly interval: number;
}

/** Checks the media and the cluster repeatedly, starts the next task of the node, and reports. */
export class AgentLoop {
  readonly #cluster: Cluster;
  readonly #options: AgentLoopOptions;
  readonly #context: Context;
  readonly #reader: UpgradeBundleReader;
  readonly #report: AgentReport;
  #node: AgentNode | undefined;
  #facts: NodeFacts | undefined;
  /** The copies that were found last, and the releases for which they were. */
  #retained: { readonly state: string; readonly digests: readonly Digest[] } | undefined;
  /** Whether the cluster ran the release of a completed update when it was asked last. */
  #running: { readonly release: string; readonly at: number; readonly is: boolean } | undefined;
  /** The completed update whose images are not kept, and until when that counts. */
  #other: { readonly mark: string; readonly until: number } | undefined;
  #lastFailure = '';
  /** The uids of the completed updates after which old images were unpinned. */
  #unpinnedAfter = '';

  constructor(cluster: Cluster, options: AgentLoopOptions, context: Context) {
    this.#cluster = cluster;
    this.#options = options;
    this.#context = context;
    this.#reader = new UpgradeBundleReader(cluster);
    this.#report = new AgentReport(cluster, options.tools.server.origin);
  }

  /** The state for a monitoring system; undefined before the first round. */
  get state(): AgentState | undefined {
    return this.#report.state;
  }

  /** Runs until the signal is aborted. Logs a failure once, and retries. */
  async run(): Promise<void> {
    const { signal } = this.#context;
    const { media, screen, tools, reports } = this.#options;
    const { server } = tools;
    const isEnding = (): boolean => signal.aborted;
    while (!isEnding()) {
      try {
        const { facts, bundles, found } = await this.#round();
        const isOver = activeBundle(bundles) === undefined;
        const show = async (): Promise<void> => {
          const report = isOver ? reports?.stateOf(bundles, found) : undefined;
          await screen?.show({ ...facts, report }, media.unusable, this.#context);
        };
        // Before a report is written, so that the drive stays, and after it.
        await show();
        if ((await reports?.follow(bundles, found)) === true) await show();
        this.#lastFailure = '';
        server.setReady(true);
      } catch (error) {
        if (!isPluginError(error)) throw error;
        if (isEnding()) return;
        server.setReady(false);
        await screen?.noteFailure(this.#context);
        if (error.message !== this.#lastFailure) this.#context.log('warn', error.message);
        this.#lastFailure = error.message;
      }
      const ends = [signal, this.#node?.ended, this.#options.tools.backup?.ended];
      const ended = AbortSignal.any(ends.filter((each) => each !== undefined));
      await media.wait(this.#randomPause(), ended);
    }
  }

  /** Stops the running jobs. */
  async close(): Promise<void> {
    await this.#options.tools.backup?.close();
    await this.#node?.close();
    await this.#options.screen?.close(this.#context);
  }

  /** Takes the next step. Returns what a person in front of the node must know, and what it is about. */
  async #round(): Promise<{ facts: ScreenFacts; bundles: readonly UpgradeBundle[]; found: readonly FoundBundle[] }> {
    const bundles = await this.#reader.list();
    const found = await this.#options.media.find(activeBundle(bundles)?.spec.bundle.file);
    return { facts: await this.#advance(bundles, found), bundles, found };
  }

  async #advance(bundles: readonly UpgradeBundle[], media: readonly FoundBundle[]): Promise<ScreenFacts> {
    const active = activeBundle(bundles);
    const digest = active?.spec.bundle.digest;
    const allowed = digest !== undefined && isDigest(digest) ? digest : undefined;
    const guarded = active ? undefined : lastCompleted(bundles);
    const kept = guarded?.spec.bundle.digest;
    if (this.#node && this.#node.digest !== (allowed ?? kept)) {
      await this.#node.close();
      this.#node = undefined;
    }
    // The controller creates an UpgradeBundle from the proposal. It waits until its digest is allowed.
    const proposal = chooseProposal(media);
    const mirror = await this.#options.mirror?.();
    const facts = { ...(this.#facts ??= await this.#readNode()), retains: await this.#readRetains() };
    if (!active) {
      const isGuarded = guarded !== undefined && (await this.#guard(guarded, facts, { media, mirror, proposal }));
      if (!isGuarded || this.#node?.isComplete) {
        await this.#options.tools.images.release(this.#context);
        const isServing = isGuarded && this.#node?.servesImages === true;
        if (!isServing) await this.#options.tools.serving?.stop(this.#context);
        await this.#discard(bundles, guarded, isServing);
      }
      if (!isGuarded) await this.#report.propose(proposal, await this.#describeFound(media), mirror);
      await this.#unpin(bundles);
      return this.#describeEnd(bundles, isGuarded ? guarded : undefined, facts, media);
    }
    this.#retained = undefined;
    if (allowed && facts.retains === 'all') await this.#makeRoom(allowed, bundles);
    if (!allowed) {
      await this.#report.send(active, await this.#describeFound(media), { mirror, proposal });
      return describeProposal(proposal);
    }
    this.#node ??= new AgentNode(allowed, this.#options.tools, this.#context);
    await this.#node.advance(active, facts, media, listUnread(mirror));
    const backup = await this.#options.tools.backup?.advance(active, facts.name);
    const database = await this.#options.tools.backup?.measure();
    const progress = { ...(await this.#node.describe(active, facts)), ...(database !== undefined && { database }) };
    await this.#report.send(active, progress, { ...this.#node.report, backup, mirror, proposal });
    const own = this.#node.screen(active, facts, media);
    const { version = active.spec.bundle.version ?? own.version, nodesReady } = active.status ?? {};
    const reason = own.reason ?? chooseReason(active, own);
    return { ...own, version: plainVersion(version), phase: phaseOf(active), nodesReady, reason };
  }

  /** Describes the last update that has ended, or a bundle that is found since. `kept`: its images are kept. */
  #describeEnd(
    bundles: readonly UpgradeBundle[],
    kept: UpgradeBundle | undefined,
    facts: NodeFacts,
    media: readonly FoundBundle[],
  ): ScreenFacts {
    const last = lastEnded(bundles);
    const completed = lastCompleted(bundles)?.status?.version;
    const proposal = chooseProposal(media.filter(({ version }) => version !== completed));
    if (proposal || !last) return describeProposal(proposal);
    if (phaseOf(last) === 'Failed') return { drive: 'none', reason: reasonOfUpdate(last.status?.reason) };
    if (!kept || !this.#node) return { drive: 'none' };
    const version = plainVersion(kept.status?.version);
    const lost = reasonOfUpdate(kept.status?.reason);
    const own = this.#node.screen(kept, facts, media);
    return { ...own, version, phase: 'Completed', reason: own.reason ?? (lost === 'imagesLost' ? lost : undefined) };
  }

  /**
   * Counts the images of a completed update, loads again what the node has lost, and reports both. Returns false if the
   * node has no facts about them, or the cluster runs another release since.
   */
  async #guard(
    bundle: UpgradeBundle,
    facts: NodeFacts,
    { media, mirror, proposal }: Pick<NodeReport, 'mirror' | 'proposal'> & { readonly media: readonly FoundBundle[] },
  ): Promise<boolean> {
    const { digest } = bundle.spec.bundle;
    const mark = bundle.metadata.uid ?? '';
    // Reading the facts verifies their signatures.
    const isOther = this.#other?.mark === mark && performance.now() < this.#other.until;
    if (digest === undefined || !isDigest(digest) || isOther) return false;
    const { cache } = this.#options.tools;
    const known = this.#node?.facts ?? (await cache.recall(digest, this.#context).catch(ignoreFailure));
    const release = known && chooseFacts(known, bundle)?.metadata.release;
    if (release === undefined || !(await this.#runs(release))) {
      await this.#node?.close();
      this.#node = undefined;
      this.#other = { mark, until: performance.now() + askPause };
      return false;
    }
    this.#node ??= new AgentNode(digest, this.#options.tools, this.#context);
    await this.#node.advance(bundle, facts, media, listUnread(mirror));
    const kept = { ...this.#node.report, keeps: mark };
    await this.#report.propose(proposal, await this.#node.describe(bundle, facts), mirror, kept);
    return true;
  }

  /** Returns whether the cluster runs a release. Asks it once in five minutes. */
  async #runs(release: string): Promise<boolean> {
    const now = performance.now();
    if (this.#running?.release !== release || now - this.#running.at > askPause) {
      const [running] = (await this.#listNeeded()) ?? [];
      this.#running = { release, at: now, is: running === digestIn(release) };
    }
    return this.#running.is;
  }

  /**
   * Removes copies of bundles whose update is completed or whose UpgradeBundle is deleted. The facts about `guarded`
   * stay: they name its images. Its copy stays if the node serves it to its own runtime.
   */
  async #discard(
    bundles: readonly UpgradeBundle[],
    guarded: UpgradeBundle | undefined,
    isServing: boolean,
  ): Promise<void> {
    const { cache } = this.#options.tools;
    const kept = await this.#readRetains();
    const retained = kept ? await this.#findRetained(kept) : [];
    if (!retained) return;
    const own = [guarded?.spec.bundle.digest ?? ''].filter(isDigest);
    const wanted = [...listWanted(bundles), ...(isServing ? own : [])];
    const copies = kept === 'metadata' ? wanted : [...wanted, ...retained];
    await cache.discard(new Set(copies), this.#context, [...retained, ...own]);
  }

  /** Reads what the mirror of this node keeps. The controller of the node writes its certificate. */
  #readRetains(): Promise<MirrorContent | undefined> {
    return readMirrorContent(join(this.#options.tools.cache.folder, basename(mirrorFolder)));
  }

  /**
   * Returns the copies of the running, the requested and the previous release; undefined while an update or a rollback
   * runs. Without room for all copies, that of the running release and what fits beside it; of facts, all.
   */
  async #findRetained(kept: MirrorContent): Promise<readonly Digest[] | undefined> {
    const releases = await this.#listNeeded();
    if (!releases) return undefined;
    const { cache } = this.#options.tools;
    const { bytes, limit } = await cache.measureRoom();
    const isFull = kept === 'all' && bytes < 0;
    const state = `${releases.join()} ${kept} ${isFull}`;
    if (this.#retained?.state !== state) {
      if (isFull) this.#context.log('warn', `${limit} is exceeded: the bundle of the running release is kept first`);
      this.#retained = {
        state,
        digests: (await cache.chooseCopies(releases, kept === 'all' ? 0 : -Infinity, this.#context)).digests,
      };
    }
    return this.#retained.digests;
  }

  /** Removes copies that only a rollback needs, if the allowed bundle fits in their place. */
  async #makeRoom(allowed: Digest, bundles: readonly UpgradeBundle[]): Promise<void> {
    const { cache } = this.#options.tools;
    const metadata = this.#node?.facts?.metadata;
    if (!metadata || (await cache.has(allowed))) return;
    const size = metadata.size + sumSizes(metadata.base?.blobs ?? []);
    if ((await cache.measureRoom()).bytes >= size) return;
    const releases = await this.#listNeeded();
    const kept = releases && (await cache.chooseCopies(releases, size, this.#context));
    if (kept && kept.left >= 0) await cache.discard(new Set([...listWanted(bundles), ...kept.digests]), this.#context);
  }

  /** Lists the digests of the releases that the cluster needs, the running one first; undefined while it changes. */
  async #listNeeded(): Promise<readonly string[] | undefined> {
    const version = await this.#cluster.read(clusterVersionReference);
    return version && listNeededReleases(version)?.map((each) => digestIn(each));
  }

  /** After an update, unpins images of releases that the cluster neither runs nor can roll back to. */
  async #unpin(bundles: readonly UpgradeBundle[]): Promise<void> {
    const { images } = this.#options.tools;
    const completed = bundles.filter((bundle) => phaseOf(bundle) === 'Completed').map(({ metadata }) => metadata.uid);
    const updates = completed.sort().join();
    if (updates === '' || updates === this.#unpinnedAfter) return;
    const pinned = await images.pinnedReleases();
    if (pinned.length > 0) {
      const needed = await this.#listNeeded();
      if (!needed) return;
      // Compare digests, because a mirror may give the same release another name.
      const rest = pinned.filter((release) => !needed.includes(digestIn(release)));
      if (rest.length > 0) this.#context.log('info', `the images of ${rest.join(', ')} are no longer pinned`);
      await images.unpin(rest, this.#context);
    }
    this.#unpinnedAfter = updates;
  }

  /** Returns the report about bundles that are not allowed. */
  async #describeFound(media: readonly FoundBundle[]): Promise<NodeProgress> {
    const words = media.map((each) => {
      const digest = each.digest === undefined ? '' : `, ${each.digest} as its .sha256 file says`;
      return `${describeFound(each)}${digest}`;
    });
    const offered = media.length > 0 ? [`${words.join('; ')}: waiting for its digest in spec.bundle.digest`] : [];
    const messages = [...offered, ...(this.#options.tools.messages?.() ?? [])];
    return {
      name: this.#options.node,
      phase: 'Waiting',
      imagesLoaded: 0,
      imagesTotal: 0,
      bytes: 0,
      ...(await this.#options.tools.images.measureDisks()),
      ...(messages.length > 0 && { message: messages.join('; ') }),
    };
  }

  async #readNode(): Promise<NodeFacts> {
    const name = this.#options.node;
    const node = await this.#cluster.read({ apiVersion: 'v1', kind: 'Node', metadata: { name } });
    const read = node && readNode(node);
    const role = { controlPlane: read !== undefined && isControlPlane(read), runtime: read?.runtime ?? '' };
    return { name, ...role, pinsByCluster: await servesPins(this.#cluster) };
  }

  /** Returns a random pause, so that the nodes do not all check at the same moment. */
  #randomPause(): number {
    return this.#options.interval * (0.75 + Math.random() / 2);
  }
}

/** Returns what the cluster waits for, unless that is what the node does, or has. */
function chooseReason({ status }: UpgradeBundle, { work, drive }: ScreenFacts): ScreenReason | undefined {
  const reason = reasonOfUpdate(status?.reason);
  return work || (reason === 'driveAwaited' && drive !== 'none') ? undefined : reason;
}

/** Describes a bundle for which an administrator must allow its digest. */
function describeProposal(proposal: Proposal | undefined): ScreenFacts {
  if (!proposal) return { drive: 'none' };
  return { phase: 'Detected', version: plainVersion(proposal.version), drive: 'needed', reason: 'notAllowed' };
}

/** The pause between two questions whether the cluster still runs a release, in milliseconds. */
const askPause = 5 * 60_000;

/** Lists the manifests that the mirror of the node cannot read. */
function listUnread(mirror: MirrorState | undefined): string[] {
  return (mirror?.lacking ?? []).filter(isDigest);
}

/** Lists the digests of bundles whose update is not completed, and whose UpgradeBundle is not being deleted. */
function listWanted(bundles: readonly UpgradeBundle[]): Digest[] {
  const wantedBundles = bundles.filter(({ metadata, status }) => {
    return metadata.deletionTimestamp === undefined && status?.phase !== 'Completed';
  });
  return wantedBundles.map(({ spec }) => spec.bundle.digest ?? '').filter(isDigest);
}

/** Settings of a node agent. */
interface AgentSettings {
  /** The name of the agent’s node. */
  readonly node: string;
  readonly media: AgentMediaOptions;
  readonly server: AgentServerOptions;
  /** The port of the metrics, at the host of `server`; undefined serves none. */
  readonly metricsPort?: number;
  /** The folder for copies of bundles and their facts, as a path in the file system of this process. */
  readonly folder: string;
  readonly trust: VerifyTrust;
  /** Whether reports of the cluster are written onto drives with a verified bundle. */
  readonly reports: boolean;
  /** Bytes to leave free on the file system of the images; by default 16 GiB, or 15 % of it if that is more. */
  readonly floor: number | undefined;
  readonly screen: AgentScreenOptions;
  /** The average pause between two checks of the media and the cluster, in milliseconds. */
  readonly interval: number;
}

/**
 * Runs the agent of one node until the signal is aborted. The agent finds bundles, verifies the allowed one, offers it
 * to other nodes, loads its images and reports. It never runs content of a bundle. It may be killed at any point,
 * because its state is in the cluster and on the disk. Throws `busy` if another agent runs, and the errors of
 * listening; retries later failures.
 */
export async function runAgent(cluster: Cluster, options: AgentSettings, context: Context): Promise<void> {
  const { node, media: where, server: listen, metricsPort, folder, trust, floor, screen: shown, interval } = options;
  const connections = connectToPeers(listen.token);
  const closing: (() => Promise<void>)[] = [];
  try {
    const server = await AgentServer.open(listen, context);
    closing.push(() => server.close());
    const media = await AgentMedia.open(where, context);
    closing.push(() => media.close());
    const cache = new BundleCache(folder, trust);
    const reports = options.reports ? new DriveReports(cluster, media, cache, interval, context) : undefined;
    const tools = {
      cache,
      images: new AgentImages(where.host, floor),
      backup: new AgentBackup(cluster, where.host, context),
      peers: new AgentPeers(cluster, node, connections),
      server,
      serving: new ImageServing(where.host, listen.executable?.digest ?? ''),
      messages: () => [...media.problems.slice(0, 3), ...(reports?.problems ?? [])],
    };
    const mirror = () => readMirrorState(where.host);
    const screen = new AgentScreen(where.host, shown);
    const loop = new AgentLoop(cluster, { node, media, reports, tools, mirror, screen, interval }, context);
    closing.push(() => loop.close());
    if (metricsPort !== undefined) {
      const metrics = await serveMetrics(() => loop.state, { ...listen, port: metricsPort }, context);
      closing.push(() => metrics.close());
    }
    await loop.run();
  } finally {
    for (const close of closing.toReversed()) await close();
    connections.close();
  }
}
