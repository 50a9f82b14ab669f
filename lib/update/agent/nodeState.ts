import type { PluginError } from '../../errors.ts';
import type { FoundBundle } from '../../node/media/medium.ts';
import { isAtLeast, mayFetch, mayLoad, type NodePhase, type UpgradeBundle } from '../upgradeBundle.ts';
import type { AgentJob } from './agentJob.ts';
import type { CachedBundle } from './bundleCache.ts';

/** The name of a node, and its role in the cluster. */
export interface NodeFacts {
  readonly name: string;
  readonly controlPlane: boolean;
  /** Whether the cluster has PinnedImageSets. The node itself then pins nothing. */
  readonly pinsByCluster: boolean;
}

/** The place where a node has the allowed bundle. */
export type BundleSource =
  | { readonly kind: 'none' }
  /** The medium with the bundle was removed while the node needed it. */
  | { readonly kind: 'removed'; readonly message: string }
  /** A medium has the bundle, but cannot be read to its end or is corrupt. */
  | { readonly kind: 'unreadable'; readonly error: PluginError }
  /**
   * The bundle is verified, open and offered to other nodes. `medium` is undefined for a copy on the node’s own disk.
   */
  | { readonly kind: 'open'; readonly cached: CachedBundle; readonly medium: FoundBundle | undefined };

/** The knowledge of a node about the allowed bundle and its images. */
export interface NodeState {
  readonly source: BundleSource;
  /** The number of images in the store, and of images in the bundle; both 0 until they are counted. */
  readonly images: { readonly loaded: number; readonly total: number };
  /** Bytes of the bundle that the node has fetched so far, or of the whole bundle. */
  readonly bytes: number;
  /** Whether the node itself has pinned the images. */
  readonly isPinned: boolean;
  /** The reason why the node does not load images: it cannot read its own copy. */
  readonly obstacle: string | undefined;
  /** Another bundle that is inserted and ignored, as a message. */
  readonly other?: string | undefined;
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
  | { readonly kind: 'load'; readonly source: BundleSource & { readonly kind: 'open' } }
  | { readonly kind: 'pin' };

/** Chooses the next task of a node. `unverified` is a medium that may have the bundle. */
export function chooseTask(
  { source, images, isPinned, obstacle }: NodeState,
  unverified: FoundBundle | undefined,
  bundle: UpgradeBundle,
  node: NodeFacts,
): NodeTask {
  if (source.kind !== 'open' && unverified) return { kind: 'verify', medium: unverified };
  if (isLoaded(images)) {
    const mayPin = !node.pinsByCluster && !isPinned && isAtLeast(bundle, 'Loaded');
    return { kind: mayPin ? 'pin' : 'idle' };
  }
  if (obstacle !== undefined) return { kind: 'idle' };
  if (source.kind === 'open') return mayLoad(bundle, node) ? { kind: 'load', source } : { kind: 'idle' };
  return { kind: mayFetch(bundle, node) ? 'fetch' : 'idle' };
}

/** Returns the phase that a node reports. */
export function nodePhase(
  { images, isPinned, obstacle }: NodeState,
  job: Pick<AgentJob, 'kind' | 'failure'>,
  bundle: UpgradeBundle,
  { pinsByCluster }: NodeFacts,
): NodePhase {
  if (job.failure !== undefined) return 'Failed';
  if (isLoaded(images)) return (pinsByCluster ? isAtLeast(bundle, 'Pinned') : isPinned) ? 'Pinned' : 'Loaded';
  if (obstacle !== undefined) return 'Failed';
  return job.kind === 'fetch' || job.kind === 'load' ? 'Loading' : 'Waiting';
}

/** Returns the messages that a node reports: its failure or its job, and a medium that it still needs. */
export function nodeMessages(
  { images, source, obstacle, other }: NodeState,
  job: Pick<AgentJob, 'name' | 'failure'>,
  phase: NodePhase,
): string[] {
  const own = phase === 'Failed' ? (obstacle ?? job.failure) : (job.name ?? obstacle);
  const removed = source.kind === 'removed' && !isLoaded(images) ? source.message : undefined;
  return [own, removed, isLoaded(images) ? undefined : other].filter((message) => message !== undefined);
}

function isLoaded({ loaded, total }: NodeState['images']): boolean {
  return total > 0 && loaded === total;
}
