import { ignorableChecks } from '#cluster/finding';
import type { KubernetesObject, WrittenAs } from '#config/manifest';
import { listOf, textOf } from '#fields';
import { choice, count, flag, list, object, optional, text, time, type Schema, type Static } from '#schema';

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
const hopPhases = ['Pending', 'Skipped', ...phases] as const;

/** See `hopPhases`. */
export type HopPhase = (typeof hopPhases)[number];

/** The phases of a node, in the order of an update; `Failed` stands for an obstacle, which the message names. */
export const nodePhases = ['Waiting', 'Loading', 'Loaded', 'Pinned', 'Failed'] as const;

/** See `nodePhases`. */
export type NodePhase = (typeof nodePhases)[number];

/** Whether etcd is backed up before each update. */
export const backupModes = ['on', 'off'] as const;

/** Returns a rule of CEL for a schema. Earlier API servers know none. */
export function rule(expression: string, message: string): { readonly rule: string; readonly message: string } {
  return { rule: expression, message };
}

/** The field of a schema with its rules. */
export const rulesField = 'x-kubernetes-validations';
const setOf = <Value>(items: Schema<Value>, maxItems: number, description: string): Schema<readonly Value[]> =>
  list(items, { description, maxItems, 'x-kubernetes-list-type': 'set' });
