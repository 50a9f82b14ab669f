import { createReadStream } from 'node:fs';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { RetryBudget, type RetryOptions } from '../../http/retry.ts';
import { agentNamespace } from '../upgradeBundle.ts';
import { executablePath } from './agentStart.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import type { Executable } from './executable.ts';
import type { PodCommandResult } from '../../kubernetes/podExec.ts';

/** Tells whether the file is there with its digest, else how many bytes of it are: `there`, or a number. Leftovers of others are removed. */
const lookScript = `file=$1 digest=$2
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

/** Puts what it reads behind what is there, and gives the file its name when it is whole and has its digest. */
const takeScript = `file=$1 digest=$2 start=$3 size=$4
partial=$file.$digest.partial
[ "$start" = 0 ] && : > "$partial"
head --bytes=$((size - start)) >> "$partial" || exit
[ "$(stat --format=%s "$partial")" -lt "$size" ] && exit 75
if echo "$digest  $partial" | sha256sum --check --status; then
  chmod 755 "$partial" && sync "$partial" && mv "$partial" "$file" && echo placed
else
  rm -f "$partial"
  exit 76
fi`;

/** What takeScript ends with when the input ended too early, and when the bytes are not the right ones. */
const exits = { short: 75, corrupt: 76 } as const;
const chunkSize = 64 * 1024;

/**
 * Brings an executable to the node of an agent’s pod, and tells whether that was necessary. What is on its way has a name of its own, and gets the
 * final one when the node itself has found its digest right. A connection that is cut is made again, and goes on where it was. Throws
 * `digest-mismatch`, `disk-full`, `command-failed`, and what PodExec.run throws.
 */
export async function bringExecutable(
  cluster: Cluster,
  { pod, node }: { readonly pod: string; readonly node: string },
  executable: Executable,
  context: Context,
  patienceOptions: RetryOptions = { attempts: 5, baseDelay: 1000 },
): Promise<boolean> {
  const { size, digest } = executable;
  const patience = new RetryBudget(patienceOptions, context);
  const run = (script: string, args: readonly unknown[], input?: AsyncIterable<Buffer>): Promise<PodCommandResult> => {
    const command = ['/bin/bash', '-c', script, 'bash', `/host${executablePath}`, digest, ...args.map(String)];
    const place = { namespace: agentNamespace, pod, container: 'agent' };
    return cluster.exec({ ...place, command, ...(input && { input }) });
  };
  let planned = false;
  let arrived = 0;
  for (;;) {
    try {
      const start = await look(run, node);
      if (start === 'there') return planned;
      const present = start > size ? 0 : start;
      // What was sent may have got lost on the way.
      if (planned) patience.progress(present - arrived);
      arrived = present;
      if (!planned) context.onEvent({ kind: 'plan', images: 0, blobs: 1, bytes: size, present });
      planned = true;
      const result = await run(takeScript, [present, size], read(executable, present, context));
      if (result.code === 0 && result.stdout.trim() === 'placed') {
        context.onEvent({ kind: 'stored', digest: `sha256:${digest}`, size });
        return true;
      }
      throw explain(result, node);
    } catch (error) {
      await patience.waitAfter(error);
    }
  }
}

type Run = (script: string, args: readonly unknown[]) => Promise<PodCommandResult>;

async function look(run: Run, node: string): Promise<'there' | number> {
  const result = await run(lookScript, []);
  const answer = result.stdout.trim();
  if (result.code !== 0 || !/^(?:there|\d+)$/.test(answer)) throw explain(result, node);
  return answer === 'there' ? answer : Number(answer);
}

async function* read({ path, digest }: Executable, start: number, context: Context): AsyncGenerator<Buffer> {
  for await (const chunk of createReadStream(path, { start, highWaterMark: chunkSize })) {
    const bytes = chunk as Buffer;
    yield bytes;
    context.onEvent({ kind: 'bytes', digest: `sha256:${digest}`, bytes: bytes.length });
  }
}

function explain({ code, stderr }: PodCommandResult, node: string): PluginError {
  const said = stderr.trim();
  if (code === exits.short) return new PluginError('unreachable', `The connection to ${node} ended too early`);
  if (code === exits.corrupt) {
    return new PluginError('digest-mismatch', `What has come to ${node} is not the executable that was sent`, {
      hint: 'Has the file changed meanwhile? Otherwise something on the way changes the content.',
    });
  }
  if (said.includes('No space left')) {
    return new PluginError('disk-full', `The disk of ${node} is full: ${said}`, {
      hint: 'Free some space in /var on the node, then run the same command again.',
    });
  }
  return new PluginError('command-failed', `${node} cannot take the executable: ${said || `exit code ${code}`}`, {
    hint: 'See whether the node is healthy: oc describe node, oc adm node-logs.',
  });
}
