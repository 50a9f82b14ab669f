import type { ErrorCode, PluginError } from '#errors';
import type { LoadOptions } from '#node/images';
import type { FoundBundle } from '#node/media';
import { isOlder } from '#release/version';
import type { MirrorContent } from '../record/mirrorContent.ts';
import type { BaseState } from '../record/nodeReport.ts';
import { isAtLeast, mayFetch, mayLoad, phaseOf, type NodePhase, type UpgradeBundle } from '../record/upgradeBundle.ts';
import type { ScreenReason } from '../screen/screenCode.ts';
import type { AgentJob } from './agentJob.ts';
import type { CachedBundle } from './bundleCache.ts';

/** The name of a node, and its role in the cluster. */
export interface NodeFacts {
  readonly name: string;
  readonly controlPlane: boolean;
  /** Whether the cluster has PinnedImageSets. The node itself then pins nothing. */
  readonly pinsByCluster: boolean;
  /** Its container runtime, as the Node object has it. */
  readonly runtime?: string;
  /**
   * What the mirror of the node keeps after the update: its own copy of the bundle, or its facts; undefined for none.
   */
  readonly retains?: MirrorContent | undefined;
}

/** The place where a node has the allowed bundle. */
export type BundleSource =
  | { readonly kind: 'none' }
  /** The medium with the bundle was removed while the node needed it. */
  | { readonly kind: 'removed'; readonly medium: string }
  /** A medium has the bundle, but cannot be read to its end or is corrupt. */
  | { readonly kind: 'unreadable'; readonly error: PluginError }
  /**
   * The bundle is verified, open and offered to other nodes. `medium` is undefined for a copy on the node’s own disk.
   */
  | { readonly kind: 'open'; readonly cached: CachedBundle; readonly medium: FoundBundle | undefined };

/** The knowledge of a node about the allowed bundle and its images. */
export interface NodeState {
  readonly source: BundleSource;
  /**
   * The number of images in the store, and of images in the bundle; both 0 until they are counted. `missing`: names of
   * images that are not in the store beside others. `damage`: an image whose files lost content, and how to repair
   * that.
   */
  readonly images: {
    readonly loaded: number;
    readonly total: number;
    readonly missing?: string;
    readonly damage?: string;
  };
  /** The version of the release for which the images were counted. */
  readonly version?: string;
  /** Bytes of the bundle that the node has fetched so far, or of the whole bundle. */
  readonly bytes: number;
  /** Whether the node itself has pinned the images. */
  readonly isPinned: boolean;
  /** The reason why the node does not load images: it cannot read its own copy. */
  readonly obstacle: string | undefined;
  /** Whether that is another bundle than the allowed one. */
  readonly isOther?: boolean;
  /** Where the base blobs of a delta bundle are; undefined if it is no delta, or is not open. */
  readonly base?: BaseState;
  /** What the node lacks of the base; undefined if it lacks nothing. */
  readonly lack?: string;
  /** The content that the node needs, and that no other node offers. */
  readonly unoffered?: 'bundle' | 'base';
  /** Why images that are loaded are not held until they are pinned; undefined if they are. */
  readonly unheld?: string | undefined;
  /** Loaded images that the kubelet would still request from a registry, as a message; undefined if there are none. */
  readonly refused?: string | undefined;
  /** Whether the node gives images to its own runtime, or is to do so once it has a copy of the bundle. */
  readonly servesImages?: boolean;
  /** Whether the node’s own copy of the bundle is known to be damaged. It is used until another one takes its place. */
  readonly isDamaged?: boolean;
  /** Another bundle that is inserted and ignored, as a message. */
  readonly other?: string;
}

/** The state of a node that has done nothing yet. */
export const initialState: NodeState = {
  source: { kind: 'none' },
  images: { loaded: 0, total: 0 },
  bytes: 0,
  isPinned: false,
  obstacle: undefined,
};

/** The next task of a node. */
export type NodeTask =
  | { readonly kind: 'idle' }
  | { readonly kind: 'verify'; readonly medium: FoundBundle }
  | { readonly kind: 'fetch' }
  | { readonly kind: 'fetchBase'; readonly source: BundleSource & { readonly kind: 'open' } }
  | { readonly kind: 'load'; readonly source: BundleSource & { readonly kind: 'open' } }
  | { readonly kind: 'retain'; readonly source: BundleSource & { readonly kind: 'open' } }
  | { readonly kind: 'pin' };

/**
 * Chooses the next task of a node. `unverified` is a medium that may have the bundle. `isKnown`: its facts are known.
 */
