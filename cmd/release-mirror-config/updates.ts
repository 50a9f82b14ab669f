import type { Context } from '../../lib/context.ts';
import { isPluginError } from '../../lib/errors.ts';
import type { ClusterUpdates } from '../../lib/release/graph/graph.ts';
import { parseArchitecture } from '../../lib/release/version.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import type { MirrorArguments } from './request.ts';

/** What the cluster at hand knows of updates; undefined where there is none, or it does not tell. */
export async function readClusterUpdates(
  args: MirrorArguments,
  environment: NodeJS.ProcessEnv,
  context: Context,
): Promise<ClusterUpdates | undefined> {
  try {
    const options = { ...args, certificateAuthority: undefined, requestTimeout: args.requestTimeout ?? '10s' };
    const cluster = await openCluster(options, environment, context);
    try {
      const version = await cluster.clusterVersion();
      if (!version) return undefined;
      const { platform } = await cluster.version();
      const arch = version.multi ? 'multi' : parseArchitecture(platform.replace(/^linux\//, ''));
      const { upstream, channel, releases } = version;
      return { upstream, channel, arch, known: releases };
    } finally {
      cluster.close();
    }
  } catch (error) {
    if (!isPluginError(error) || error.code === 'interrupted') throw error;
    // Most who mirror releases do so where there is no cluster.
    if (error.code !== 'no-cluster') context.log('warn', `the cluster is not asked for its updates: ${error.message}`);
    return undefined;
  }
}
