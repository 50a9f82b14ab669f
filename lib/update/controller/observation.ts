import type { Cluster } from '../../kubernetes/client.ts';
import type { AllowedFacts } from '../extraImages.ts';
import type { LoadState } from './loadState.ts';
import type { MissingImage } from './missingImages.ts';
import type { Site } from './readiness.ts';
import type { UpgradeBundle } from '../upgradeBundle.ts';
import type { LeaseOptions } from '../../kubernetes/lease.ts';
import type { Digest } from '../../oci/digest.ts';
import type { BundleFacts } from '../bundleFacts.ts';

/** What one look at the cluster has found. */
export interface Observation {
  readonly cluster: Cluster;
  readonly bundle: UpgradeBundle;
  /** Other UpgradeBundles that are not done either, by name. */
  readonly rivals: readonly string[];
  readonly site: Site;
  readonly load: LoadState;
  /** What is known of the bundle; asked when it is needed. */
  readonly facts: () => Promise<AllowedFacts | undefined>;
  /** Pauses what would replace, remove or add nodes. */
  readonly pause: () => Promise<void>;
  /** Restores what was paused. */
  readonly restore: () => Promise<void>;
  /** The images that nodes tried to pull in vain. */
  readonly missing: (images: readonly string[]) => Promise<readonly MissingImage[]>;
}

/**
 * How to control the rollout of bundles. Nodes load when `mayLoad` says so; it is the controller that decides, by the phase and,
 * for the control plane, by whose turn it is.
 */
export interface RolloutOptions {
  /** Who this is, for the Lease: the name of the node. */
  readonly identity: string;
  /** Where the Lease is. */
  readonly namespace: string;
  /** Reads the facts of the bundle with a digest that this node has verified; undefined if it has not yet. */
  readBundle(digest: Digest): Promise<BundleFacts | undefined>;
  /** Milliseconds after which the cluster is looked at even if it did not change, and whether somebody leads by those who do not; default 15 s. It is looked at no more than 15 times as often. */
  readonly pace?: number;
  readonly lease?: Pick<LeaseOptions, 'duration' | 'retryPeriod' | 'acquirePeriod'>;
}
