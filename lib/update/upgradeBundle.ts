import type { KubernetesObject } from '../config/manifest.ts';

/** The group and version of UpgradeBundle objects. */
export const upgradeBundleApi = { group: 'upgrade-bundle.openshift.io', version: 'v1alpha1' } as const;

/** What an UpgradeBundle calls itself. */
export const upgradeBundleKind = {
  apiVersion: `${upgradeBundleApi.group}/${upgradeBundleApi.version}`,
  kind: 'UpgradeBundle',
} as const;

/** What those columns of `oc get` are called that agents read. */
export const bundleColumns = {
  ...{ phase: 'Phase', nodesReady: 'Nodes ready', turn: 'Turn', generation: 'Generation', uid: 'UID' },
} as const;

/** Set by `abort`, on an UpgradeBundle that is not to go on. */
export const abortAnnotation = 'upgrade-bundle.openshift.io/abort';

/** How far an update with a bundle has come, in the order in which it goes; `Failed` may follow any of them but the last. */
export const phases = [
  ...(['Detected', 'Verified', 'Loading', 'Loaded', 'Pinned', 'Held', 'Upgrading', 'Completed', 'Failed'] as const),
];

/** See `phases`. */
export type Phase = (typeof phases)[number];

/** How far one node has come. */
export const nodePhases = ['Waiting', 'Loading', 'Loaded', 'Pinned', 'Failed'] as const;

/** See `nodePhases`. */
export type NodePhase = (typeof nodePhases)[number];

/** Where nodes keep the images: chosen by the version of the cluster, in their own storage, or in a store beside it. */
export const stores = ['auto', 'main', 'additional'] as const;

/** What one node reports. */
export interface NodeProgress {
  readonly name: string;
  readonly phase: NodePhase;
  readonly imagesLoaded: number;
  readonly imagesTotal: number;
  /** Of the blobs that it has, in bytes. */
  readonly bytes: number;
  /** Bytes that are free where it keeps images. */
  readonly free?: number;
  readonly message?: string;
}

/** The cluster’s record of a bundle: which one it may be updated with, and how far that has come. */
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
      /** A device or a file on some node; looked for where it is absent. */
      readonly file?: string;
      /** Of the whole file. Without it nothing goes past `Detected`. */
      readonly digest?: string;
    };
    /** Stop before the update itself begins. */
    readonly hold: boolean;
    readonly store: (typeof stores)[number];
    /** Digests of images that are loaded though the release signature does not cover them. */
    readonly allowExtraImages?: readonly string[];
  };
  readonly status?: UpgradeBundleStatus;
}

/** What the agents write into an UpgradeBundle. */
export interface UpgradeBundleStatus {
  readonly phase?: Phase;
  readonly version?: string;
  /** The release image by digest. */
  readonly release?: string;
  /** How many nodes have all images, and of how many: `2/3`. */
  readonly nodesReady?: string;
  /** How many of the images of all nodes are loaded: `64%`. */
  readonly progress?: string;
  /** The control-plane node whose turn it is to load. */
  readonly turn?: string;
  readonly observedGeneration?: number;
  readonly conditions?: readonly object[];
  readonly nodes?: readonly NodeProgress[];
}

/**
 * Returns the UpgradeBundle that a cluster is at work on: of those that are neither completed nor failed nor being deleted the oldest with an allowed
 * digest, else the oldest. Undefined if there is none.
 */
export function activeBundle(bundles: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  // What agents propose does not block what an administrator allows.
  const ageOf = ({ metadata: { creationTimestamp = '', name }, spec }: UpgradeBundle): string =>
    `${spec.bundle.digest === undefined ? 1 : 0} ${creationTimestamp} ${name}`;
  return bundles.filter(isActive).sort((a, b) => (ageOf(a) < ageOf(b) ? -1 : 1))[0];
}

/** Whether a cluster may be at work on an UpgradeBundle: it is neither completed nor failed nor being deleted. */
export function isActive(bundle: UpgradeBundle): boolean {
  return bundle.metadata.deletionTimestamp === undefined && !hasEnded(bundle);
}

/** How far an update has come; `Detected` where nobody has said anything yet. */
export function phaseOf({ status }: UpgradeBundle): Phase {
  return status?.phase ?? 'Detected';
}

/** It is completed or has failed, and nothing more happens to it. */
export function hasEnded(bundle: UpgradeBundle): boolean {
  return ['Completed', 'Failed'].includes(phaseOf(bundle));
}

/** Whether an update has come as far as a phase, and has not failed. */
export function isAtLeast(bundle: UpgradeBundle, least: Phase): boolean {
  const phase = phaseOf(bundle);
  return phase !== 'Failed' && phases.indexOf(phase) >= phases.indexOf(least);
}

/** Sums up what nodes report, for the columns of `oc get`. */
export function summarizeNodes(
  nodes: readonly NodeProgress[],
): Required<Pick<UpgradeBundleStatus, 'nodesReady' | 'progress'>> {
  const ready = nodes.filter(({ phase }) => phase === 'Loaded' || phase === 'Pinned').length;
  const [loaded, total] = [nodes.map((node) => node.imagesLoaded), nodes.map((node) => node.imagesTotal)].map(sum);
  // Not before the last image is there may it say that all are.
  const percent = total === undefined || total === 0 ? 0 : Math.floor(((loaded ?? 0) / total) * 100);
  return { nodesReady: `${ready}/${nodes.length}`, progress: `${percent}%` };
}

/**
 * Whether a node may load the images of a bundle now. Nodes of the control plane load one at a time, when `status.turn` names them; the
 * others as soon as loading has begun, and those that join later even when the update is over.
 */
export function mayLoad(bundle: UpgradeBundle, node: { name: string; controlPlane: boolean }): boolean {
  return isAtLeast(bundle, 'Loading') && (!node.controlPlane || bundle.status?.turn === node.name);
}

/**
 * Whether a node may bring the bundle from another one now: if it may load it, and before that if `status.turn` names it, because the controller leads from there and
 * learns about the bundle from its own node only.
 */
export function mayFetch(bundle: UpgradeBundle, node: { name: string; controlPlane: boolean }): boolean {
  return mayLoad(bundle, node) || (needsFacts(bundle) && bundle.status?.turn === node.name);
}

/** Whether an update is before the step that decides whether the cluster can take the bundle. */
export function needsFacts(bundle: UpgradeBundle): boolean {
  return ['Detected', 'Verified'].includes(phaseOf(bundle));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** The namespace of everything that belongs to the agents, and the beginning of what most of it is called. */
export const agentNamespace = 'oc-upgrade-bundle';
