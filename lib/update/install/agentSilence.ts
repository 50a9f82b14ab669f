import type { Cluster } from '#cluster/client';
import { ignoring, nameSome } from '#errors';
import { readReport, reportKind } from '../record/nodeReport.ts';
import { surveyAgents } from './agentSurvey.ts';

/** Three times the longest pause between two reports of an agent, in milliseconds. */
const limit = 15 * 60_000;
/** The smallest difference of clocks to report, in milliseconds. A report is written some moments after it is made. */
const tolerance = 60_000;

/**
 * Returns a message if no agent of a cluster has reported within the last 15 minutes, by the Leases of the agents. It
 * has the reason why the first pod is not ready. Undefined if an agent has, or if the user may not read the Leases.
 * Compares times of the API server: the clocks of nodes may differ.
 */
export async function describeSilence(cluster: Cluster): Promise<string | undefined> {
  const leases = await listReports(cluster);
  const latest = leases && Math.max(0, ...leases.flatMap(({ written }) => (Number.isNaN(written) ? [] : [written])));
  if (latest === undefined || cluster.now() - latest < limit) return undefined;
  const agents = await surveyAgents(cluster).catch(ignoring('denied', 'not-served'));
  const first = agents?.pods.find(({ ready }) => !ready);
  const reason = first ? `; ${first.pod || 'the pod'} on ${first.node}: ${first.reason}` : '';
  const advice = first ? 'get pods' : 'logs -l app.kubernetes.io/name=oc-upgrade-bundle';
  const since = latest === 0 ? 'yet' : `since ${new Date(latest).toISOString().replace(/\.\d+/, '')}`;
  return `no agent has reported ${since}${reason}. See: oc -n oc-upgrade-bundle ${advice}`;
}

/**
 * Returns a message about nodes whose clocks differ from that of the API server by over a minute, and about this
 * machine, with the differences. Undefined if none does, or if the user may not read the Leases.
 */
export async function describeClocks(cluster: Cluster): Promise<string | undefined> {
  const leases = (await listReports(cluster)) ?? [];
  const clocks = [
    ...leases.map(({ node, renewed, written }) => ({ name: node, difference: renewed - written })),
    { name: 'this machine', difference: Date.now() - cluster.now() },
  ].filter(({ difference }) => Math.abs(difference) > tolerance);
  if (clocks.length === 0) return undefined;
  const names = clocks.map(({ name, difference }) => {
    return `${name} ${describeTime(Math.abs(difference))} ${difference < 0 ? 'behind' : 'ahead'}`;
  });
  return `clocks differ from that of the API server: ${nameSome(names)}. Set them: certificates and times depend on them`;
}

async function listReports(cluster: Cluster) {
  const { apiVersion, kind, ...selection } = reportKind;
  const leases = await cluster.list(apiVersion, kind, selection).catch(ignoring('denied', 'not-served'));
  const reports = leases?.flatMap((lease) => readReport(lease) ?? []);
  return reports?.map(({ node, renewed, written }) => {
    const made = Date.parse(renewed);
    return { node, renewed: made, written: Number.isNaN(written) ? made : written };
  });
}

function describeTime(milliseconds: number): string {
  const minutes = Math.round(milliseconds / 60_000);
  if (minutes < 120) return minutes === 1 ? '1 minute' : `${minutes} minutes`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} hours` : `${Math.round(hours / 24)} days`;
}
