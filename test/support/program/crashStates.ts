import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Running } from '../content/creation.ts';
import { run, runSuccessfully } from '../peers.ts';

const killAt = fileURLToPath(new URL('./killAt.ts', import.meta.url));

/**
 * Runs a program to its end, and copies a folder at each step of `killAt.ts`, while the program is stopped. A copy is
 * what `kill -9` leaves behind at that step, with the lock of an ended process. Returns the copies, which are in
 * `into`. Only for Linux.
 */
export async function copyAtEachStep(
  start: (env: NodeJS.ProcessEnv) => Running,
  folder: string,
  into: string,
): Promise<string[]> {
  const { child, outcome } = start({ KILL_AT: 'each', NODE_OPTIONS: `--import=${killAt}` });
  const copies: string[] = [];
  await rm(into, { recursive: true, force: true });
  await mkdir(into);
  try {
    while (await isStopped(child.pid ?? 0)) {
      const copy = join(into, String(copies.length));
      await mkdir(copy);
      await runSuccessfully('cp', ['-a', `${folder}/.`, copy]);
      // Most steps leave what the one before left.
      if (await isLike(copies.at(-1), copy)) await rm(copy, { recursive: true });
      else copies.push(copy);
      child.kill('SIGCONT');
    }
  } finally {
    child.kill('SIGKILL');
  }
  const { code, stderr } = await outcome;
  if (code !== 0) throw new Error(`the program ended with ${code}: ${stderr}`);
  return copies;
}

/** Waits until all threads of a process are stopped. Returns false if it ends before. */
async function isStopped(pid: number): Promise<boolean> {
  for (;;) {
    // The other threads are read only when the first one has stopped or ended.
    if ('TZX'.includes(await stateOf(pid, pid))) {
      const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
      const states = await Promise.all(threads.map((thread) => stateOf(pid, thread)));
      if (states.every((state) => 'ZX'.includes(state))) return false;
      if (states.every((state) => state === 'T')) return true;
    }
    await sleep(2);
  }
}

/** Returns the state of a thread as proc(5) has it; empty if it has ended. */
async function stateOf(pid: number, thread: number | string): Promise<string> {
  const text = await readFile(`/proc/${pid}/task/${thread}/stat`, 'utf8').catch(() => '');
  return text.slice(text.lastIndexOf(')') + 2)[0] ?? '';
}

async function isLike(one: string | undefined, other: string): Promise<boolean> {
  return one !== undefined && (await run('diff', ['-r', '--no-dereference', one, other])).code === 0;
}
