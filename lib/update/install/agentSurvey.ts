import type { Cluster } from '#cluster/client';
import { conditionsOf, timeOfEvent, type StoredObject } from '#cluster/objects';
import type { KubernetesObject } from '#config/manifest';
import { ignoring, nameSome } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf } from '#fields';
import {
  agentArchitectures,
  type ClusterNode,
  isCovered,
  mayHaveAgent,
  nameWithoutAgent,
  readNode,
} from '#readiness/nodes';
import { readReport, reportKind } from '../record/nodeReport.ts';
import { agentNamespace } from '../record/upgradeBundle.ts';
import { executableVariable, type NodeArchitecture } from './agentScript.ts';
import { agentLabels } from './metricsObjects.ts';

/** The pod of an agent on a node, or the lack of one. */
export interface AgentPod {
  readonly node: string;
  /** The architecture by its name in Go: `amd64`. */
  readonly architecture: string;
  /** The name of the pod; empty if there is none. */
  readonly pod: string;
  /** Whether its container runs, so that it can run commands. */
  readonly running: boolean;
  readonly ready: boolean;
  /** The reason why the pod is not ready. */
  readonly reason: string;
  /** Whether there is no pod because the API server refuses it. */
  readonly isRefused: boolean;
}

/** The agents of a cluster. */
export interface AgentSurvey {
  /** One entry for each node on which an agent can run, sorted by the names of the nodes. */
  readonly pods: readonly AgentPod[];
  /**
   * Whether every such node has an agent that is ready and of the present template, and every control plane node such a
   * controller, if controllers are installed.
   */
  readonly complete: boolean;
  /** The names of the other nodes, with the reason; undefined if there are none. */
  readonly withoutAgent: string | undefined;
}

/** The DaemonSet of the controllers. */
export const controllerSet = {
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'controller', namespace: agentNamespace },
} as const;

/** The DaemonSet of the agents. */
export const agentSet = {
  apiVersion: 'apps/v1',
  kind: 'DaemonSet',
  metadata: { name: 'agent', namespace: agentNamespace },
} as const;

/** Reads the nodes, the pods of the agents, and the status of their DaemonSets. Throws the errors of reading. */
export async function surveyAgents(cluster: Cluster): Promise<AgentSurvey> {
  const labelSelector = Object.entries(agentLabels)
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
  const [set, controllers, nodes, pods] = await Promise.all([
    cluster.read(agentSet),
    cluster.read(controllerSet),
    cluster.list('v1', 'Node'),
    cluster.list('v1', 'Pod', { namespace: agentNamespace, labelSelector }),
  ]);
  const mine = pods.filter((pod) => pod.metadata['deletionTimestamp'] === undefined);
  const all = nodes.map(readNode);
  const architectures = set ? readArchitectures(set) : [];
  const able = all.filter((node) => mayHaveAgent(node) && isCovered(node, architectures));
  const places = able.map((node) => {
    return { node, pod: mine.find(({ spec }) => fieldsOf(spec)['nodeName'] === node.name) };
  });
  // A pod on another node never gets ready, and may never end.
  const others = pods.filter(({ spec }) => !able.some(({ name }) => name === fieldsOf(spec)['nodeName'])).length;
  const refusal = places.every(({ pod }) => pod) ? undefined : await findRefusal(cluster);
  const surveyed = places.map(({ node, pod }) => agentPodOf(node, pod, refusal));
  const settled = set !== undefined && isSettled(set, others) && (!controllers || isSettled(controllers));
  const complete = settled && surveyed.every(({ ready }) => ready);
  const sorted = surveyed.toSorted((a, b) => (a.node < b.node ? -1 : 1));
  return { pods: sorted, complete, withoutAgent: nameWithoutAgent(all, architectures) };
}

/** Returns the architectures for which a DaemonSet names executables; none in one that needs no executable. */
function readArchitectures({ spec }: StoredObject): NodeArchitecture[] {
  const [container] = listOf(fieldsAt(spec, 'template', 'spec')['containers']);
  const names = listOf(container?.['env']).map(({ name }) => name);
  return agentArchitectures.filter((architecture) => names.includes(executableVariable(architecture)));
}

/**
 * Returns the latest reason why the pods of the agents were refused, such as a quota or a missing class of priority.
 */
async function findRefusal(cluster: Cluster): Promise<string | undefined> {
  const fieldSelector = 'involvedObject.kind=DaemonSet,involvedObject.name=agent,reason=FailedCreate';
  const events = await cluster
    .list('v1', 'Event', { namespace: agentNamespace, fieldSelector })
    .catch(ignoring('denied'));
  const latest = events?.toSorted((a, b) => (timeOfEvent(a) || 0) - (timeOfEvent(b) || 0)).at(-1);
  return textOf(latest?.['message']);
}

/** Returns whether all pods of a DaemonSet, except some others, are of its present template, and ready. */
function isSettled({ metadata, status }: StoredObject, others = 0): boolean {
  const { observedGeneration, ...counted } = fieldsOf(status);
  const names = ['desiredNumberScheduled', 'updatedNumberScheduled', 'numberReady'];
  const counts = names.map((name) => Number(counted[name] ?? 0));
  const isCurrent = Number(observedGeneration ?? 0) >= Number(fieldsOf(metadata)['generation'] ?? 0);
  return isCurrent && counts.every((count) => count >= (counts[0] ?? 0) - others);
}

function agentPodOf(
  { name, architecture, ready }: ClusterNode,
  pod: KubernetesObject | undefined,
  refusal = noPod,
): AgentPod {
  const isRefused = !pod && ready && refusal !== noPod;
  const own = { node: name, architecture, pod: pod?.metadata.name ?? '', isRefused };
  if (!pod) return { ...own, running: false, ready: false, reason: ready ? refusal : notReady };
  const conditions = conditionsOf(pod);
  const [container] = listOf(fieldsOf(pod['status'])['containerStatuses']);
  const state = fieldsOf(container?.['state']);
  const isReady = ready && conditions.get('Ready')?.status === 'True';
  const reason = isReady ? '' : ready ? reasonOf(pod, state, container) : notReady;
  return { ...own, running: ready && state['running'] !== undefined, ready: isReady, reason };
}

const noPod = 'there is no pod yet';
const notReady = 'the node is not ready';

function reasonOf(
  pod: KubernetesObject,
  state: Record<string, unknown>,
  container: Record<string, unknown> = {},
): string {
  const waiting = fieldsOf(state['waiting']);
  const scheduled = conditionsOf(pod).get('PodScheduled');
  const ended = fieldsAt(container, 'lastState', 'terminated');
  const restarts = Number(container['restartCount'] ?? 0);
  if (scheduled?.status === 'False') return scheduled.message || scheduled.reason;
  if (textOf(waiting['reason']) !== undefined) {
    const details = textOf(waiting['message']) ?? textOf(ended['message']);
    return `${String(waiting['reason'])}${details === undefined ? '' : `: ${details}`}`;
  }
  if (restarts > 0) return `it has ended ${restarts} times, the last time with exit code ${String(ended['exitCode'])}`;
  return state['running'] === undefined
    ? 'its container is not running yet'
    : 'the agent has not started yet, or cannot report to the API server';
}

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
  return (
    `clocks differ from that of the API server: ${nameSome(names)}. Set them: certificates and times depend on ` +
    'them'
  );
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
