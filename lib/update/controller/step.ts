import type { RecordedOutline } from '../record/bundleFacts.ts';
import type { BundleCondition } from '../record/conditions.ts';
import type { HopProgress, NodeProgress, Phase, UpgradeBundleStatus } from '../record/upgradeBundle.ts';

/** The phase of the rollout after a step, and the reasons. */
export interface Step {
  readonly phase: Phase;
  readonly conditions: readonly BundleCondition[];
  readonly version?: string;
  readonly release?: string;
  /** The updates to several releases; by default those of the status. */
  readonly hops?: readonly HopProgress[];
  /** The version of the base release of a delta bundle. */
  readonly base?: string;
  /** The outline of the bundle; by default that of the status. */
  readonly outline?: RecordedOutline;
  /** The node that is to back up etcd now. */
  readonly backupNode?: string;
  /** The backups for the record; by default those of the status. */
  readonly backups?: UpgradeBundleStatus['backups'];
  /** The share of the update that the version operator has done; by default the share of loaded images counts. */
  readonly progress?: string;
  /** Why the update cannot continue without an administrator. */
  readonly stall?: string;
  /** The last entries of the nodes; by default their reports. */
  readonly nodes?: readonly NodeProgress[];
}
