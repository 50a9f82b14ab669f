import { PluginError } from '../../lib/errors.ts';
import type { OptionRecord } from './command.ts';

/** The argument of every command that prints a script for a shell. */
export const shellArgument = {
  shell: {
    type: 'string',
    required: true,
    choices: ['bash', 'zsh', 'fish'],
    describe: 'Shell that runs the script',
    check: refuseWindowsShells,
  },
} as const satisfies OptionRecord;

function refuseWindowsShells(shell: string): void {
  if (!['pwsh', 'powershell', 'cmd'].includes(shell.toLowerCase().replace(/\.exe$/, ''))) return;
  throw new PluginError('usage', 'PowerShell and cmd are not supported: use bash, zsh or fish', {
    hint: 'In PowerShell and cmd, type the commands in full: oc adm-upgrade-bundle create.',
  });
}