export function chooseTask(
  { source, images, isPinned, obstacle, base, isDamaged = false, servesImages = false }: NodeState,
  unverified: FoundBundle | undefined,
  bundle: UpgradeBundle,
  node: NodeFacts,
  isKnown: boolean,
): NodeTask {
  const retains = servesImages || node.retains === 'all' || (node.retains === 'metadata' && !isKnown);
  const lacksCopy = source.kind !== 'open' || (isDamaged && source.medium === undefined);
  // After the update, a node reads a medium only for what it lacks.
  const isNeeded = retains || !isLoaded(images) || phaseOf(bundle) !== 'Completed';
  // Beside the delta on another medium the base may be.
  if ((lacksCopy || base === 'missing') && unverified && isNeeded) return { kind: 'verify', medium: unverified };
  if (isLoaded(images)) {
    if (retains && source.kind === 'open' && source.medium) return { kind: 'retain', source };
    if (retains && lacksCopy && obstacle === undefined && mayFetch(bundle, node)) return { kind: 'fetch' };
    const mayPin = !node.pinsByCluster && !isPinned && isAtLeast(bundle, 'Loaded');
    return { kind: mayPin ? 'pin' : 'idle' };
  }
  if (obstacle !== undefined) return { kind: 'idle' };
  if (source.kind === 'open') {
    if (!mayLoad(bundle, node)) return { kind: 'idle' };
    return { kind: base === 'missing' ? 'fetchBase' : 'load', source };
  }
  return { kind: mayFetch(bundle, node) ? 'fetch' : 'idle' };
}

/** The first CRI-O that uses a changed list of pins when it is reloaded (cri-o#8073). */
const firstReloading = '1.29.4';

/** Returns why a hold counts later only; undefined if it counts at once, or later pins have taken its place. */
export function describeLateHold({ runtime = '' }: NodeFacts, bundle: UpgradeBundle): string | undefined {
  const version = /^cri-o:\/\/(\d+\.\d+\.\d+)/.exec(runtime)?.[1];
  if (version === undefined || !isOlder(version, firstReloading) || isAtLeast(bundle, 'Pinned')) return undefined;
  return `CRI-O ${version} reads what it is to keep only when it starts`;
}

/**
 * Describes why a node serves images to its own runtime, and until when. `policy`: that of the kubelet, if it verifies
 * all pulls. `refused`: what its records refuse. `isReady`: whether the node has the copy that it serves.
 */
export function describeServing(policy: string | undefined, refused: string | undefined, isReady: boolean): string {
  const rule =
    policy && `the kubelet verifies pulls of loaded images (imagePullCredentialsVerificationPolicy ${policy})`;
  const state = isReady
    ? 'From its copy of the bundle, the node itself gives them to it, until the UpgradeBundle is deleted'
    : 'Once the node has a copy of the bundle on its disk, it gives them to it';
  return [refused, rule, state].filter((part) => part !== undefined).join('. ');
}

/** The pause between two counts of images, in milliseconds: another program may remove one at any time. */
const countPause = 60_000;

/**
 * Returns what a count of the images is valid for: the phase, the release, the allowed extra images, and a minute.
 * `now` is in milliseconds.
 */
export function countStage(bundle: UpgradeBundle, now = performance.now()): string {
  const minute = Math.floor(now / countPause);
  return [phaseOf(bundle), bundle.status?.version, minute, ...(bundle.spec.allowExtraImages ?? [])].join();
}

/**
 * Returns what a check of the files of the images is valid for: the release, and again while the update is held.
 * Undefined if no check is due, because nodes load or the update has begun.
 */
export function checkStage(bundle: UpgradeBundle): string | undefined {
  const isDue = isAtLeast(bundle, 'Loaded') && !isAtLeast(bundle, 'Upgrading');
  return isDue ? `${bundle.status?.version ?? ''} ${phaseOf(bundle) === 'Held'}` : undefined;
}

/**
 * Returns how fast a node loads images. On the control plane etcd waits for the same disk: one image at a time, with a
 * pause, as the machine config operator pins them there.
 */
export function loadLimits({ controlPlane }: NodeFacts): LoadOptions['limits'] {
  return controlPlane ? { concurrency: 1, pause: 1000 } : { concurrency: 2 };
}

/**
 * Returns the phase that a node reports. `Failed`: its job failed, or an obstacle remains. `Pinned`: its images are
 * loaded, and pinned by the cluster or by the agent. `Loading`: it loads or fetches.
 */
