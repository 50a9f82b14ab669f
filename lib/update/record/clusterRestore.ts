import type { Cluster } from '#cluster/client';
import { isObjectName, type StoredObject, listServed } from '#cluster/objects';
import { clusterVersionReference, readClusterVersion } from '#cluster/version';
import { hexOf, isDigest } from '#content/oci';
import { PluginError } from '#errors';
import { fieldsOf, listOf, textOf } from '#fields';
import { clusterBackup, keptBackups } from '#node/clusterBackup';
import { readNode, isControlPlane } from '#readiness/nodes';
import { topologyOf } from '#readiness/preflight';
import { isOlder } from '#release/version';
import { readStated } from '#schema';
import { shellCommand } from '#text';
import { listNames } from './conditions.ts';
import { readRendered } from './poolRollout.ts';
import type { RecordedBackup, UpgradeBundle } from './upgradeBundle.ts';

/** One step of a restore: commands for a shell of the nodes, or of the administrator. */
export interface RestoreStep {
  readonly purpose: string;
  /** The nodes whose shells get the commands; empty for the shell of the administrator. */
  readonly nodes: readonly string[];
  readonly commands: readonly string[];
}

/** How to restore etcd from a backup of a record. */
export interface ClusterRestore {
  readonly record: string;
  readonly backup: RecordedBackup;
  /** Why the product supports no restore of this backup now; empty if it does. */
  readonly obstacles: readonly string[];
  /** What to know before a restore. */
  readonly cautions: readonly string[];
  /** Empty if the backup is gone, or if the procedure for this cluster is unknown. */
  readonly steps: readonly RestoreStep[];
}

const day = 86_400_000;
/**
 * The validity of the certificates with the shortest life, in days, and the age at which they are renewed (openshift
 * cluster-kube-apiserver-operator and cluster-kube-controller-manager-operator, certrotation). A backup has
 * certificates of any age up to the renewal.
 */
const validity = 30;
const renewal = 15;

/**
 * Plans the restore of the backup of an UpgradeBundle by the procedure of OpenShift (“Restoring to a previous cluster
 * state”, 4.18 and later). Changes nothing. `records`: all UpgradeBundles. Throws `not-found` if the record has no
 * backup, and the errors of reading the cluster.
 */
export async function planClusterRestore(
  cluster: Cluster,
  bundle: UpgradeBundle,
  records: readonly UpgradeBundle[],
): Promise<ClusterRestore> {
  const [clusterVersion, nodes, pools, infrastructures] = await Promise.all([
    cluster.read(clusterVersionReference),
    cluster.list('v1', 'Node'),
    listServed(cluster, 'machineconfiguration.openshift.io/v1', 'MachineConfigPool'),
    listServed(cluster, 'config.openshift.io/v1', 'Infrastructure'),
  ]);
  const { desired } = readClusterVersion(clusterVersion ?? clusterVersionReference);
  const { backups, malformed } = readBackups(bundle);
  const backup = backups.findLast(({ version }) => version === desired) ?? backups.at(-1);
  if (!backup) {
    throw new PluginError('not-found', `${bundle.metadata.name} has no backup`, {
      hint:
        malformed > 0
          ? `The record has ${malformed} of another form: a node reported what no backup of this program is.`
          : 'A backup is made just before the update is requested, unless spec.backup is off.',
    });
  }
  const topology = topologyOf(infrastructures);
  const all = records.flatMap((record) => readBackups(record).backups);
  const unknown = [...findOtherProcedure(backup, topology), ...findLoss(backup, nodes, all)];
  const obstacles = [
    ...findOtherRelease(backup, desired),
    ...findOtherConfig(backup, pools),
    ...findExpired(backup, clusterVersion),
    ...unknown,
  ];
  const hosts = nodes.filter(isEtcdHost).map(({ metadata }) => metadata.name);
  return {
    record: bundle.metadata.name,
    backup,
    obstacles,
    cautions: listCautions(backup, nodes, malformed),
    steps: unknown.length > 0 ? [] : listSteps(bundle.metadata.name, backup, hosts.sort(), topology),
  };
}

