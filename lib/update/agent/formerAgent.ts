import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import { readHolder } from '../../files/lock.ts';
import type { Host } from '../../machine/host.ts';
import { runProgram } from '../../machine/programs.ts';

/** The time for an agent to end before it is killed, in milliseconds. */
const gracePeriod = 10_000;
const interval = 100;

/**
 * Ends the agent that holds a lock, if it runs the same command as this process. After a wipe of its storage, a
 * container runtime no longer knows the running containers and starts another agent, so the former one is an orphan.
 * Leaves other programs alone. `own` are the words of this process up to its command.
 */
export async function endFormerAgent(
  host: Host,
  lock: string,
  context: Context,
  own?: readonly string[],
): Promise<void> {
  const pid = await readHolder(lock);
  if (pid === undefined || pid === process.pid) return;
  const words = own ?? agentCommand(await readWords('self'));
  const theirs = await readWords(pid);
  if (words.length === 0 || !words.every((word, position) => theirs[position] === word)) return;
  context.log('warn', `another agent runs on this node, as process ${pid}: stopping it, because this one replaces it`);
  await runProgram(host, 'kill', ['-TERM', String(pid)], context);
  for (let waited = 0; waited < gracePeriod && (await isHolder(lock, pid)); waited += interval) await sleep(interval);
  if (await isHolder(lock, pid)) await runProgram(host, 'kill', ['-KILL', String(pid)], context);
  while (await isHolder(lock, pid)) await sleep(interval);
}

async function isHolder(lock: string, pid: number): Promise<boolean> {
  return (await readHolder(lock)) === pid;
}

/** Returns the words of a command line up to the name of this command; none if it is another command. */
function agentCommand(words: readonly string[]): readonly string[] {
  return words.slice(0, words.indexOf('agent') + 1);
}

async function readWords(process: number | 'self'): Promise<readonly string[]> {
  return (await readFile(`/proc/${process}/cmdline`, 'utf8').catch(() => '')).split('\0');
}