export function nodePhase(
  { images, isPinned, obstacle, unoffered }: NodeState,
  job: Pick<AgentJob, 'kind' | 'failure'>,
  bundle: UpgradeBundle,
  { pinsByCluster }: NodeFacts,
): NodePhase {
  if (job.failure !== undefined) return 'Failed';
  // The last image is copied before the store is counted again and synced.
  if (job.kind === 'load') return 'Loading';
  if (isLoaded(images)) return (pinsByCluster ? isAtLeast(bundle, 'Pinned') : isPinned) ? 'Pinned' : 'Loaded';
  if (obstacle !== undefined) return 'Failed';
  const isFetching = job.kind === 'fetch' && unoffered === undefined;
  return isFetching ? 'Loading' : 'Waiting';
}

/** Returns the messages that a node reports: its failure or its job, and a medium that it still needs. */
export function nodeMessages(
  state: NodeState,
  job: Pick<AgentJob, 'kind' | 'name' | 'failure'>,
  phase: NodePhase,
): string[] {
  const { images, obstacle, other } = state;
  // The node retries all the time while no node offers the content.
  const name = job.kind === 'fetch' && state.unoffered !== undefined ? undefined : job.name;
  const own = phase === 'Failed' ? (obstacle ?? job.failure) : (name ?? obstacle);
  const needed = isLoaded(images) ? [describeCopy(state)] : [describeNeed(state), other];
  const risk =
    state.unheld === undefined
      ? undefined
      : `the kubelet may remove loaded images until they are pinned: ${state.unheld}`;
  return [own, risk, state.refused, ...needed].filter((message) => message !== undefined);
}

/** The reasons of failed jobs on a screen; all others are `nodeFailed`. */
const failureReasons: Partial<Record<ErrorCode, ScreenReason>> = {
  'disk-full': 'diskFull',
  unsigned: 'notTrusted',
  untrusted: 'notTrusted',
};

/**
 * Returns what the screen of a node says of the messages that it reports; undefined if that needs no person. `isEarly`:
 * another node may still be reading the drive.
 */
export function findNodeReason(
  state: NodeState,
  { kind, failureCode }: Pick<AgentJob, 'kind' | 'failureCode'>,
  isEarly = false,
): ScreenReason | undefined {
  const { images, obstacle, isOther = false, source, unoffered, base, other } = state;
  if (kind === 'verify') return undefined;
  if (source.kind === 'unreadable' && unoffered !== undefined) return 'driveUnreadable';
  if (failureCode !== undefined)
    return failureReasons[failureCode] ?? (source.kind === 'unreadable' ? 'driveUnreadable' : 'nodeFailed');
  if (obstacle !== undefined && !isLoaded(images)) return isOther ? 'otherBundle' : 'imageDamaged';
  if (isLoaded(images)) return describeCopy(state) === undefined ? undefined : 'driveNeeded';
  if (source.kind === 'open')
    return describeNeed(state) === undefined || base !== 'missing' ? undefined : 'baseMissing';
  if (other !== undefined) return 'otherBundle';
  if (describeNeed(state) === undefined) return undefined;
  if (source.kind === 'removed') return 'driveRemoved';
  return isEarly ? 'driveAwaited' : 'driveNeeded';
}

/** Describes what a copy for the mirror of a node needs, if no node can give it; undefined otherwise. */
function describeCopy({ source, unoffered, isDamaged = false }: NodeState): string | undefined {
  if (unoffered !== 'bundle' || (source.kind === 'open' && !isDamaged)) return undefined;
  const what = isDamaged ? 'its copy of the bundle is damaged' : 'its copy of the bundle is gone';
  return `${what}, and no other node has one: insert the USB drive with the bundle`;
}

/** Describes the medium that a node needs; undefined if it has the bundle, or can fetch it. */
function describeNeed({ source, unoffered, images, base: state, lack }: NodeState): string | undefined {
  if (source.kind === 'open') {
    const { base } = source.cached.facts.metadata;
    if (base?.images && state === 'missing' && lack !== undefined)
      return `it lacks ${lack}, which the bundle leaves out`;
    return unoffered === 'base' && base
      ? `no node has the base of the delta bundle, ${base.version}: insert a USB drive with the delta bundle and ` +
          `the bundle of ${base.version}`
      : undefined;
  }
  if (unoffered === undefined)
    return source.kind === 'removed'
      ? `${source.medium} was removed: insert it again, unless another node has the bundle`
      : undefined;
  if (source.kind === 'removed')
    return `${source.medium} was removed, and no other node has the bundle: insert the USB drive again`;
  // Once its images are counted, the node has had the bundle.
  const lost = images.missing === undefined ? '' : `; it lacks ${images.missing}`;
  return `no node has the bundle: insert the USB drive${images.total > 0 ? ' again' : ''}${lost}`;
}

function isLoaded({ loaded, total }: NodeState['images']): boolean {
  return total > 0 && loaded === total;
}