/** Returns the well-formed backups of a record, and the number of the others. A node has reported them. */
function readBackups({ status }: UpgradeBundle): { backups: RecordedBackup[]; malformed: number } {
  const reported = status?.backups ?? [];
  const backups = reported.flatMap((value) => {
    const backup = readStated(clusterBackup, value);
    const node = textOf(fieldsOf(value)['node']);
    const pools = listOf(fieldsOf(value)['pools']).map(({ name, config }) => ({
      name: textOf(name) ?? '',
      config: textOf(config) ?? '',
    }));
    return backup && node !== undefined && isObjectName(node) ? [{ ...backup, node, pools }] : [];
  });
  return { backups, malformed: reported.length - backups.length };
}

function findOtherRelease({ version }: RecordedBackup, desired: string): string[] {
  if (version === desired) return [];
  const words =
    `the backup is of ${version}, and the cluster runs or installs ${desired || 'an unknown release'}: OpenShift ` +
    'restores a backup of the same release only';
  return [
    `${words}. Let the update end (oc adm upgrade). Within a minor version, “oc adm upgrade rollback” leads back`,
  ];
}

function findOtherProcedure({ version }: RecordedBackup, topology: string): string[] {
  const words = 'follow “Restoring to a previous cluster state” of the documentation of OpenShift';
  return [
    ...(isOlder(version, '4.18.0') ? [`the procedure before 4.18 depends on the platform: ${words} ${version}`] : []),
    ...(topology === 'DualReplica' && isOlder(version, '4.22.0-0')
      ? [
          'the control plane has two nodes with fencing, whose etcd has no script for that before 4.22: ' +
            `${words} for them`,
        ]
      : []),
  ];
}

// After a restore, the machine config daemon finds other files than etcd says, and degrades the node.
function findOtherConfig({ pools = [] }: RecordedBackup, present: readonly StoredObject[]): string[] {
  const changed = pools.flatMap(({ name, config }) => {
    const pool = present.find(({ metadata }) => metadata.name === name);
    const now = pool && readRendered(pool['status']);
    return config === '' || now === config ? [] : [`${name} (${config}, now ${now ?? 'gone'})`];
  });
  if (changed.length === 0) return [];
  return [
    `the machine configuration changed since the backup: ${listNames(changed)}. The nodes would be degraded, ` +
      'because their files would differ from the restored configuration',
  ];
}

function findExpired({ time }: RecordedBackup, clusterVersion: StoredObject | undefined): string[] {
  const created = Date.parse(textOf(clusterVersion?.metadata['creationTimestamp']) ?? '');
  const age = Date.now() - Date.parse(time);
  return [
    ...(Date.parse(time) < created + day
      ? ['the backup is from the first 24 hours of the cluster, and has certificates that have expired']
      : []),
    ...(age > validity * day ? [`the backup is older than ${validity} days, so certificates in it have expired`] : []),
  ];
}

function findLoss(
  { node, path, time, copy }: RecordedBackup,
  nodes: readonly StoredObject[],
  all: readonly RecordedBackup[],
): string[] {
  if (copy !== undefined) return [];
  const newer = new Set(all.filter((each) => each.node === node && each.time > time).map((each) => each.path));
  if (newer.size >= keptBackups)
    return [`${node} has removed ${path}: it keeps the last ${keptBackups} backups, and there is no copy`];
  const isGone = !nodes.some(({ metadata }) => metadata.name === node);
  return isGone ? [`${node}, which had the backup, is no longer in the cluster, and there is no copy`] : [];
}

