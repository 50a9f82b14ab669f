import type { Cluster } from '#cluster/client';
import { clusterVersionReference, readClusterVersion } from '#cluster/version';
import type { Context } from '#context';
import { backUpCluster, listBackups, measureDatabase } from '#node/clusterBackup';
import type { Host } from '#node/machine';
import { isRecentBackup, type BackupReport } from '../record/nodeReport.ts';
import type { UpgradeBundle } from '../record/upgradeBundle.ts';
import { AgentJob } from './agentJob.ts';

/**
 * Backs up etcd on a node while the controller asks for it. The state is on the disk, so the process may end at any
 * point.
 */
export class AgentBackup {
  readonly #cluster: Cluster;
  readonly #host: Host;
  readonly #job: AgentJob;

  constructor(cluster: Cluster, host: Host, context: Context) {
    this.#cluster = cluster;
    this.#host = host;
    this.#job = new AgentJob(context);
  }

  /** Aborted when a running backup ends. */
  get ended(): AbortSignal {
    return this.#job.ended;
  }

  /** Returns the bytes of the etcd database of the node; undefined on a node without etcd. */
  measure(): Promise<number | undefined> {
    return measureDatabase(this.#host);
  }

  /**
   * Starts the backup that an UpgradeBundle asks this node for, unless it is running or made. Returns what the node
   * reports about it; undefined if it is not asked. Throws the errors of reading the cluster.
   */
  async advance({ metadata, spec, status }: UpgradeBundle, node: string): Promise<BackupReport | undefined> {
    if (status?.backupNode !== node) {
      this.#job.clearFailure();
      return undefined;
    }
    const purpose = `${metadata.uid ?? ''} ${status.version ?? ''}`;
    const clusterVersion = await this.#cluster.read(clusterVersionReference);
    const version = clusterVersion && readClusterVersion(clusterVersion).version;
    if (version === undefined || version === '') return undefined;
    const backup = (await listBackups(this.#host)).find((each) => each.purpose === purpose && each.version === version);
    if (backup && isRecentBackup(backup)) {
      const { purpose: _, ...made } = backup;
      return { made };
    }
    this.#job.start('backup', `backing up etcd of ${version}`, (context) =>
      backUpCluster(this.#host, { version, purpose, copyTo: spec.backupTo }, context),
    );
    const { failure } = this.#job;
    return failure === undefined ? undefined : { failure };
  }

  /** Stops the running backup. */
  async close(): Promise<void> {
    await this.#job.stop();
  }
}
