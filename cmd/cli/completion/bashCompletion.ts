import { executables, literalWords, pluginWords } from './plugins.ts';

/** The completion script for bash since 3.2, which macOS has, with bash-completion or without. */
export const bashCompletion = `# Completes ${pluginWords.map((word) => `oc ${word}`).join(', ')}.
# What else is typed after oc and kubectl goes to the completion that these have.

# Asks a plugin, by its path or by the end of its name, what the last of the words may become.
function __oc_disconnected_ask {
  local prefix name="$1"
  shift
  if [[ $name == */* ]]; then
    "$name" __complete "$@" 2>/dev/null </dev/null
    return
  fi
  for prefix in oc kubectl; do
    if command -v "$prefix-$name" >/dev/null 2>&1; then
      command "$prefix-$name" __complete "$@" 2>/dev/null </dev/null
      return
    fi
  done
}

# Puts together what bash took apart at = and :, up to the cursor, in the array __oc_words.
function __oc_disconnected_words {
  local index chunk rest line="\${COMP_LINE:0:COMP_POINT}"
  __oc_words=()
  for ((index = 0; index <= COMP_CWORD; index++)); do
    chunk="\${COMP_WORDS[index]}"
    rest="\${line#"\${line%%[![:space:]]*}"}"
    chunk="\${rest:0:\${#chunk}}"
    if [[ $index -eq 0 || $rest != "$line" ]]; then
      __oc_words+=("\${chunk//[\\"\\'\\\\]/}")
    else
      __oc_words[\${#__oc_words[@]}-1]+="\${chunk//[\\"\\'\\\\]/}"
    fi
    line="\${rest:\${#chunk}}"
  done
}

# Fills COMPREPLY: the text that is replaced, the plugin, then the words of its command line.
function __oc_disconnected_fill {
  local answer directive line word before value replaced="$1" typed="\${!#}" longest=0
  shift
  local -a words=() notes=()
  answer="$(__oc_disconnected_ask "$@")"
  directive="\${answer##*:}"
  [[ $directive =~ ^[0-9]+$ ]] || return 0
  # Candidates for a value come without its option.
  [[ $typed != -*=* ]] || typed="\${typed#*=}"
  before="\${typed%"$replaced"}"
  while IFS= read -r line; do
    [[ $line == :* || -z $line ]] && continue
    word="\${line%%$'\\t'*}"
    value="\${word#"$before"}"
    words+=("$value")
    notes+=("\${line:\${#word}+1}")
    [[ \${#value} -le $longest ]] || longest=\${#value}
  done <<<"$answer"
  if [[ \${#words[@]} -eq 0 ]]; then
    [[ $directive -eq 0 ]] || compopt +o default +o bashdefault 2>/dev/null
    [[ $directive -ne 16 ]] || compopt -o dirnames 2>/dev/null
    return 0
  fi
  compopt +o default +o bashdefault 2>/dev/null
  ((directive & 2)) && compopt -o nospace 2>/dev/null
  local index columns="\${COLUMNS:-80}"
  for ((index = 0; index < \${#words[@]}; index++)); do
    value="\${words[index]}"
    # A list that is only looked at says what the words mean; one to a line, since two do not fit.
    if [[ \${COMP_TYPE-} == 63 && \${#words[@]} -gt 1 && -n \${notes[index]} ]]; then
      printf -v value '%-*s  (%s)' "$longest" "$value" "\${notes[index]}"
      [[ \${#value} -lt $columns ]] || value="\${value:0:columns-2}…"
      printf -v value '%-*s' "$((columns / 2))" "$value"
      COMPREPLY+=("$value")
    elif [[ $typed == *[\\"\\']* ]]; then
      COMPREPLY+=("$value")
    else
      COMPREPLY+=("$(printf %q "$value")")
    fi
  done
}

# The executables by their own names.
function __oc_disconnected_bare {
  local -a __oc_words
  COMPREPLY=()
  __oc_disconnected_words
  local name="\${__oc_words[0]/#\\~\\//$HOME/}"
  [[ $name == */* ]] || name="\${name#*-}"
  __oc_disconnected_fill "$2" "$name" "\${__oc_words[@]:1}"
}

function __oc_disconnected_own {
  local name="\${1##*/}"
  local own="__oc_disconnected_own_$name"
  if [[ -z \${!own-} ]]; then
    # bash-completion reads what belongs to a command when it is first asked for it.
    local loader
    for loader in _comp_load _completion_loader; do
      if declare -F "$loader" >/dev/null; then
        "$loader" "$name" >/dev/null 2>&1
        break
      fi
    done
    __oc_disconnected_adopt "$name"
  fi
  [[ -z \${!own-} ]] || "\${!own}" "$@"
}

# What is typed after oc and kubectl.
function __oc_disconnected_dispatch {
  local word
  local -a __oc_words
  COMPREPLY=()
  __oc_disconnected_words
  local count=\${#__oc_words[@]} words="\${__oc_words[*]}"
  if [[ $count -gt 2 ]]; then
    case "\${__oc_words[1]}" in
      ${pluginWords.join(' | ')})
        word="\${__oc_words[1]//-/_}"
        __oc_disconnected_fill "$2" "$word" "\${__oc_words[@]:2}"
        return
        ;;
    esac
  fi
  if [[ \${1##*/} == oc && $count -gt 4 ]] && declare -F __oc_plugin >/dev/null; then
    if [[ $count -gt 5 && "\${__oc_words[*]:1:4}" == '${literalWords}' ]]; then
      __oc_disconnected_fill "$2" adm_upgrade_bundle create "\${__oc_words[@]:5}"
      return
    elif [[ $count -eq 5 && "\${__oc_words[*]:1:3}" == 'adm upgrade create' && bundle == "$2"* ]]; then
      COMPREPLY=(bundle)
      return
    elif __oc_is_mirror_config "\${__oc_words[@]:1:count-2}"; then
      __oc_disconnected_fill "$2" adm_release_mirror_config "\${__oc_words[@]:4}"
      return
    fi
  fi
  __oc_disconnected_own "$@"
  if [[ $count -eq 2 ]]; then
    for word in ${pluginWords.join(' ')}; do
      # kubectl, and so an oc of the same making, lists plugins by itself.
      [[ $word != "$2"* || " \${COMPREPLY[*]-} " == *" $word "* ]] || COMPREPLY+=("$word")
    done
  fi
  return 0
}

# Remembers which function completes a command, and takes its place.
function __oc_disconnected_adopt {
  local spec own
  spec="$(complete -p "$1" 2>/dev/null)"
  case $spec in
    *' __oc_disconnected_dispatch '*) ;;
    *' -F '*)
      own="\${spec##* -F }"
      own="\${own%% *}"
      printf -v "__oc_disconnected_own_$1" %s "$own"
      eval "\${spec/ -F $own / -F __oc_disconnected_dispatch }"
      ;;
    '') complete -o default -o bashdefault -F __oc_disconnected_dispatch "$1" ;;
  esac
}
__oc_disconnected_adopt oc
__oc_disconnected_adopt kubectl
complete -o default -o bashdefault -F __oc_disconnected_bare ${executables.join(' ')}`;