function listCautions(
  { time, node, copy }: RecordedBackup,
  nodes: readonly StoredObject[],
  malformed: number,
): string[] {
  const joined = nodes.flatMap(({ metadata }) =>
    Date.parse(textOf(metadata['creationTimestamp']) ?? '') > Date.parse(time) ? [metadata.name] : [],
  );
  const isOld = Date.now() - Date.parse(time) > renewal * day;
  const isGone = !nodes.some(({ metadata }) => metadata.name === node);
  return [
    'A restore takes all objects of the cluster back to the time of the backup. Everything that was created ' +
      'since is lost. Use it only if etcd has lost its quorum, or its data.',
    ...(isGone
      ? [
          shellCommand`${node} is gone: copy ${copy ?? ''} to another control plane node, and take that node and folder below.`,
        ]
      : []),
    ...(malformed > 0
      ? [`The record has ${malformed} backups of another form, which a node reported. They are left out.`]
      : []),
    ...(joined.length > 0 ? [`These nodes joined since and have to join again: ${listNames(joined)}.`] : []),
    ...(isOld
      ? [
          `Certificates in it may have expired, because it is older than ${renewal} days. Nodes then need new ` +
            'ones: oc get csr.',
        ]
      : []),
  ];
}

function isEtcdHost(object: StoredObject): boolean {
  const node = readNode(object);
  return isControlPlane(node) || 'node-role.kubernetes.io/arbiter' in node.labels;
}

/**
 * Lists the steps. Of two nodes with fencing, pacemaker runs etcd: there, `cluster-restore.sh` stops it on both nodes,
 * and begins a new cluster (cluster-etcd-operator release-4.22, bindata/etcd/cluster-restore-tnf.sh, and
 * pkg/operator/scriptcontroller, which gives it that name).
 */
function listSteps(
  record: string,
  { node, path, digest }: RecordedBackup,
  hosts: readonly string[],
  topology: string,
): RestoreStep[] {
  const isFenced = topology === 'DualReplica';
  const quorumGuard = (value: string): string =>
    `oc patch etcd/cluster --type=merge -p '{"spec":{"unsupportedConfigOverrides":${value}}}'`;
  const isSingle = hosts.length === 1;
  const off = quorumGuard('{"useUnsupportedUnsafeNonHANonProductionUnstableEtcd":true}');
  const step = (purpose: string, nodes: readonly string[], ...commands: string[]): RestoreStep => ({
    purpose,
    nodes,
    commands,
  });
  return [
    step(
      'Open a session to each control plane node, and keep it open: the API server does not answer meanwhile.',
      [],
      ...hosts.map((host) => shellCommand`ssh core@${host}`),
    ),
    step(
      `Check the snapshot. Its SHA-256 is ${isDigest(digest) ? hexOf(digest) : ''}.`,
      [node],
      shellCommand`sudo sh -c ${shellCommand`sha256sum ${path}/snapshot_*.db`}`,
    ),
    ...(isSingle || isFenced
      ? []
      : [
          step(
            'Stop etcd on each control plane node, one after the other.',
            hosts,
            'sudo -E /usr/local/bin/disable-etcd.sh',
          ),
        ]),
    step(
      isFenced
        ? 'Restore etcd on the node with the backup. The script has pacemaker stop etcd on both nodes, and start ' +
            'it again.'
        : 'Restore etcd on the node with the backup.',
      [node],
      shellCommand`sudo -E /usr/local/bin/cluster-restore.sh ${path}`,
    ),
    step(
      'When the API server answers, hold the update, because the restored record would request it again.',
      [],
      shellCommand`oc patch upgradebundle ${record} --type=merge -p '{"spec":{"hold":true}}'`,
    ),
    ...(isSingle || isFenced ? [] : [step('Turn off the quorum guard of the etcd operator.', [], off)]),
    step(
      'Wait until the cluster is stable. Approve the requests of nodes that are not ready: oc get csr.',
      [],
      'oc adm wait-for-stable-cluster',
    ),
    ...(isFenced
      ? [
          step(
            'If the etcd operator does not begin with its rollout, begin it.',
            [],
            `oc patch etcd cluster --type=merge -p '{"spec":{"forceRedeploymentReason":"restore"}}'`,
          ),
        ]
      : []),
    ...(isSingle || isFenced ? [] : [step('Turn on the quorum guard again.', [], quorumGuard('null'))]),
    step('Check the cluster. To update again: oc adm-upgrade-bundle resume.', [], 'oc adm-upgrade-bundle preflight'),
  ];
}
