import type { KubernetesObject, WrittenAs } from '#config/manifest';
import { listOf, textOf } from '#fields';
import type { ClusterBackup } from '#node/clusterBackup';

/** The group and version of UpgradeBundle objects. */
export const upgradeBundleApi = { group: 'upgrade-bundle.openshift.io', version: 'v1alpha1' } as const;

/** The apiVersion and kind of an UpgradeBundle. */
export const upgradeBundleKind = {
  apiVersion: `${upgradeBundleApi.group}/${upgradeBundleApi.version}`,
  kind: 'UpgradeBundle',
} as const;

/** The names of the columns of `oc get` that agents read. */
export const bundleColumns = {
  version: 'Version',
  phase: 'Phase',
  nodesReady: 'Nodes ready',
  turn: 'Turn',
  base: 'Base',
  backupNode: 'Backup node',
  generation: 'Generation',
  uid: 'UID',
  size: 'Size',
  head: 'Head',
  reason: 'Reason',
} as const;

/** The annotation of an UpgradeBundle that the controller created; its value is the node that found the bundle. */
export const proposalAnnotation = 'upgrade-bundle.openshift.io/found-on';

/** The annotation that `abort` sets on an UpgradeBundle. */
export const abortAnnotation = 'upgrade-bundle.openshift.io/abort';

/** The annotation that `resume` sets: the version whose update `spec.holdBetween` no longer stops. */
export const resumeAnnotation = 'upgrade-bundle.openshift.io/resume';

/** The annotation that `resume` sets: the version whose update starts outside of its maintenance windows. */
export const startAnnotation = 'upgrade-bundle.openshift.io/start';

/** The phases of an update, in their order; `Failed` may follow any of them except the last. */
export const phases = [
  'Detected',
  'Verified',
  'Loading',
  'Loaded',
  'Pinned',
  'Held',
  'Upgrading',
  'Completed',
  'Failed',
] as const;

/** See `phases`. */
export type Phase = (typeof phases)[number];

/** The phases of one of several updates: `Pending` before it begins, `Skipped` if the cluster has the release. */
export const hopPhases = ['Pending', 'Skipped', ...phases] as const;

/** See `hopPhases`. */
export type HopPhase = (typeof hopPhases)[number];

/** The progress of one of several updates with a bundle. */
export interface HopProgress {
  readonly version: string;
  /** The release image, by digest. */
  readonly release: string;
  readonly phase: HopPhase;
}

/** The phases of a node, in the order of an update; `Failed` stands for an obstacle, which the message names. */
export const nodePhases = ['Waiting', 'Loading', 'Loaded', 'Pinned', 'Failed'] as const;

/** See `nodePhases`. */
export type NodePhase = (typeof nodePhases)[number];

/** Whether etcd is backed up before each update. */
export const backupModes = ['on', 'off'] as const;

/** A backup of etcd in the record of an update, with what a restoration compares. */
export interface RecordedBackup extends ClusterBackup {
  readonly node: string;
  /** The rendered machine configs of the pools at that time. */
  readonly pools: readonly { readonly name: string; readonly config: string }[];
}

/** What a node has of the images of a bundle, as its agent last reported it. */
export interface NodeProgress {
  readonly name: string;
  readonly phase: NodePhase;
  readonly imagesLoaded: number;
  readonly imagesTotal: number;
  /** Bytes of the blobs that the node has. */
  readonly bytes: number;
  /** Free bytes on the file system of the images. */
  readonly free?: number;
  /** The size of that file system, in bytes. */
  readonly size?: number;
  /** The bytes of the file system with the copy of the bundle and the backups, if it is another one. */
  readonly system?: { readonly free: number; readonly size: number };
  /** Bytes of the etcd database, on a node that has one. */
  readonly database?: number;
  readonly message?: string;
}

