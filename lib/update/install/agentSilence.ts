import { ignoring } from '../../errors.ts';
import type { Cluster } from '../../cluster/client.ts';
import { readRenewal, reportKind } from '../nodeReport.ts';
import { surveyAgents } from './agentSurvey.ts';

/** Three times the longest pause between two reports of an agent, in milliseconds. */
const limit = 15 * 60_000;

/**
 * Returns a message if no agent of a cluster has reported within the last 15 minutes, by the Leases of the agents. It
 * has the reason why the first pod is not ready. Undefined if an agent has, or if the user may not read the Leases.
 */
export async function describeSilence(cluster: Cluster): Promise<string | undefined> {
  const { apiVersion, kind, ...selection } = reportKind;
  const leases = await cluster.list(apiVersion, kind, selection).catch(ignoring('denied', 'not-served'));
  const latest = leases
    ?.map((lease) => readRenewal(lease).renewed)
    .sort()
    .at(-1);
  if (!leases || (latest !== undefined && Date.now() - Date.parse(latest) < limit)) return undefined;
  const agents = await surveyAgents(cluster).catch(ignoring('denied', 'not-served'));
  const first = agents?.pods.find(({ ready }) => !ready);
  const reason = first ? `; ${first.pod || 'the pod'} on ${first.node}: ${first.reason}` : '';
  const advice = first ? 'get pods' : 'logs -l app.kubernetes.io/name=oc-upgrade-bundle';
  const since = latest === undefined ? 'yet' : `since ${latest}`;
  return `no agent has reported ${since}${reason}. See: oc -n oc-upgrade-bundle ${advice}`;
}
