import { PluginError } from '#errors';
import { Lines } from '#text';
import { defineCommand, type Arguments, type OptionRecord } from '../../cli/command.ts';
import { fishHook } from './fishHook.ts';
import { globalFlags } from './hookWords.ts';
import { posixHook } from './posixHook.ts';

const shellArgument = {
  shell: {
    type: 'string',
    required: true,
    choices: ['bash', 'zsh', 'fish'],
    describe: 'Shell that runs the script',
    check: refuseWindowsShells,
  },
} as const satisfies OptionRecord;

/** Returns the hook of a shell. With `releaseMirror`, the plugin mirrors to directories too. */
export function hookOf(shell: Arguments<typeof shellArgument>['shell'], releaseMirror: boolean): string {
  const mirrorOptions = ['--apply-config', '--config-to-dir', ...(releaseMirror ? ['--to-dir'] : [])];
  const words = { mirrorOptions, ...globalFlags() };
  return shell === 'fish' ? fishHook(words) : posixHook(shell, words);
}

function refuseWindowsShells(shell: string): void {
  if (!['pwsh', 'powershell', 'cmd'].includes(shell.toLowerCase().replace(/\.exe$/, ''))) return;
  throw new PluginError('usage', 'PowerShell and cmd are not supported: use bash, zsh or fish', {
    hint: 'In PowerShell and cmd, type the commands in full: oc adm-upgrade-bundle create.',
  });
}

/** `shell-hook`: prints a shell function that sends some command lines of `oc` to the plugins. */
export const command = defineCommand({
  details:
    'The oc command does not pass “oc adm upgrade create bundle” to plugins, because oc adm is built in. The printed function passes these words to ' +
    'the plugins, and “oc adm release mirror” with --apply-config or --config-to-dir. Flags such as --context may come before them. Every ' +
    'other command line goes to oc unchanged. The completion of oc completes these words too. An alias of oc, with or without options, is included. Any other alias or function ' +
    'is left alone, with a warning.\n\n' +
    'Load it at the end of the file that your shell reads at its start:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle shell-hook bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle shell-hook zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle shell-hook fish | source\n\n' +
    'Scripts, sudo and xargs do not use it, and PowerShell and cmd are not supported: write oc adm-upgrade-bundle create there.',
  positionals: shellArgument,
  options: {
    'release-mirror': {
      type: 'boolean',
      describe: 'Also pass “oc adm release mirror” with --to-dir to the plugin',
    },
  },
  examples: [
    ['bash', 'Print the function'],
    ['bash --release-mirror', 'Print the function that also mirrors to directories'],
    ['fish | source', 'Load it into the current fish shell'],
  ],
  run({ shell, releaseMirror }, { terminal }) {
    terminal.print(Lines.split(hookOf(shell, releaseMirror)));
    return Promise.resolve();
  },
});
