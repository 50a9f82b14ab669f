import { defineCommand, type Arguments } from '../../cli/command.ts';
import { fishHook } from './fishHook.ts';
import { posixHook } from './posixHook.ts';
import { globalFlags } from './globalFlags.ts';
import { shellArgument } from '../../cli/shells.ts';

/** Returns the hook of a shell. With `releaseMirror`, the plugin mirrors to directories too. */
export function hookOf(shell: Arguments<typeof shellArgument>['shell'], releaseMirror: boolean): string {
  const mirrorOptions = ['--apply-config', '--config-to-dir', ...(releaseMirror ? ['--to-dir'] : [])];
  const words = { mirrorOptions, ...globalFlags() };
  return shell === 'fish' ? fishHook(words) : posixHook(shell, words);
}

/** `shell-hook`: prints a shell function that sends some command lines of `oc` to the plugins. */
export const command = defineCommand({
  details:
    'oc never hands a plugin the words “oc adm upgrade create bundle”, because oc adm is built in. The function that is printed sends these ' +
    'words, and “oc adm release mirror” with --apply-config or --config-to-dir, to the plugins. Flags such as --context may come before ' +
    'them. Every other command line goes to oc as it is. An alias that is an oc, with or without options, is taken over; any other alias or function is left alone, with a word about it.\n\n' +
    'Load it last in the file that your shell starts with:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle shell-hook bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle shell-hook zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle shell-hook fish | source\n\n' +
    'Scripts, sudo and xargs know nothing of it: there, write oc adm-upgrade-bundle create.',
  positionals: shellArgument,
  options: {
    'release-mirror': {
      type: 'boolean',
      describe: 'Also send “oc adm release mirror” with --to-dir to the plugin',
    },
  },
  examples: [
    ['bash', 'Print the function'],
    ['bash --release-mirror', 'Print the function that also mirrors to directories'],
    ['fish | source', 'Use it in this fish'],
  ],
  run({ shell, releaseMirror }, { terminal }) {
    terminal.print(hookOf(shell, releaseMirror));
    return Promise.resolve();
  },
});
