import { AssertionError } from 'node:assert';
import { runSuccessfully } from '../peers.ts';
import { executeProgram, type Execution, type ExecutionOptions } from './execution.ts';

/** Returns the commands in an output that begin with a name: `oc`, `sha256sum`. The rest of the line is the command. */
export function findCommands(output: string, name = 'oc'): string[] {
  return [...output.matchAll(new RegExp(`^\\s*(${name} .*)$|: (${name} .*)$`, 'gm'))].map(
    ([, line, rest]) => line ?? rest ?? '',
  );
}

/** Returns the words that bash makes of a printed command. Nothing of it runs, except what the quoting lets through. */
export async function readWords(command: string): Promise<string[]> {
  const name = command.split(' ', 1)[0] ?? '';
  // A program in a command that is not quoted would change the words, or fail.
  const text = await runSuccessfully('bash', [
    '-u',
    '-c',
    `${name}() { printf '%s\\0' ${name} "$@"; }; set -e; PATH=/nonexistent\n${command}`,
  ]);
  return text.split('\0').slice(0, -1);
}

/** Runs a printed `oc adm-…` command in this process. */
export async function runPrinted(command: string, options: ExecutionOptions = {}): Promise<Execution> {
  const [oc, plugin = '', ...args] = await readWords(command);
  if (oc !== 'oc' || !plugin.startsWith('adm-')) throw new AssertionError({ message: `not our command: ${command}` });
  return executeProgram(`oc-${plugin.replaceAll('-', '_')}`, args, options);
}