/** The record of a bundle in the cluster: what is allowed, and the progress of the update. */
export interface UpgradeBundle extends KubernetesObject {
  readonly metadata: KubernetesObject['metadata'] & {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly generation?: number;
    readonly creationTimestamp?: string;
    readonly deletionTimestamp?: string;
  };
  readonly spec: {
    readonly bundle: {
      /** A device or a file on a node; by default all media are searched. */
      readonly file?: string;
      /** The digest of the whole file. Without it, the phase stays `Detected`. */
      readonly digest?: string;
      /** The version and the digest of the last release, as the administrator saw them. Another bundle is refused. */
      readonly version?: string;
      readonly releaseDigest?: string;
    };
    /** Stop before the update itself starts. */
    readonly hold: boolean;
    /** Of several updates, stop before each one after the first. */
    readonly holdBetween?: boolean;
    /** Of several updates, pause all pools but those of the control plane until the last one. */
    readonly controlPlaneOnly?: boolean;
    /** Whether etcd is backed up before each update; by default `on`. */
    readonly backup?: (typeof backupModes)[number];
    /** A folder of a drive that is mounted on the node with the backup, for a copy of it. */
    readonly backupTo?: string;
    /** Digests of images to load that the release signature does not cover. */
    readonly allowExtraImages?: readonly string[];
    /** The names of the acknowledgements that may be given to the cluster. */
    readonly acknowledge?: readonly string[];
    /** The names of the known risks of updates that the cluster may accept. */
    readonly acceptRisks?: readonly string[];
    /** The weekly times in which updates may start: `Sat 22:00-04:00 Europe/Berlin`; at any time without them. */
    readonly windows?: readonly string[];
    /** The time that must be left in a window, such as `2h`. */
    readonly windowNeeds?: string;
    /** The names of blockers that an administrator overrules: `drains`, `nodes:node/worker-3`. */
    readonly ignore?: readonly string[];
  };
  readonly status?: UpgradeBundleStatus;
}

/** An UpgradeBundle as this program writes it. The API server adds the defaults of `spec`. */
export type WrittenBundle = WrittenAs<
  typeof upgradeBundleKind.apiVersion,
  'UpgradeBundle',
  { readonly spec: Partial<UpgradeBundle['spec']> & Pick<UpgradeBundle['spec'], 'bundle'> }
>;

/** The status of an UpgradeBundle. */
export interface UpgradeBundleStatus {
  readonly phase?: Phase;
  /** The version of the release; of several releases, the present one. */
  readonly version?: string;
  /** The release image, by digest. */
  readonly release?: string;
  /** The version of the base release of a delta bundle. */
  readonly base?: string;
  /** The outline of the bundle, as the controller verified it; see RecordedOutline. */
  readonly size?: number;
  readonly head?: string;
  /** The number of nodes that have all images, and the number of all nodes: `2/3`. */
  readonly nodesReady?: string;
  /**
   * The share of the images of all nodes that is loaded, such as `64%`. From `Upgrading` on, the share of the update
   * that the version operator has done.
   */
  readonly progress?: string;
  /** The control plane node that may load now. */
  readonly turn?: string;
  /** The control plane node that is to back up etcd now. */
  readonly backupNode?: string;
  /** The last backups, the newest last. */
  readonly backups?: readonly RecordedBackup[];
  /** The fingerprint of the key that signs reports of the cluster, if the installation allows them: SHA-256 in hex. */
  readonly reportKey?: string;
  /** When the update last made progress, in ISO 8601. */
  readonly lastProgressTime?: string;
  readonly observedGeneration?: number;
  readonly conditions?: readonly object[];
  /** The reason of the condition that the update waits for, or with which it ended; see findReason. */
  readonly reason?: string;
  /** The updates in their order, if the bundle has several releases. */
  readonly hops?: readonly HopProgress[];
  readonly nodes?: readonly NodeProgress[];
}

/**
 * Returns the active UpgradeBundle: the oldest with an allowed digest, else the oldest. Ignores UpgradeBundles that are
 * completed, failed or being deleted. Undefined if there is none.
 */
export function activeBundle(bundles: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  // A proposal of an agent must not block a bundle that an administrator allows.
  const ageOf = ({ metadata: { creationTimestamp = '', name }, spec }: UpgradeBundle): string =>
    `${spec.bundle.digest === undefined ? 1 : 0} ${creationTimestamp} ${name}`;
  return bundles.filter(isActive).sort((a, b) => (ageOf(a) < ageOf(b) ? -1 : 1))[0];
}

/**
 * Returns the UpgradeBundle that was completed last, whose images nodes keep. Ignores UpgradeBundles that are being
 * deleted. Undefined if there is none.
 */
export function lastCompleted(bundles: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  return lastEnded(bundles.filter((bundle) => phaseOf(bundle) === 'Completed'));
}

/**
 * Returns the completed or failed UpgradeBundle that was created last, and is not being deleted; undefined if there is
 * none.
 */
export function lastEnded(bundles: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  const ageOf = ({ metadata: { creationTimestamp = '', name } }: UpgradeBundle): string =>
    `${creationTimestamp} ${name}`;
  return bundles
    .filter((bundle) => hasEnded(bundle) && bundle.metadata.deletionTimestamp === undefined)
    .sort((a, b) => (ageOf(a) < ageOf(b) ? 1 : -1))[0];
}

