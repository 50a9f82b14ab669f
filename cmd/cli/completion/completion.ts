import { basename, dirname, join } from 'node:path';
import { PluginError } from '#errors';
import { findOnPath } from '#node/machine';
import { Lines, shellWord } from '#text';
import { defineCommand } from '../command.ts';
import { plugins } from '../programChoice.ts';

/** The shells with a script. */
const shells = ['bash', 'zsh', 'fish', 'powershell'] as const;

const names = Object.values(plugins).map((name) => name.replaceAll('_', '-'));
const executables = Object.values(plugins).flatMap((name) => [`oc-${name}`, `kubectl-${name}`]);

// The scripts expand no candidate, and pass each typed word as one argument.
const bash = `# Completion of the plugins of oc and kubectl, and of these two as before, for bash 4 and later.
__oc_disconnected() {
  local line="\${COMP_LINE:0:COMP_POINT}" program='' client former value cut out directive word rest
  local -a words
  IFS=' ' read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  client="\${words[0]##*/}"
  if [[ $client == oc || $client == kubectl ]]; then
    if (( \${#words[@]} > 2 )); then
      case "\${words[1]}" in ${names.join(' | ')})
        word="\${words[1]//-/_}"
        program="$(type -P "oc-$word" || type -P "kubectl-$word")"
        words=("\${words[@]:2}") ;;
      esac
    fi
    if [[ -z $program ]]; then
      former="__oc_disconnected_former_$client"
      [[ -n \${!former-} ]] && "\${!former}" "$@"
      return
    fi
  else
    program="\${words[0]}" words=("\${words[@]:1}")
  fi
  out="$("$program" __complete "\${words[@]}" 2>/dev/null)" || return
  directive="\${out##*:}"
  value="\${words[\${#words[@]}-1]}"
  [[ $value == --*=* ]] && value="\${value#*=}"
  # bash replaces only what follows the last colon.
  cut=''
  [[ $value == *:* && $COMP_WORDBREAKS == *:* ]] && cut="\${value%"\${value##*:}"}"
  while IFS=$'\\t' read -r word rest; do
    [[ -n $word ]] && COMPREPLY+=("\${word#"$cut"}")
  done <<<"\${out%:*}"
  (( \${#COMPREPLY[@]} == 0 )) || return
  case "$directive" in
    0) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
    16) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
    *) return ;;
  esac
  compopt -o filenames 2>/dev/null
}
for __oc_disconnected_client in oc kubectl; do
  if [[ "$(complete -p "$__oc_disconnected_client" 2>/dev/null)" =~ -F\\ ([^\\ ]+) && \${BASH_REMATCH[1]} != __oc_disconnected ]]; then
    printf -v "__oc_disconnected_former_$__oc_disconnected_client" %s "\${BASH_REMATCH[1]}"
  fi
done
complete -F __oc_disconnected oc kubectl ${executables.join(' ')}`;

const zsh = `#compdef oc kubectl ${executables.join(' ')}
# Completion of the plugins of oc and kubectl, and of these two as before, for zsh.
typeset -gA __oc_disconnected_former
__oc_disconnected() {
  local client=\${words[1]:t} program='' former out directive line
  local -a typed found shown
  typed=("\${(@)words[1,CURRENT]}")
  if [[ $client == (oc|kubectl) ]]; then
    if (( CURRENT > 2 )) && [[ $typed[2] == (${names.join('|')}) ]]; then
      program=\${commands[oc-\${typed[2]//-/_}]:-\${commands[kubectl-\${typed[2]//-/_}]}}
      typed=("\${(@)typed[3,-1]}")
    fi
    if [[ -z $program ]]; then
      former=$__oc_disconnected_former[$client]
      if [[ -n $former ]]; then $former "$@"; else _default; fi
      return
    fi
  else
    program=$words[1] typed=("\${(@)typed[2,-1]}")
  fi
  out="$("$program" __complete "\${typed[@]}" 2>/dev/null)" || return 1
  directive=\${out##*:}
  for line in "\${(@f)\${out%:*}}"; do
    [[ -n $line ]] || continue
    found+=("\${line%%$'\\t'*}")
    shown+=("\${line/$'\\t'/  -- }")
  done
  [[ $typed[-1] == --*=* ]] && compset -P '*='
  if (( $#found )); then
    compadd -d shown -- "\${found[@]}"
  elif [[ $directive == 0 ]]; then
    _files
  elif [[ $directive == 16 ]]; then
    _files -/
  fi
}
for __oc_disconnected_client in oc kubectl; do
  if [[ \${_comps[$__oc_disconnected_client]-} != __oc_disconnected ]]; then
    __oc_disconnected_former[$__oc_disconnected_client]=\${_comps[$__oc_disconnected_client]-}
  fi
done
compdef __oc_disconnected oc kubectl ${executables.join(' ')}`;

