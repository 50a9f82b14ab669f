# Completion of the plugins of oc and kubectl, and of these two as before, for bash 4 and later.
__oc_disconnected() {
  local line="${COMP_LINE:0:COMP_POINT}" program='' client former value cut out directive word rest
  local -a words
  IFS=' ' read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  client="${words[0]##*/}"
  if [[ $client == oc || $client == kubectl ]]; then
    if (( ${#words[@]} > 2 )); then
      case "${words[1]}" in @names@)
        word="${words[1]//-/_}"
        program="$(type -P "oc-$word" || type -P "kubectl-$word")"
        words=("${words[@]:2}") ;;
      esac
    fi
    if [[ -z $program ]]; then
      former="__oc_disconnected_former_$client"
      [[ -n ${!former-} ]] && "${!former}" "$@"
      return
    fi
  else
    program="${words[0]}" words=("${words[@]:1}")
  fi
  out="$("$program" __complete "${words[@]}" 2>/dev/null)" || return
  directive="${out##*:}"
  value="${words[${#words[@]}-1]}"
  [[ $value == --*=* ]] && value="${value#*=}"
  # bash replaces only what follows the last colon.
  cut=''
  [[ $value == *:* && $COMP_WORDBREAKS == *:* ]] && cut="${value%"${value##*:}"}"
  while IFS=$'\t' read -r word rest; do
    [[ -n $word ]] && COMPREPLY+=("${word#"$cut"}")
  done <<<"${out%:*}"
  (( ${#COMPREPLY[@]} == 0 )) || return
  case "$directive" in
    0) mapfile -t COMPREPLY < <(compgen -f -- "$value") ;;
    16) mapfile -t COMPREPLY < <(compgen -d -- "$value") ;;
    *) return ;;
  esac
  compopt -o filenames 2>/dev/null
}
for __oc_disconnected_client in oc kubectl; do
  if [[ "$(complete -p "$__oc_disconnected_client" 2>/dev/null)" =~ -F\ ([^\ ]+) && ${BASH_REMATCH[1]} != __oc_disconnected ]]; then
    printf -v "__oc_disconnected_former_$__oc_disconnected_client" %s "${BASH_REMATCH[1]}"
  fi
done
complete -F __oc_disconnected oc kubectl @executables@
