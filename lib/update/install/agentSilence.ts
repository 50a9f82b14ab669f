import { isPluginError } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import { readRenewal, reportKind } from '../nodeReport.ts';
import { surveyAgents } from './agentSurvey.ts';

/** Three times the longest pause between two reports of an agent, in milliseconds. */
const limit = 15 * 60_000;

/**
 * Returns a message if no agent of a cluster has reported within the last 15 minutes, by the Leases of the agents. It
 * has the reason why the first pod is not ready. Undefined if an agent has, or if the user may not read the Leases.
 */
export async function describeSilence(cluster: Cluster, now = Date.now()): Promise<string | undefined> {
  const { apiVersion, kind, ...selection } = reportKind;
  const leases = await ifAllowed(cluster.list(apiVersion, kind, selection));
  const latest = leases
    ?.map((lease) => readRenewal(lease).renewed)
    .sort()
    .at(-1);
  if (!leases || (latest !== undefined && now - Date.parse(latest) < limit)) return undefined;
  const first = (await ifAllowed(surveyAgents(cluster)))?.pods.find(({ ready }) => !ready);
  const reason = first ? `; ${first.pod || 'the pod'} on ${first.node}: ${first.reason}` : '';
  const advice = first ? 'get pods' : 'logs -l app.kubernetes.io/name=oc-upgrade-bundle';
  const since = latest === undefined ? 'yet' : `since ${latest}`;
  return `no agent has reported ${since}${reason}. See: oc -n oc-upgrade-bundle ${advice}`;
}

/** Returns the result of reading; undefined if the user may not read it, or the cluster does not serve it. */
async function ifAllowed<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch((error: unknown) => {
    if (isPluginError(error, 'denied') || isPluginError(error, 'not-served')) return undefined;
    throw error;
  });
}