const fish = `# Completion of the plugins of oc and kubectl for fish.
function __oc_disconnected_is
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[2] ${names.join(' ')}
end
function __oc_disconnected
    set -l words (commandline -opc) (commandline -ct)
    set -l program $words[1]
    set -l first 2
    if contains -- (string replace -r '.*/' '' -- $program) oc kubectl
        set -l name (string replace -a -- - _ $words[2])
        set program (command -v oc-$name kubectl-$name)[1]
        set first 3
    end
    set words $words[$first..-1]
    set -l out ($program __complete $words 2>/dev/null)
    test (count $out) -gt 0; or return
    set -l directive $out[-1]
    set -e out[-1]
    set -l prefix (string match -r -- '^--[^=]+=' $words[-1])
    set -l value (string replace -r -- '^--[^=]+=' '' $words[-1])
    if test (count $out) -gt 0
        printf "$prefix%s\\n" $out
    else if test $directive = :0
        printf "$prefix%s\\n" (__fish_complete_path $value)
    else if test $directive = :16
        printf "$prefix%s\\n" (__fish_complete_directories $value)
    end
end
complete -c oc -n __oc_disconnected_is -f -a '(__oc_disconnected)'
complete -c kubectl -n __oc_disconnected_is -f -a '(__oc_disconnected)'
${executables.map((name) => `complete -c ${name} -f -a '(__oc_disconnected)'`).join('\n')}`;

const powershell = `# Completion of the plugins of oc and kubectl, and of these two by themselves, for PowerShell.
$__oc_disconnected = {
  param($wordToComplete, $commandAst, $cursorPosition)
  $words = @($commandAst.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
  if ($wordToComplete -eq '') { $words += '' }
  $program = $words[0]
  $typed = @($words | Select-Object -Skip 1)
  if (((Split-Path -Leaf $program) -replace '\\.exe$') -in 'oc', 'kubectl' -and $typed.Count -gt 1 -and $typed[0] -in ${names.map((name) => `'${name}'`).join(', ')}) {
    $name = $typed[0] -replace '-', '_'
    $program = (Get-Command "oc-$name", "kubectl-$name" -ErrorAction SilentlyContinue | Select-Object -First 1).Source
    $typed = @($typed | Select-Object -Skip 1)
  }
  if (-not $program) { return }
  $prefix = if ($wordToComplete -match '^(--[^=]+=)') { $Matches[1] } else { '' }
  # An empty argument is two quotes in PowerShell before 7.3.
  $arguments = if ($PSVersionTable.PSVersion -lt [version]'7.3') { $typed | ForEach-Object { if ($_ -eq '') { '""' } else { $_ } } } else { $typed }
  & $program __complete @arguments 2>$null | Where-Object { $_ -notmatch '^(:\\d+$|$)' } | ForEach-Object {
    $word, $text = $_ -split "\`t", 2
    $shown = if ($text) { $text } else { $word }
    [System.Management.Automation.CompletionResult]::new("$prefix$word", $word, 'ParameterValue', $shown)
  }
}
Register-ArgumentCompleter -Native -CommandName ${['oc', 'kubectl', ...executables].map((name) => `'${name}'`).join(', ')} -ScriptBlock $__oc_disconnected`;

/** The scripts that complete the plugins, by their shells. oc and kubectl are completed as before. */
const scripts: Readonly<Record<(typeof shells)[number], string>> = { bash, zsh, fish, powershell };

/** `completion`: prints a script for a shell, or the commands that link the plugins to the names by which oc and kubectl complete them. */
export const command = defineCommand({
  details:
    'With a shell, prints a script for its start-up file, such as “source <(oc adm-upgrade-bundle completion bash)” in ~/.bashrc, after ' +
    'the completion of oc. It needs no links, and fits every version of oc. On PowerShell: ' +
    '“oc adm-upgrade-bundle completion powershell | Out-String | Invoke-Expression”.\n\n' +
    'Without a shell: in bash, zsh and fish, oc (from 4.15) and kubectl (from 1.26) complete the words of a plugin. They call a program on the path: ' +
    'oc_complete-… or kubectl_complete-…, with the name of the plugin. A link to the plugin is that program. An rpm has the links. ' +
    'Otherwise, review the printed commands, and run them once:\n\n' +
    '  oc adm-upgrade-bundle completion | sudo sh\n\n' +
    'The shell needs the completion of oc or kubectl itself: see “oc completion --help”. If shell-hook is loaded, it also completes ' +
    '“oc adm upgrade create bundle”.\n\n' +
    'Names of UpgradeBundles and nodes come from the cluster, within two seconds. Nothing else uses the network: versions come ' +
    'from bundles and mirror directories on this machine, and contexts from the kubeconfig. Names with characters that a shell ' +
    'could expand, such as spaces, quotes or $, are not offered.',
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
      terminal.print(Lines.split(scripts[shell]));
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
