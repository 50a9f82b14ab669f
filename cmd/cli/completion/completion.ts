import { defineCommand } from '../command.ts';
import { shellArgument } from '../shells.ts';
import { bashCompletion } from './bashCompletion.ts';
import { fishCompletion } from './fishCompletion.ts';
import { zshCompletion } from './zshCompletion.ts';

const scripts = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion };

/** `completion`: prints the completion script for a shell, which is the same for all plugins. */
export const command = defineCommand({
  details:
    'The script completes commands, options and values of all three plugins, typed after oc or kubectl or by the names of their executables; ' +
    'and after “oc adm upgrade create bundle” if shell-hook is loaded. oc and kubectl complete everything else, so load it after ' +
    'theirs, last in the file that your shell starts with:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle completion bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle completion zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle completion fish | source\n\n' +
    'The cluster that the line names lists UpgradeBundles and nodes, within two seconds. Nothing else is fetched from a network: versions come ' +
    'from bundles and mirror directories on this machine, contexts from the kubeconfig.',
  positionals: shellArgument,
  options: {},
  examples: [
    ['bash', 'Print the script'],
    ['zsh > "${fpath[1]}/_oc-adm_upgrade_bundle"', 'Install it where zsh looks, for the plugins’ own names'],
    ['fish | source', 'Use it in this fish'],
  ],
  run({ shell }, { terminal }) {
    terminal.print(scripts[shell]);
    return Promise.resolve();
  },
});
