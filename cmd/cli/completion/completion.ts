import { basename, dirname, join } from 'node:path';
import { PluginError } from '#errors';
import { findOnPath } from '#node/machine';
import { Lines, shellWord } from '#text';
import { defineCommand } from '../command.ts';
import { plugins } from '../programChoice.ts';
import { fillScript } from '../shellScript.ts';

/** The shells with a script. */
const shells = ['bash', 'zsh', 'fish', 'powershell'] as const;

const names = Object.values(plugins).map((name) => name.replaceAll('_', '-'));
const executables = Object.values(plugins).flatMap((name) => [`oc-${name}`, `kubectl-${name}`]);

/**
 * Returns the script that completes the plugins in a shell, and oc and kubectl as before. It expands no candidate, and
 * passes each typed word as one argument.
 */
function completionOf(shell: (typeof shells)[number]): string {
  const quote = (words: readonly string[]): string => words.map((word) => `'${word}'`).join(', ');
  switch (shell) {
    case 'bash':
      return fillScript('completion.bash', { names: names.join(' | '), executables: executables.join(' ') });
    case 'zsh':
      return fillScript('completion.zsh', { names: names.join('|'), executables: executables.join(' ') });
    case 'fish': {
      const each = executables.map((name) => `complete -c ${name} -f -a '(__oc_disconnected)'`);
      return [fillScript('completion.fish', { names: names.join(' ') }), ...each].join('\n');
    }
    case 'powershell':
      return fillScript('completion.ps1', {
        names: quote(names),
        executables: quote(['oc', 'kubectl', ...executables]),
      });
  }
}
/**
 * `completion`: prints a script for a shell, or the commands that link the plugins to the names by which oc and kubectl
 * complete them.
 */
export const command = defineCommand({
  details:
    'With a shell, prints a script for its start-up file, such as “source <(oc adm-upgrade-bundle completion bash)” ' +
    'in ~/.bashrc, after the completion of oc. It needs no links, and fits every version of oc. On PowerShell: ' +
    '“oc adm-upgrade-bundle completion powershell | Out-String | Invoke-Expression”.\n\n' +
    'Without a shell: in bash, zsh and fish, oc (from 4.15) and kubectl (from 1.26) complete the words of a plugin. ' +
    'They call a program on the path: oc_complete-… or kubectl_complete-…, with the name of the plugin. A link to ' +
    'the plugin is that program. An rpm has the links. ' +
    'Otherwise, review the printed commands, and run them once:\n\n' +
    '  oc adm-upgrade-bundle completion | sudo sh\n\n' +
    'The shell needs the completion of oc or kubectl itself: see “oc completion --help”. If shell-hook is ' +
    'loaded, it also completes ' +
    '“oc adm upgrade create bundle”.\n\n' +
    'Names of UpgradeBundles and nodes come from the cluster, within two seconds. Nothing else uses the network: ' +
    'versions come from bundles and mirror directories on this machine, and contexts from the kubeconfig. Names with ' +
    'characters that a shell could expand, such as spaces, quotes or $, are not offered.',
  positionals: {
    shell: { type: 'string', choices: shells, describe: 'Shell to print a script for' },
  },
  options: {},
  examples: [
    ['bash', 'Print the script for bash'],
    ['', 'Print the commands that make links'],
  ],
  async run({ shell }, { environment, terminal }) {
    if (shell !== undefined) {
      terminal.print(Lines.split(completionOf(shell)));
      return;
    }
    const lines: string[] = [];
    for (const name of Object.values(plugins)) {
      const path = (await findOnPath(`oc-${name}`, environment)) ?? (await findOnPath(`kubectl-${name}`, environment));
      if (path === undefined) continue;
      for (const client of ['oc', 'kubectl'])
        lines.push(`ln -sf ${basename(path)} ${shellWord(join(dirname(path), `${client}_complete-${name}`))}`);
    }
    if (lines.length === 0)
      throw new PluginError('not-found', 'no plugin is on the path, so no link can complete it', {
        hint: 'Create the links by which oc finds the plugins first, such as /usr/local/bin/oc-adm_upgrade_bundle.',
      });
    terminal.print(new Lines(...lines));
  },
});
