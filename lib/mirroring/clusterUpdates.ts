import type { Context } from '../context.ts';
import { asFailure } from '../errors.ts';
import type { ClusterUpdates } from '../release/graph/graph.ts';
import { parseArchitecture } from '../release/version.ts';
import type { MirroringAccess } from './request.ts';

/** Reads the known updates of the cluster; undefined without a cluster, and if the cluster does not answer. */
export async function readClusterUpdates(
  { openCluster }: MirroringAccess,
  context: Context,
): Promise<ClusterUpdates | undefined> {
  try {
    using cluster = await openCluster('10s');
    const version = await cluster.clusterVersion();
    if (!version) return undefined;
    const { platform } = await cluster.version();
    const arch = version.multi ? 'multi' : parseArchitecture(platform.replace(/^linux\//, ''));
    const { upstream, channel, releases } = version;
    return { upstream, channel, arch, known: releases };
  } catch (error) {
    const { code, message } = asFailure(error);
    // No warning, because most users mirror releases from a machine without a cluster.
    if (code !== 'no-cluster') context.log('warn', `the cluster is not asked for its updates: ${message}`);
    return undefined;
  }
}
