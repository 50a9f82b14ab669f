import { executables, literalWords, pluginWords } from './plugins.ts';

/** The completion script for zsh. */
export const zshCompletion = `#compdef ${executables.join(' ')}
# Completes ${pluginWords.map((word) => `oc ${word}`).join(', ')}.
# What else is typed after oc and kubectl goes to the completion that these have.
if (( ! $+functions[compdef] )); then
  autoload -Uz compinit && compinit -i
fi

# Asks a plugin, by its path or by the end of its name, what the last of the words may become.
function __oc_disconnected_ask {
  local prefix name="$1"
  shift
  if [[ $name == */* ]]; then
    "$name" __complete "$@" 2>/dev/null </dev/null
    return
  fi
  for prefix in oc kubectl; do
    if (( $+commands[$prefix-$name] )); then
      command $prefix-$name __complete "$@" 2>/dev/null </dev/null
      return
    fi
  done
}

# Offers what a plugin answers to the words of its command line.
function __oc_disconnected_offer {
  local line directive word
  local -a answer complete unfinished
  answer=("\${(@f)$(__oc_disconnected_ask "$@")}")
  directive=\${answer[-1]#:}
  [[ $directive == <-> ]] || return 1
  for line in "\${(@)answer[1,-2]}"; do
    word=\${line%%$'\\t'*}
    line="\${word//:/\\\\:}:\${line#$word}"
    line=\${line/:$'\\t'/:}
    if [[ $word == *= ]]; then unfinished+=("$line"); else complete+=("\${line%:}"); fi
  done
  # Candidates for a value come without its option.
  compset -P '-*='
  if (( $#complete + $#unfinished )); then
    local result=1
    (( ! $#complete )) || { _describe -V completion complete && result=0; }
    (( ! $#unfinished )) || { _describe -V option unfinished -S '' && result=0; }
    return result
  fi
  (( directive == 4 )) && return 1
  if (( directive & 16 )); then _files -/; else _files; fi
}

# The words before the cursor from a place on, and what is typed of the last, without quotes.
function __oc_disconnected_words {
  reply=("\${(@Q)words[$1,CURRENT-1]}" "\${(Q)PREFIX}")
}

# The executables by their own names.
function __oc_disconnected_bare {
  local -a reply
  local name=\${(Q)words[1]}
  name=\${name/#\\~\\//$HOME/}
  [[ $name == */* ]] || name=\${name#*-}
  __oc_disconnected_words 2
  __oc_disconnected_offer "$name" "$reply[@]"
}

# What is typed after oc and kubectl.
function __oc_disconnected_dispatch {
  local -a reply
  local name=\${service:-$words[1]}
  if (( CURRENT > 2 )) && [[ $words[2] == (${pluginWords.join('|')}) ]]; then
    __oc_disconnected_words 3
    __oc_disconnected_offer "\${words[2]//-/_}" "$reply[@]"
    return
  fi
  if [[ $name == oc ]] && (( CURRENT > 4 && $+functions[__oc_plugin] )); then
    if (( CURRENT > 5 )) && [[ "$words[2,5]" == '${literalWords}' ]]; then
      __oc_disconnected_words 6
      __oc_disconnected_offer adm_upgrade_bundle create "$reply[@]"
      return
    elif (( CURRENT == 5 )) && [[ "$words[2,4]" == 'adm upgrade create' ]]; then
      compadd bundle
      return
    elif __oc_is_mirror_config "\${(@Q)words[2,CURRENT-1]}"; then
      __oc_disconnected_words 5
      __oc_disconnected_offer adm_release_mirror_config "$reply[@]"
      return
    fi
  fi
  local own=$__oc_disconnected_own[$name] result=1
  if (( CURRENT == 2 )); then
    compadd ${pluginWords.join(' ')} && result=0
  fi
  if [[ -n $own ]]; then
    "$own" "$@" && result=0
  elif (( CURRENT > 2 )); then
    _default && result=0
  fi
  return result
}

if [[ $funcstack[1] == _* ]]; then
  # Found by zsh itself, in a folder of completions.
  __oc_disconnected_bare "$@"
else
  typeset -gA __oc_disconnected_own
  () {
    local name
    for name in oc kubectl; do
      [[ \${_comps[$name]-} == __oc_disconnected_dispatch ]] || __oc_disconnected_own[$name]=\${_comps[$name]-}
      compdef __oc_disconnected_dispatch $name
    done
  }
  compdef __oc_disconnected_bare ${executables.join(' ')}
fi`;
