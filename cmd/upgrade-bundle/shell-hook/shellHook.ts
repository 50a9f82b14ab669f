import { defineCommand } from '../../cli/command.ts';
import { fishHook } from './fishHook.ts';
import { posixHook } from './posixHook.ts';
import { shellArgument } from '../../cli/shells.ts';

/** `shell-hook`: prints a shell function that sends some command lines of `oc` to the plugins. */
export const command = defineCommand({
  details:
    'oc never hands a plugin the words “oc adm upgrade create bundle”, because oc adm is built in. The function that is printed sends these ' +
    'words, and “oc adm release mirror” with --apply-config or --config-to-dir, to the plugins; every other command line goes to oc as ' +
    'it is. An alias that is an oc, with or without options, is taken over; any other alias or function is left alone, with a word about it.\n\n' +
    'Load it last in the file that your shell starts with:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle shell-hook bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle shell-hook zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle shell-hook fish | source\n\n' +
    'Scripts, sudo and xargs know nothing of it: there, write oc adm-upgrade-bundle create.',
  positionals: shellArgument,
  options: {},
  examples: [
    ['bash', 'Print the function'],
    ['fish | source', 'Use it in this fish'],
  ],
  run({ shell }, { terminal }) {
    terminal.print(shell === 'fish' ? fishHook : posixHook(shell));
    return Promise.resolve();
  },
});
