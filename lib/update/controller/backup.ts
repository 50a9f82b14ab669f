import { readClusterVersion } from '#cluster/version';
import { keptBackups } from '#node/clusterBackup';
import { readNode, isControlPlane } from '#readiness/nodes';
import { falseCondition, type BundleCondition } from '../record/conditions.ts';
import { isRecentBackup } from '../record/nodeReport.ts';
import { readRendered } from '../record/poolRollout.ts';
import type { UpgradeBundleStatus } from '../record/upgradeBundle.ts';
import type { Observation } from './observation.ts';

/** The backup before an update: its condition, the node that makes it, and the backups for the record. */
export interface BackupState {
  readonly condition: BundleCondition;
  readonly backupNode?: string;
  readonly backups?: UpgradeBundleStatus['backups'];
}

/**
 * Has the agent of a control plane node back up etcd before an update, unless `spec.backup` is `off`. The condition is
 * true when the agent reports a checked backup of the running version. Another node makes it only if the node is gone,
 * not ready or silent, so that backups of several updates are in one place.
 */
export function awaitBackup({ bundle, site, reports }: Observation): BackupState {
  const { backups = [], backupNode } = bundle.status ?? {};
  if (bundle.spec.backup === 'off') {
    const words = 'spec.backup is off: there is no backup of this update';
    return { condition: falseCondition('BackedUp', 'Off', words) };
  }
  const able = site.nodes
    .map(readNode)
    .filter((node) => isControlPlane(node) && node.ready && reports.get(node.name)?.isRecent)
    .map(({ name }) => name)
    .sort();
  const node = [backupNode, backups.at(-1)?.node].find((name) => name !== undefined && able.includes(name)) ?? able[0];
  if (node === undefined) {
    const words = 'no control plane node that is ready has an agent that reports, to back up etcd before the update';
    return { condition: falseCondition('BackedUp', 'NoNode', words) };
  }
  const { version } = readClusterVersion(site.clusterVersion);
  const { made, failure } = reports.get(node)?.backup ?? {};
  if (made?.version === version && isRecentBackup(made)) {
    const message = `etcd and the static pods of ${version} are in ${made.path} on ${node}${made.copy === undefined ? '' : `, and in ${made.copy}`}`;
    const pools = site.pools.map(({ metadata, status }) => [metadata.name, readRendered(status)] as const);
    const otherBackups = backups.filter(({ path }) => path !== made.path);
    const entry = { node, ...made, pools: pools.map(([name, config]) => ({ name, config })) };
    return {
      condition: { type: 'BackedUp', status: 'True', reason: 'BackedUp', message },
      backups: [...otherBackups, entry].slice(-keptBackups),
    };
  }
  const condition =
    failure === undefined
      ? falseCondition('BackedUp', 'BackingUp', `${node} backs up etcd and the static pods of ${version}`)
      : falseCondition('BackedUp', 'BackupFailed', `${node} cannot back up etcd before the update: ${failure}`);
  return { condition, backupNode: node };
}