/** Returns whether an UpgradeBundle may become active: it is neither completed nor failed nor being deleted. */
export function isActive(bundle: UpgradeBundle): boolean {
  return bundle.metadata.deletionTimestamp === undefined && !hasEnded(bundle);
}

/** Returns the phase of an update; `Detected` if it has no status. */
export function phaseOf({ status }: UpgradeBundle): Phase {
  return status?.phase ?? 'Detected';
}

/** Returns whether an update is completed or has failed. */
export function hasEnded(bundle: UpgradeBundle): boolean {
  return ['Completed', 'Failed'].includes(phaseOf(bundle));
}

/** Returns whether a user has requested to abort an update that has not ended. */
export function isAbortRequested(bundle: UpgradeBundle): boolean {
  return bundle.metadata.annotations?.[abortAnnotation] === 'true' && !hasEnded(bundle);
}

/** Returns whether an update waits for a maintenance window only, by the condition that the controller has set. */
export function isWaitingForWindow({ status, spec }: UpgradeBundle): boolean {
  const updated = listOf(status?.conditions).find(({ type }) => type === 'Updated');
  return !spec.hold && ['OutsideWindow', 'ClockNotTrusted'].includes(textOf(updated?.['reason']) ?? '');
}

/** Returns the command line that withdraws a request to abort. */
export function withdrawAbort({ metadata: { name } }: UpgradeBundle): string {
  return `oc annotate upgradebundle ${name} ${abortAnnotation}-`;
}

/** Returns whether an update has reached a phase, and has not failed. */
export function isAtLeast(bundle: UpgradeBundle, least: Phase): boolean {
  const phase = phaseOf(bundle);
  return phase !== 'Failed' && phases.indexOf(phase) >= phases.indexOf(least);
}

/** Summarizes the reports of nodes for the columns of `oc get`. */
export function summarizeNodes(
  nodes: readonly NodeProgress[],
): Required<Pick<UpgradeBundleStatus, 'nodesReady' | 'progress'>> {
  const ready = nodes.filter(({ phase }) => phase === 'Loaded' || phase === 'Pinned').length;
  // Nodes that have not counted their images have none of as many images as the others.
  const most = Math.max(0, ...nodes.map(({ imagesTotal }) => imagesTotal));
  const total = sum(nodes.map(({ imagesTotal }) => imagesTotal || most));
  const loaded = sum(nodes.map(({ imagesLoaded }) => imagesLoaded));
  // Rounded down: 100% only if all images are loaded.
  const percent = total === 0 ? 0 : Math.floor((loaded / total) * 100);
  return { nodesReady: `${ready}/${nodes.length}`, progress: `${percent}%` };
}

/**
 * Returns whether a node may load the images of a bundle now. Control plane nodes load one at a time, if `status.turn`
 * names them. Other nodes load from the phase Loading on, also if they join after the update. Once it is completed,
 * each node loads images that it lost.
 */
export function mayLoad(bundle: UpgradeBundle, node: { name: string; controlPlane: boolean }): boolean {
  const isTurn = bundle.status?.turn === node.name || phaseOf(bundle) === 'Completed';
  return isAtLeast(bundle, 'Loading') && (!node.controlPlane || isTurn);
}

/**
 * Returns whether a node may fetch the bundle now: if it may load it. Earlier, only the node in `status.turn` may,
 * because the leading controller reads the bundle’s facts on its own node. A verified delta may be fetched by each
 * node, to check whether the node can complete it.
 */
export function mayFetch(bundle: UpgradeBundle, node: { name: string; controlPlane: boolean }): boolean {
  const { turn, base } = bundle.status ?? {};
  const checksBase = phaseOf(bundle) === 'Verified' && base !== undefined;
  return mayLoad(bundle, node) || checksBase || (needsFacts(bundle) && turn === node.name);
}

/** Returns whether the controller has not yet checked that the cluster can take the bundle. */
export function needsFacts(bundle: UpgradeBundle): boolean {
  return ['Detected', 'Verified'].includes(phaseOf(bundle));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The namespace of the agents, and the prefix of most of their names. */
export const agentNamespace = 'oc-upgrade-bundle';

/**
 * The namespace of the agents’ reports. Roles cannot limit `create` to names, so the Lease of the controller is in
 * another one: no role of an agent covers it.
 */
export const reportNamespace = `${agentNamespace}-reports`;