const listByKey = <Value>(items: Schema<Value>, key: string, maxItems: number): Schema<readonly Value[]> =>
  list(items, { maxItems, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': [key] });

const digest = { pattern: '^sha256:[0-9a-f]{64}$' };
const message = text({ maxLength: 32768 });
const version = { maxLength: 128, pattern: String.raw`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$` };
const name = text({ maxLength: 253 });
const release = text({ maxLength: 1024, pattern: String.raw`^[^@\s]+@sha256:[0-9a-f]{64}$` });
const path = {
  maxLength: 4096,
  pattern: String.raw`^(/[^/\x00-\x1f\x7f]+)+$`,
  [rulesField]: [rule("!self.matches('(^|/)[.][.]?(/|$)')", 'must be a path without . and ..')],
};
const hasSame = (field: string): { readonly rule: string; readonly message: string } =>
  rule(
    `!has(oldSelf.${field}) || (has(self.${field}) && self.${field} == oldSelf.${field})`,
    `${field} cannot be changed: another bundle is another UpgradeBundle`,
  );

/** The statement of `spec`. */
export const bundleSpec = object({
  bundle: object(
    {
      file: optional(
        text({
          ...path,
          description:
            'A device or file on one of the nodes, such as /dev/sdb. If absent, the media of all nodes are searched.',
        }),
      ),
      digest: optional(
        text({
          ...digest,
          description:
            'Digest of the whole bundle, as in the .sha256 file beside it. Without it, the update does not go ' +
            'past Detected.',
        }),
      ),
      version: optional(
        text({ ...version, description: 'Version of the last release of the bundle. Another bundle is refused.' }),
      ),
      releaseDigest: optional(
        text({ ...digest, description: 'Digest of the last release of the bundle. Another bundle is refused.' }),
      ),
    },
    {
      description: 'The bundle that the cluster may be updated from.',
      default: {},
      [rulesField]: ['digest', 'version', 'releaseDigest'].map(hasSame),
    },
  ),
  hold: optional(flag({ default: false, description: 'Load and pin the images, then wait before the update starts.' })),
  holdBetween: optional(
    flag({
      description:
        'Of several updates, load and pin the images of each one after the first, then wait before that update begins.',
    }),
  ),
  controlPlaneOnly: optional(
    flag({
      description:
        'Update from one extended (EUS) release to the next one with all pools paused, except master, until the ' +
        'control plane runs the last release. Nodes of the other pools then restart once. If it is removed, the ' +
        'pools are resumed.',
    }),
  ),
  backup: optional(
    choice(backupModes, {
      description: 'Whether etcd is backed up on a control plane node before each update; on if absent.',
    }),
  ),
  backupTo: optional(
    text({
      ...path,
      description: 'A folder of a drive that is mounted on the node with the backup. The backup is copied there.',
    }),
  ),
  allowExtraImages: optional(
    setOf(
      text(digest),
      500,
      'Digests of the extra images that nodes load, although the release signature does not cover them. All ' +
        'others are left out.',
    ),
  ),
  acknowledge: optional(
    setOf(
      text({ maxLength: 253, pattern: '^ack-[0-9]+[.][0-9]+-[-._a-zA-Z0-9]+$' }),
      64,
      'Names of the acknowledgements (admin-acks) that may be given for the updates. An update that requires ' +
        'another one does not begin.',
    ),
  ),
  acceptRisks: optional(
    setOf(
      text({ minLength: 1, maxLength: 256, pattern: String.raw`^[^\x00-\x1f\x7f]+$` }),
      64,
      'Names of the known risks of updates that the cluster may accept. An update with another known risk does ' +
        'not begin.',
    ),
  ),
  windows: optional(
    setOf(
      text({
        maxLength: 100,
        pattern: '^[A-Za-z,-]+ +[0-9]{1,2}:[0-9]{2}-[0-9]{1,2}:[0-9]{2} +[A-Za-z][A-Za-z0-9_+/-]*$',
      }),
      16,
      'Weekly times in which an update may start, such as “Sat 22:00-04:00 Europe/Berlin”. Loading does not ' +
        'wait for them.',
    ),
  ),
  windowNeeds: optional(
    text({
      description: 'The time that must be left in a window when an update starts; 2h if absent.',
      maxLength: 20,
      pattern: '^([0-9]+([.][0-9]+)?(ms|s|m|h))+$|^[0-9]+$',
    }),
  ),
  ignore: optional(
    setOf(
      text({ maxLength: 512, pattern: String.raw`^(${ignorableChecks.join('|')})(:[\x21-\x7e]+)?$` }),
      64,
      'Blockers that are overruled: a check, or a check and an object, such as drains:poddisruptionbudget/shop/web. ' +
        'Signatures, the allowed bundle and the version path cannot be overruled.',
    ),
  ),
});

const condition = object({
  type: text({ maxLength: 316, pattern: '^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$' }),
  status: choice(['True', 'False', 'Unknown']),
  observedGeneration: optional(count()),
  lastTransitionTime: time(),
  reason: text({ maxLength: 1024, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$' }),
  message,
});

/** The statement of the progress of a node. */
export const nodeProgress = object(
  {
    name: text({ minLength: 1, maxLength: 253 }),
    phase: choice(nodePhases),
    imagesLoaded: count(),
    imagesTotal: count(),
    bytes: count({ description: 'Of the blobs that the node has.' }),
    free: optional(count({ description: 'Bytes that are free where the node keeps images.' })),
    size: optional(count({ description: 'Bytes of that file system.' })),
    system: optional(
      object(
        { free: count(), size: count() },
        { description: 'The file system with the copy of the bundle and the backups, if it is another one.' },
      ),
    ),
    database: optional(count({ description: 'Bytes of the etcd database, on a node that has one.' })),
    message: optional(message),
  },
  { [rulesField]: [rule('self.imagesLoaded <= self.imagesTotal', 'imagesLoaded exceeds imagesTotal')] },
);

const backup = object({
  node: name,
  path: text({ maxLength: 4096 }),
  copy: optional(text({ maxLength: 4096 })),
  version: text({ ...version, description: 'Version that the cluster ran.' }),
  time: time(),
  size: count({ description: 'Bytes of the etcd snapshot.' }),
  digest: text(digest),
  /** The rendered machine configs of the pools at that time. */
  pools: optional(listByKey(object({ name, config: name }), 'name', 100)),
});

const hop = object({ version: text(version), release, phase: choice(hopPhases) });

/** The statement of `status`. */
export const bundleStatus = object({
  phase: optional(choice(phases)),
  /** The version of the release; of several releases, the present one. */
  version: optional(text(version)),
  base: optional(text({ ...version, description: 'Version of the base release of a delta bundle.' })),
  /** The outline of the bundle, as the controller verified it; see RecordedOutline. */
  size: optional(count({ description: 'Bytes of the bundle. A node fetches no more from other nodes.' })),
  head: optional(
    text({
      maxLength: 100,
      pattern: '^[0-9]{1,15}:sha256:[0-9a-f]{64}$',
      description: 'Bytes before the first blob of the bundle, and their digest. Nodes check what they fetch by it.',
    }),
  ),
  /** The release image, by digest. */
  release: optional(release),
  /** The number of nodes that have all images, and the number of all nodes: `2/3`. */
  nodesReady: optional(text({ pattern: '^[0-9]+/[0-9]+$', maxLength: 20 })),
  /**
   * The share of the images of all nodes that is loaded, such as `64%`. From `Upgrading` on, the share of the update
   * that the version operator has done.
   */
  progress: optional(text({ pattern: '^(100|[0-9]{1,2})%$', maxLength: 4 })),
  turn: optional(text({ maxLength: 253, description: 'The control-plane node whose turn it is to load.' })),
  backupNode: optional(text({ maxLength: 253, description: 'The control-plane node that is to back up etcd.' })),
  /** The last backups, the newest last. */
  backups: optional(listByKey(backup, 'path', 8)),
  reportKey: optional(
    text({
      pattern: '^[0-9a-f]{64}$',
      description: 'SHA-256 of the public key (SPKI) that signs the reports of the cluster.',
    }),
  ),
  lastProgressTime: optional(time({ description: 'When the update last made progress.' })),
  observedGeneration: optional(count()),
  conditions: optional(listByKey<object>(condition, 'type', 32)),
  /** The reason of the condition that the update waits for, or with which it ended; see findReason. */
  reason: optional(
    text({
      maxLength: 64,
      pattern: '^[A-Z][A-Za-z]*$',
      description: 'Reason of the condition that the update waits for. Agents show it on the screens of their nodes.',
    }),
  ),
  /** The updates in their order, if the bundle has several releases. */
  hops: optional(listByKey(hop, 'version', 16)),
  nodes: optional(listByKey(nodeProgress, 'name', 2000)),
});

/** The status of an UpgradeBundle. */
export type UpgradeBundleStatus = Static<typeof bundleStatus>;

/** A backup of etcd in the record of an update, with what a restoration compares. */
export type RecordedBackup = Static<typeof backup>;

/** The progress of one of several updates with a bundle. */
export type HopProgress = Static<typeof hop>;

/** What a node has of the images of a bundle, as its agent last reported it. */
export type NodeProgress = Static<typeof nodeProgress>;

/** The record of a bundle in the cluster: what is allowed, and the progress of the update. */
export interface UpgradeBundle extends KubernetesObject {
  readonly metadata: KubernetesObject['metadata'] & {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly generation?: number;
    readonly creationTimestamp?: string;
    readonly deletionTimestamp?: string;
  };
  /** The API server adds `hold` if it is absent. */
  readonly spec: Static<typeof bundleSpec> & { readonly hold: boolean };
  readonly status?: UpgradeBundleStatus;
}

/** An UpgradeBundle as this program writes it. The API server adds the defaults of `spec`. */
export type WrittenBundle = WrittenAs<
  typeof upgradeBundleKind.apiVersion,
  'UpgradeBundle',
  { readonly spec: Partial<UpgradeBundle['spec']> & Pick<UpgradeBundle['spec'], 'bundle'> }
>;

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
