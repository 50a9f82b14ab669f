import { createReadStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '#cluster/client';
import type { PodCommandResult } from '#cluster/podExec';
import { RetryBudget, type RetryOptions } from '#content/http';
import { checkInterrupted, type Context, type WaitOptions } from '#context';
import { PluginError } from '#errors';
import { executablePath } from '#node/machine';
import { agentNamespace } from '../record/upgradeBundle.ts';
import { surveyAgents, type AgentPod, type AgentSurvey } from './agentSurvey.ts';
import type { Executable } from './executable.ts';

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
    const words = describeSurvey(survey);
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

function describeSurvey({ pods }: AgentSurvey): string {
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
    hint:
      'See “oc -n oc-upgrade-bundle describe pod” and “oc -n oc-upgrade-bundle logs”, then run this again to ' +
      'resume.',
    settings: ['timeout'],
  });
}

/**
 * Prints `there` if the file exists with its digest, else the number of its bytes that exist. Removes partial files of
 * other digests.
 */
const findScript = `file=$1 digest=$2
mkdir -p "\${file%/*}" || exit
if echo "$digest  $file" | sha256sum --check --status 2>/dev/null && [ -x "$file" ]; then
  rm -f "$file".*.partial
  echo there
  exit
fi
for other in "$file".*.partial; do
  [ "$other" = "$file.$digest.partial" ] || rm -f "$other"
done
stat --format=%s "$file.$digest.partial" 2>/dev/null || echo 0`;

/**
 * Writes its input into the partial file from an offset, and renames the file to its final name if it is complete and
 * has its digest. The script of a broken connection may still be writing: it has the same bytes for the same offsets.
 */
const takeScript = `file=$1 digest=$2 start=$3 size=$4
partial=$file.$digest.partial
[ "$start" = 0 ] && rm -f "$partial"
dd of="$partial" seek="$start" count=$((size - start)) bs=64K \\
  iflag=fullblock,count_bytes oflag=seek_bytes conv=notrunc status=none || exit
[ "$(stat --format=%s "$partial")" -lt "$size" ] && exit 75
if echo "$digest  $partial" | sha256sum --check --status; then
  chmod 755 "$partial" && sync "$partial" && mv "$partial" "$file" && echo placed
else
  rm -f "$partial"
  exit 76
fi`;

/** The exit codes of takeScript if the input ends too early, and if the digest differs. */
const exits = { short: 75, corrupt: 76 } as const;
const chunkSize = 64 * 1024;

/**
 * Uploads an executable to the node of an agent’s pod, and returns whether that was necessary. A partial file has a
 * name of its own, and gets the final one after the node has verified its digest. A broken connection resumes. Throws
 * `digest-mismatch`, `disk-full`, `command-failed`, and the errors of PodExec.run.
 */
export async function uploadExecutable(
  cluster: Cluster,
  { pod, node }: { readonly pod: string; readonly node: string },
  executable: Executable,
  context: Context,
  retryOptions: RetryOptions = { attempts: 5, baseDelay: 1000 },
): Promise<boolean> {
  const { size, digest } = executable;
  const budget = new RetryBudget(retryOptions, context);
  const run = (script: string, args: readonly unknown[], input?: AsyncIterable<Buffer>): Promise<PodCommandResult> => {
    const command = ['/bin/bash', '-c', script, 'bash', `/host${executablePath}`, digest, ...args.map(String)];
    const place = { namespace: agentNamespace, pod, container: 'agent' };
    return cluster.exec({ ...place, command, ...(input && { input }) });
  };
  let planned = false;
  let arrived = 0;
  for (;;) {
    try {
      const start = await findUploaded(run, node);
      if (start === 'there') return planned;
      const present = start > size ? 0 : start;
      // Bytes that were sent may not have arrived.
      if (planned) budget.progress(present - arrived);
      arrived = present;
      if (!planned) context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present });
      planned = true;
      const result = await run(takeScript, [present, size], read(executable, present, context));
      if (result.code === 0 && result.stdout.trim() === 'placed') {
        context.onEvent({ kind: 'stored', digest: `sha256:${digest}`, size });
        return true;
      }
      throw explainFailedCommand(result, node);
    } catch (error) {
      await budget.waitAfter(error);
    }
  }
}

type Run = (script: string, args: readonly unknown[]) => Promise<PodCommandResult>;

async function findUploaded(run: Run, node: string): Promise<'there' | number> {
  const result = await run(findScript, []);
  const answer = result.stdout.trim();
  if (result.code !== 0 || !/^(?:there|\d+)$/.test(answer)) throw explainFailedCommand(result, node);
  return answer === 'there' ? answer : Number(answer);
}

async function* read({ path, digest }: Executable, start: number, context: Context): AsyncGenerator<Buffer> {
  for await (const chunk of createReadStream(path, { start, highWaterMark: chunkSize })) {
    const bytes = chunk as Buffer;
    yield bytes;
    context.onEvent({ kind: 'bytes', digest: `sha256:${digest}`, bytes: bytes.length });
  }
}

function explainFailedCommand({ code, stderr }: PodCommandResult, node: string): PluginError {
  const printed = stderr.trim();
  if (code === exits.short) return new PluginError('unreachable', `the connection to ${node} ended too early`);
  if (code === exits.corrupt) {
    return new PluginError('digest-mismatch', `${node} received a corrupt executable`, {
      hint: 'Install again. If it fails again, a proxy in between changes the content.',
    });
  }
  if (printed.includes('No space left')) {
    return new PluginError('disk-full', `the disk of ${node} is full: ${printed}`, {
      hint: 'Free some space in /var on the node, then run the same command again.',
    });
  }
  return new PluginError('command-failed', `${node} cannot take the executable: ${printed || `exit code ${code}`}`, {
    hint: 'See whether the node is healthy: oc describe node, oc adm node-logs.',
  });
}
