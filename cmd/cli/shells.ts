import type { OptionRecord } from './command.ts';

/** The argument of every command that prints a script for a shell. */
export const shellArgument = {
  shell: { type: 'string', required: true, choices: ['bash', 'zsh', 'fish'], describe: 'Shell that runs the script' },
} as const satisfies OptionRecord;
