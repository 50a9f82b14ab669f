import { defineCommand } from '../command.ts';
import { shellArgument } from '../shells.ts';
import { bashCompletion } from './bashCompletion.ts';
import { fishCompletion } from './fishCompletion.ts';
import { zshCompletion } from './zshCompletion.ts';

const scripts = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion };

/** `completion`: prints the completion script for a shell, which is the same for all plugins. */
export const command = defineCommand({
  details:
    'Completes the commands, options and values of all three plugins: after oc, after kubectl, by the names of their executables, and after ' +
    '“oc adm upgrade create bundle” if shell-hook is loaded. Load it after the completion of oc and kubectl, at the end of the file ' +
    'that your shell reads at its start:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle completion bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle completion zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle completion fish | source\n\n' +
    'Names of UpgradeBundles and nodes come from the cluster, within two seconds. Nothing else uses the network: versions come ' +
    'from bundles and mirror directories on this machine, and contexts from the kubeconfig.',
  positionals: shellArgument,
  options: {},
  examples: [
    ['bash', 'Print the script'],
    [
      'zsh > "${fpath[1]}/_oc-adm_upgrade_bundle"',
      'Install it in a folder of $fpath, for the names of the executables',
    ],
    ['fish | source', 'Load it into the current fish shell'],
  ],
  run({ shell }, { terminal }) {
    terminal.print(scripts[shell]);
    return Promise.resolve();
  },
});
