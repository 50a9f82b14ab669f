import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { surveyAgents, type AgentPod, type AgentSurvey } from './agentSurvey.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { WaitOptions } from '../../waiting.ts';
import type { Executable } from './executable.ts';
import { uploadExecutable } from './executableUpload.ts';

/** The time to wait for the agents, in milliseconds. */
export interface StartupOptions extends WaitOptions {
  /**
   * The time in which nodes may fetch the executable from each other, in milliseconds; default a minute. After it the
   * executable is uploaded to each node.
   */
  readonly peerTime?: number;
  /** The time after which refused pods will not come by waiting, in milliseconds; default a minute. */
  readonly refusalTime?: number;
}

/**
 * Uploads the executable to one node of each architecture, from which the others fetch it, and to nodes that fail to
 * fetch it. Waits until an agent is ready on every node, and logs the pods that are not ready. Throws `not-ready` with
 * these pods after the timeout, or earlier if the API server refuses all of them, and the errors of uploadExecutable.
 */
export async function startAgents(
  cluster: Cluster,
  executables: readonly Executable[],
  options: StartupOptions,
  context: Context,
): Promise<AgentSurvey> {
  const { timeout, interval = 2000, peerTime = 60_000, refusalTime = 60_000 } = options;
  const started = Date.now();
  const end = started + timeout;
  let refusedSince = Infinity;
  const brought = new Set<string>();
  const since = new Map<string, number>();
  let logged = '';
  for (;;) {
    checkInterrupted(context.signal);
    const survey = await surveyAgents(cluster);
    if (survey.complete) return survey;
    const words = describe(survey);
    const lasting = words.replace(changing, '');
    if (lasting !== logged) context.log('info', words);
    logged = lasting;
    const next = executables.flatMap((executable) => choose(survey, executable, { brought, since, peerTime }) ?? []);
    for (const { pod, executable } of next) {
      context.log('info', `uploading the executable to ${pod.node}`);
      await uploadExecutable(cluster, pod, executable, context);
      brought.add(pod.pod);
    }
    const isRefused = survey.pods.length > 0 && survey.pods.every((pod) => pod.isRefused);
    refusedSince = isRefused ? Math.min(refusedSince, Date.now()) : Infinity;
    if (Date.now() >= Math.min(end, refusedSince + refusalTime)) throw explain(survey, Date.now() - started);
    if (next.length === 0) await sleep(interval, undefined, { signal: context.signal }).catch(() => undefined);
  }
}

/** The parts of a container runtime’s error that change at each attempt: times and durations. */
const changing = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?|\b\d+(?:\.\d+)?(?:ms|m|s)\b/g;

interface Memory {
  readonly brought: ReadonlySet<string>;
  /** The time from which each pod could have fetched the executable, in milliseconds. */
  readonly since: Map<string, number>;
  readonly peerTime: number;
}

/**
 * Returns the pod to upload an executable to: first any pod of its architecture, then pods that have not fetched it for
 * too long.
 */
function choose(
  { pods }: AgentSurvey,
  executable: Executable,
  { brought, since, peerTime }: Memory,
): { pod: AgentPod; executable: Executable } | undefined {
  const own = pods.filter(({ architecture }) => architecture === executable.architecture);
  const waiting = own.filter(({ running, ready, pod }) => running && !ready && !brought.has(pod));
  const isThere = own.some(({ pod, ready }) => ready || brought.has(pod));
  const now = Date.now();
  for (const { pod } of waiting) since.set(pod, since.get(pod) ?? now);
  const pod = waiting.find((each) => !isThere || now - (since.get(each.pod) ?? now) > peerTime);
  return pod && { pod, executable };
}

function describe({ pods }: AgentSurvey): string {
  const unreadyPods = pods.filter(({ ready }) => !ready);
  const count = `agents ready on ${pods.length - unreadyPods.length} of ${pods.length} nodes`;
  const [first] = unreadyPods;
  if (!first) return `${count}; waiting for the DaemonSets of agents and controllers to say so`;
  const more = unreadyPods.length > 1 ? ` (and ${unreadyPods.length - 1} more)` : '';
  return `${count}; waiting for ${first.pod || 'a pod'} on ${first.node}: ${first.reason}${more}`;
}

function explain({ pods }: AgentSurvey, timeout: number): PluginError {
  const unreadyPods = pods.filter(({ ready }) => !ready);
  const listed = unreadyPods.map(({ pod, node, reason }) => `${pod || 'no pod'} on ${node}: ${reason}`);
  const after = `after ${Math.round(timeout / 1000)} s`;
  const words =
    listed.length > 0
      ? `the agents of ${unreadyPods.length} of ${pods.length} nodes are not ready ${after}: ${listed.join('; ')}`
      : `the DaemonSets of the agents and the controllers are not up to date ${after}`;
  return new PluginError('not-ready', words, {
    hint: 'See “oc -n oc-upgrade-bundle describe pod” and “oc -n oc-upgrade-bundle logs”, then run this again to resume.',
    settings: ['timeout'],
  });
}
