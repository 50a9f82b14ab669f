import type { Cluster } from './client.ts';
import type { AllowedFacts } from './extraImages.ts';
import type { LoadState } from './loadState.ts';
import type { MissingImage } from './missingImages.ts';
import type { Site } from './readiness.ts';
import type { UpgradeBundle } from './upgradeBundle.ts';

/** What one look at the cluster has found. */
export interface Look {
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
