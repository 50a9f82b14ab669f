import { isPluginError } from '../errors.ts';
import type { Cluster } from '../kubernetes/client.ts';
import { readRenewal, reportKind } from './nodeReport.ts';

/** Three times the longest pause between two reports of an agent, in milliseconds. */
const limit = 15 * 60_000;

/**
 * Returns a message if no agent of a cluster has reported within the last 15 minutes, by the Leases of the agents.
 * Undefined if an agent has, or if the user may not read the Leases.
 */
export async function describeSilence(cluster: Cluster, now = Date.now()): Promise<string | undefined> {
  const { apiVersion, kind, ...selection } = reportKind;
  const leases = await cluster.list(apiVersion, kind, selection).catch((error: unknown) => {
    if (isPluginError(error, 'denied') || isPluginError(error, 'not-served')) return undefined;
    throw error;
  });
  const latest = leases
    ?.map((lease) => readRenewal(lease).renewed)
    .sort()
    .at(-1);
  if (!leases || (latest !== undefined && now - Date.parse(latest) < limit)) return undefined;
  const since = latest === undefined ? 'yet' : `since ${latest}`;
  return `no agent has reported ${since}: oc -n oc-upgrade-bundle get pods`;
}
