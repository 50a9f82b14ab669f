import { setTimeout as sleep } from 'node:timers/promises';
import { checkInterrupted, type Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { surveyAgents, type AgentPod, type AgentSurvey } from './agentSurvey.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { Executable } from './executable.ts';
import { bringExecutable } from './executableUpload.ts';

/** How long to wait for the agents, in milliseconds. */
export interface StartupOptions {
  readonly timeout: number;
  /** Between two looks; default two seconds. */
  readonly interval?: number;
  /** How long the nodes are left to fetch the executable from each other before it is brought to each; default a minute. */
  readonly peerTime?: number;
}

/**
 * Brings the executable to one node of each architecture, from which the others fetch it, and to those that do not get it so; and waits until an agent is ready on
 * every node. Says as it goes which pods it is waiting for. Throws `not-ready` when the time is up, with every pod that holds it up, and what bringExecutable throws.
 */
export async function startAgents(
  cluster: Cluster,
  executables: readonly Executable[],
  options: StartupOptions,
  context: Context,
): Promise<AgentSurvey> {
  const { timeout, interval = 2000, peerTime = 60_000 } = options;
  const end = Date.now() + timeout;
  const brought = new Set<string>();
  const since = new Map<string, number>();
  let told = '';
  for (;;) {
    checkInterrupted(context.signal);
    const survey = await surveyAgents(cluster);
    if (survey.complete) return survey;
    const words = describe(survey);
    const lasting = words.replace(changing, '');
    if (lasting !== told) context.log('info', words);
    told = lasting;
    const next = executables.flatMap((executable) => choose(survey, executable, { brought, since, peerTime }) ?? []);
    for (const { pod, executable } of next) {
      context.log('info', `bringing the executable to ${pod.node}`);
      await bringExecutable(cluster, pod, executable, context);
      brought.add(pod.pod);
    }
    if (Date.now() >= end) throw explain(survey, timeout);
    if (next.length === 0) await sleep(interval, undefined, { signal: context.signal }).catch(() => undefined);
  }
}

/** What changes in the error of a container runtime at each attempt: times and durations. */
const changing = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)?|\b\d+(?:\.\d+)?(?:ms|m|s)\b/g;

interface Memory {
  readonly brought: ReadonlySet<string>;
  /** Since when each pod could have fetched the executable. */
  readonly since: Map<string, number>;
  readonly peerTime: number;
}

/** The pod to bring an executable to: the first of its architecture, then those that have fetched nothing for too long. */
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
  const late = pods.filter(({ ready }) => !ready);
  const count = `agents ready on ${pods.length - late.length} of ${pods.length} nodes`;
  const [first] = late;
  if (!first) return `${count}; waiting for the DaemonSets of agents and controllers to say so`;
  const more = late.length > 1 ? ` (and ${late.length - 1} more)` : '';
  return `${count}; waiting for ${first.pod || 'a pod'} on ${first.node}: ${first.reason}${more}`;
}

function explain({ pods }: AgentSurvey, timeout: number): PluginError {
  const late = pods.filter(({ ready }) => !ready);
  const listed = late.map(({ pod, node, reason }) => `${pod || 'no pod'} on ${node}: ${reason}`);
  const after = `after ${Math.round(timeout / 1000)} s`;
  const words =
    listed.length > 0
      ? `The agents of ${late.length} of ${pods.length} nodes are not ready ${after}: ${listed.join('; ')}`
      : `The DaemonSets of the agents and the controllers are not up to date ${after}`;
  return new PluginError('not-ready', words, {
    hint: 'See “oc -n oc-upgrade-bundle describe pod” and “oc -n oc-upgrade-bundle logs”, then run this again to resume.',
    settings: ['timeout'],
  });
}
