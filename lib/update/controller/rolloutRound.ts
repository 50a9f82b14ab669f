import { isDeepStrictEqual } from 'node:util';
import { checkInterrupted, type Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { digestOf, hexOf, isDigest, type Digest } from '../../oci/digest.ts';
import type { BundleFacts } from '../bundleFacts.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { StoredObject } from '../../kubernetes/fields.ts';
import type { ClusterView } from '../../kubernetes/clusterView.ts';
import { leaveOutExtras } from '../extraImages.ts';
import { fieldsOf, listOf } from '../../kubernetes/fields.ts';
import { mergeConditions, type BundleCondition } from '../conditions.ts';
import { AgentImage } from './agentImage.ts';
import { readLoadState } from './loadState.ts';
import { findMissingImages, type MissingImage } from './missingImages.ts';
import { readRenewal, reportKind } from '../nodeReport.ts';
import { NodeReports } from './nodeReports.ts';
import { pauseNodeChanges, restoreNodeChanges } from './pauses.ts';
import { followProposals } from '../proposal.ts';
import type { Site } from './readiness.ts';
import { takeStep, type Step } from './rolloutStep.ts';
import { type RolloutOptions, type Observation } from './observation.ts';
import { garbageCollect } from './garbageCollection.ts';
import {
  activeBundle,
  isActive,
  needsFacts,
  phaseOf,
  summarizeNodes,
  upgradeBundleKind,
  type NodeProgress,
  type UpgradeBundle,
  type UpgradeBundleStatus,
} from '../upgradeBundle.ts';

const config = 'config.openshift.io/v1';
const machines = 'machineconfiguration.openshift.io/v1';

/** The kinds that the controller watches. */
export const watchedKinds = [
  upgradeBundleKind,
  { apiVersion: config, kind: 'ClusterVersion' },
  { apiVersion: config, kind: 'ClusterOperator' },
  { apiVersion: machines, kind: 'MachineConfigPool' },
  { apiVersion: machines, kind: 'MachineConfigNode' },
  { apiVersion: machines, kind: 'PinnedImageSet' },
  { apiVersion: 'v1', kind: 'Node' },
  reportKind,
] as const;

/**
 * Returns the shortest pause between two writes of the status for reports only, in milliseconds. The status lists all
 * nodes: a cluster that is ten times as large writes it a tenth as often.
 */
function statusPause(nodes: number): number {
  return nodes * 40;
}

/** The characters for messages of all nodes in the status. The API server refuses objects of over 1.5 MB. */
const roomForWords = 200_000;

/** The rounds of the leading controller: each observes the cluster, takes the next step and writes the status. */
export class Rollout {
  readonly #cluster: Cluster;
  readonly #view: ClusterView;
  readonly #options: RolloutOptions;
  readonly #context: Context;
  readonly #facts = new Map<Digest, BundleFacts>();
  #trouble: string | undefined;
  /** The active UpgradeBundle, as it was last read. */
  #bundle: UpgradeBundle | undefined;
  readonly #reports = new NodeReports();
  readonly #agentImage: AgentImage;
  #tidied: unknown;
  #noted = -Infinity;
  #paused = '';
  #missing: { at: number; found: readonly MissingImage[] } = { at: -Infinity, found: [] };

  constructor(cluster: Cluster, view: ClusterView, options: RolloutOptions, context: Context) {
    this.#cluster = cluster;
    this.#view = view;
    this.#options = options;
    this.#context = context;
    this.#agentImage = new AgentImage(cluster, options.pace ?? 15_000, context);
  }

  /** Takes the next step, if there is one. Returns whether a phase has changed. Throws the errors of the cluster. */
  async reconcile(): Promise<boolean> {
    this.#trouble = undefined;
    const seen = this.#view.list('UpgradeBundle') as readonly UpgradeBundle[];
    await this.#agentImage.follow();
    const active = activeBundle(seen);
    // The watched object may be older than the last write.
    const fresh = active && ((await this.#cluster.read(active)) as UpgradeBundle | undefined);
    const others = seen.filter((each) => each !== active);
    await this.#tidy(fresh ? [fresh, ...others] : others);
    const leases = await this.#listReports();
    const bundle = fresh && isActive(fresh) ? fresh : undefined;
    this.#bundle = bundle;
    await followProposals(this.#cluster, leases, seen, this.#view.list('ClusterVersion')[0], this.#context);
    const clusterVersion = bundle && (await this.#readVersion(bundle));
    if (!clusterVersion) return false;
    const site = this.#readSite(clusterVersion);
    const { digest } = bundle.spec.bundle;
    const reports = this.#reports.read(leases, bundle.metadata.uid ?? '');
    const isAllowed = digest !== undefined && isDigest(digest);
    // The controller learns about the bundle from its own node only, so this node fetches it first.
    const lacksFacts = isAllowed && needsFacts(bundle) && !(await this.#read(digest));
    const load = readLoadState(bundle, site.nodes, reports);
    const look: Observation = {
      ...{ cluster: this.#cluster, bundle, site },
      load: lacksFacts ? { ...load, turn: this.#options.identity } : load,
      rivals: others
        .filter((each) => isActive(each) && each.spec.bundle.digest !== undefined)
        .map(({ metadata }) => metadata.name),
      facts: async () => {
        const facts = isAllowed ? await this.#read(digest) : undefined;
        return facts && leaveOutExtras(facts, bundle);
      },
      pause: () => this.#pause(bundle, site.nodes.length),
      restore: () => this.#pause(bundle, undefined),
      missing: (images) => this.#findMissing(bundle, images),
    };
    return await this.#note(look, await takeStep(look));
  }

  /** Returns the reports of agents. Deletes reports of nodes that the cluster no longer has. */
  async #listReports(): Promise<readonly StoredObject[]> {
    const nodes = new Set(this.#view.list('Node').map(({ metadata }) => metadata.name));
    const leases = this.#view.list(reportKind.kind);
    const isOfNode = (lease: StoredObject): boolean => nodes.has(readRenewal(lease).node);
    for (const { apiVersion, kind, metadata } of leases.filter((lease) => !isOfNode(lease))) {
      const { name, namespace } = metadata;
      await this.#cluster.delete({ apiVersion, kind, metadata: { name, namespace } });
    }
    return leases.filter(isOfNode);
  }

  /** Reads ClusterVersion; at the beginning of an update from the cluster, because the watched copy may be old. */
  async #readVersion(bundle: UpgradeBundle): Promise<StoredObject | undefined> {
    const [known] = this.#view.list('ClusterVersion');
    return known && ['Pinned', 'Held', 'Upgrading'].includes(phaseOf(bundle)) ? await this.#cluster.read(known) : known;
  }

  #readSite(clusterVersion: StoredObject): Site {
    const list = (kind: string): readonly StoredObject[] => this.#view.list(kind);
    return {
      ...{ clusterVersion, operators: list('ClusterOperator'), pools: list('MachineConfigPool') },
      ...{ poolNodes: list('MachineConfigNode'), pinnedSets: list('PinnedImageSet'), nodes: list('Node') },
    };
  }

  async #read(digest: Digest): Promise<BundleFacts | undefined> {
    const known = this.#facts.get(digest);
    if (known) return known;
    try {
      const facts = await this.#options.readBundle(digest);
      if (facts) this.#facts.set(digest, facts);
      return facts;
    } catch (error) {
      checkInterrupted(this.#context.signal);
      this.#trouble = `the bundle cannot be verified: ${messageOf(error)}`;
      this.#context.log('warn', this.#trouble);
      return undefined;
    }
  }

  /** Pauses or restores once in each phase. Objects that appear meanwhile are paused in the next phase. */
  async #pause({ metadata: { name, uid }, status }: UpgradeBundle, nodes: number | undefined): Promise<void> {
    const during = `${uid ?? ''} ${status?.phase ?? ''} ${nodes === undefined ? 'restored' : 'paused'}`;
    if (this.#paused === during) return;
    if (nodes === undefined) await restoreNodeChanges(this.#cluster);
    else await pauseNodeChanges(this.#cluster, name, nodes);
    this.#paused = during;
  }

  async #findMissing({ metadata }: UpgradeBundle, images: readonly string[]): Promise<readonly MissingImage[]> {
    const { pace = 15_000 } = this.#options;
    if (performance.now() < this.#missing.at + pace * 2) return this.#missing.found;
    const since = new Date(metadata.creationTimestamp ?? 0);
    this.#missing = { at: performance.now(), found: await findMissingImages(this.#cluster, images, since) };
    return this.#missing.found;
  }

  async #tidy(bundles: readonly UpgradeBundle[]): Promise<void> {
    const [version] = this.#view.list('ClusterVersion');
    const { history } = fieldsOf(version?.['status']);
    const of = [
      bundles.map(({ metadata, status }) => [metadata.uid, metadata.deletionTimestamp, status?.phase]),
      history,
      fieldsOf(version?.['spec'])['desiredUpdate'],
    ];
    if (isDeepStrictEqual(of, this.#tidied)) return;
    await garbageCollect(this.#cluster, bundles);
    this.#tidied = of;
  }

  /** Writes to the status why the last round failed, if the cluster accepts it. */
  async tellTrouble(words: string): Promise<void> {
    const { metadata, status = {} } = this.#bundle ?? {};
    if (!metadata) return;
    const conditions = mergeConditions(status.conditions, describeStall(status, words), metadata.generation ?? 0);
    if (isDeepStrictEqual(conditions, status.conditions)) return;
    const reference = { ...upgradeBundleKind, metadata: { name: metadata.name } };
    const patch = { metadata: { resourceVersion: metadata.resourceVersion }, status: { conditions } };
    await this.#cluster
      .patch(reference, patch, { subresource: 'status', manager: 'controller' })
      .catch((error: unknown) => {
        if (!isPluginError(error)) throw error;
        this.#context.log('debug', messageOf(error));
      });
  }

  /** Writes changes to the status. The event goes first, because a written phase is not written again. */
  async #note({ bundle, load }: Observation, step: Step): Promise<boolean> {
    const { metadata, status = {} } = bundle;
    const generation = metadata.generation ?? 0;
    const { version = status.version, release = status.release, base = status.base, phase } = step;
    const stalled = describeStall(status, this.#trouble);
    const own = {
      phase,
      ...(version !== undefined && { version }),
      ...(release !== undefined && { release }),
      ...(base !== undefined && { base }),
      ...summarizeNodes(load.nodes),
      ...(step.progress !== undefined && { progress: step.progress }),
      ...(load.turn !== undefined && { turn: load.turn }),
      conditions: mergeConditions(status.conditions, [...step.conditions, ...stalled], generation),
      observedGeneration: generation,
      nodes: shorten(step.nodes ?? load.known),
    };
    const before = { ...status, conditions: mergeConditions(status.conditions, [], generation) };
    if (isDeepStrictEqual(own, { ...before, nodes: status.nodes ?? [] })) return false;
    const isUrgent = !isDeepStrictEqual(gist(own), gist(before));
    if (!isUrgent && performance.now() - this.#noted < statusPause(load.nodes.length)) return false;
    const isNew = phase !== status.phase;
    if (isNew) await this.#tell(bundle, step);
    const { name, resourceVersion } = metadata;
    // Remove all other fields, also entries of nodes that are gone.
    const nothing = Object.fromEntries(Object.keys(status).map((field) => [field, null]));
    const patch = { metadata: { resourceVersion }, status: { ...nothing, ...own } };
    const reference = { ...upgradeBundleKind, metadata: { name } };
    try {
      await this.#cluster.patch(reference, patch, { subresource: 'status', manager: 'controller' });
    } catch (error) {
      if (!isPluginError(error, 'conflict')) throw error;
      // The object has changed since it was read. The next round reads it again.
      this.#context.log('debug', messageOf(error));
      return false;
    }
    this.#noted = performance.now();
    if (isNew) this.#context.log('info', `${name}: ${phase}`);
    return isNew;
  }

  /** Creates an event: in `default`, because the object has no namespace. Its name prevents a second event. */
  async #tell({ apiVersion, kind, metadata }: UpgradeBundle, { phase, conditions }: Step): Promise<void> {
    const { name, uid, resourceVersion } = metadata;
    const now = new Date().toISOString().replace(/\.\d+/, '');
    const mark = hexOf(digestOf(`${uid ?? ''} ${resourceVersion ?? ''} ${phase}`)).slice(0, 16);
    const event = {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { name: `${name.slice(0, 200)}.${mark}`, namespace: 'default' },
      involvedObject: { apiVersion, kind, name, uid, resourceVersion },
      reason: phase,
      message: conditions.at(-1)?.message.slice(0, 1000) ?? phase,
      type: phase === 'Failed' ? 'Warning' : 'Normal',
      ...{ firstTimestamp: now, lastTimestamp: now, count: 1 },
      source: { component: 'oc-upgrade-bundle' },
      ...{ reportingComponent: 'oc-upgrade-bundle', reportingInstance: this.#options.identity },
    };
    try {
      await this.#cluster.create(event);
    } catch (error) {
      if (!isPluginError(error, 'conflict')) throw error;
    }
  }
}

/** Returns the condition that says why the controller is stalled, or that it continues. */
function describeStall({ conditions }: UpgradeBundleStatus, trouble: string | undefined): BundleCondition[] {
  if (trouble !== undefined) return [{ type: 'Stalled', status: 'True', reason: 'Failing', message: trouble }];
  const isKnown = listOf(conditions).some(({ type }) => type === 'Stalled');
  return isKnown ? [{ type: 'Stalled', status: 'False', reason: 'Progressing', message: 'the rollout continues' }] : [];
}

/** Returns the parts of a status whose changes are written immediately. */
function gist({ phase, version, release, base, turn, observedGeneration, conditions }: UpgradeBundleStatus): object {
  const states = listOf(conditions).map(({ type, status, reason }) => [type, status, reason]);
  return { phase, version, release, base, turn, observedGeneration, states };
}

function shorten(nodes: readonly NodeProgress[]): NodeProgress[] {
  const room = Math.max(100, Math.floor(roomForWords / nodes.length));
  return nodes.map(({ message, ...node }) => ({
    ...node,
    ...(message !== undefined && { message: message.slice(0, room) }),
  }));
}
