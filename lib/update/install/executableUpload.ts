import { createReadStream } from 'node:fs';
import type { Context } from '../../context.ts';
import { PluginError } from '../../errors.ts';
import { RetryBudget, type RetryOptions } from '../../content/http/retry.ts';
import { agentNamespace } from '../upgradeBundle.ts';
import { executablePath } from '../../node/machine/paths.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { Executable } from './executable.ts';
import type { PodCommandResult } from '../../cluster/podExec.ts';

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
      throw explain(result, node);
    } catch (error) {
      await budget.waitAfter(error);
    }
  }
}

type Run = (script: string, args: readonly unknown[]) => Promise<PodCommandResult>;

async function findUploaded(run: Run, node: string): Promise<'there' | number> {
  const result = await run(findScript, []);
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
