import { PluginError } from '#errors';
import { Lines } from '#text';
import { defineCommand, type Arguments, type OptionRecord } from '../../cli/command.ts';
import { ignoredFlags, logLevels } from '../../cli/kubectlFlags.ts';
import { clusterOptions } from '../../cli/options.ts';
import { fillScript } from '../../cli/shellScript.ts';

const shellArgument = {
  shell: {
    type: 'string',
    required: true,
    choices: ['bash', 'zsh', 'fish'],
    describe: 'Shell that runs the script',
    check: refuseWindowsShells,
  },
} as const satisfies OptionRecord;

// bash quotes an alias for a shell when it prints it, with “alias ” before it unless it is in POSIX mode.
const readAlias = {
  bash: 'eval "__oc_text=${__oc_text#*=}"; read -r -a __oc_words <<<"$__oc_text"',
  zsh: '__oc_text=$aliases[oc]; __oc_words=(${=__oc_text})',
  fish: '',
} as const;

/**
 * Returns the hook of a shell: for bash since 3.2, which macOS has, zsh, or fish, in which aliases are functions. With
 * `releaseMirror`, the plugin mirrors to directories too.
 */
export function hookOf(shell: Arguments<typeof shellArgument>['shell'], releaseMirror: boolean): string {
  const mirrorOptions = ['--apply-config', '--config-to-dir', ...(releaseMirror ? ['--to-dir'] : [])];
  const { valued, plain } = globalFlags();
  const isFish = shell === 'fish';
  const between = isFish ? ' ' : ' | ';
  const words = {
    mirrorOptions: mirrorOptions.join('|'),
    mirrorCases: mirrorOptions.flatMap((each) => [each, isFish ? `'${each}=*'` : `${each}=*`]).join(between),
    valued: valued.join(between),
    plain: plain.join(between),
    readAlias: readAlias[shell],
    helpNote: `With ${mirrorOptions.join(' or ')}, oc adm-release-mirror-config runs instead. See its --help.`,
  };
  return fillScript(isFish ? 'hook.fish' : 'hook.sh', words);
}

/** Returns the flags that oc has everywhere: with a value in the next word (`valued`), and without one. */
export function globalFlags(): { readonly valued: readonly string[]; readonly plain: readonly string[] } {
  const own = Object.entries(clusterOptions).flatMap(([name, option]) =>
    [name, ...('alias' in option ? [option.alias] : [])].map((each) => ({ name: each, type: option.type })),
  );
  const dashed = (names: readonly string[]): string[] =>
    names.map((name) => (name.length === 1 ? `-${name}` : `--${name}`));
  const namesOf = (isBoolean: boolean): string[] =>
    own.filter(({ type }) => (type === 'boolean') === isBoolean).map(({ name }) => name);
  return {
    valued: [...dashed([...namesOf(false), 'certificate-authority', ...ignoredFlags.valued, ...logLevels]), '--v'],
    plain: dashed([...namesOf(true), ...ignoredFlags.plain]),
  };
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
    'The oc command does not pass “oc adm upgrade create bundle” to plugins, because oc adm is built in. The printed ' +
    'function passes these words to the plugins, and “oc adm release mirror” with --apply-config or --config-to-dir. ' +
    'Flags such as --context may come before them. Every other command line goes to oc unchanged. The completion of ' +
    'oc completes these words too. An alias of oc, with or without options, is included. Any other alias or function ' +
    'is left alone, with a warning.\n\n' +
    'Load it at the end of the file that your shell reads at its start:\n\n' +
    '  ~/.bashrc                   source <(oc adm-upgrade-bundle shell-hook bash)\n' +
    '  ~/.zshrc                    source <(oc adm-upgrade-bundle shell-hook zsh)\n' +
    '  ~/.config/fish/config.fish  oc adm-upgrade-bundle shell-hook fish | source\n\n' +
    'Scripts, sudo and xargs do not use it, and PowerShell and cmd are not supported: write oc ' +
    'adm-upgrade-bundle create there.',
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
