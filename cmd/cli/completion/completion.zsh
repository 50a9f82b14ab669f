#compdef oc kubectl @executables@
# Completion of the plugins of oc and kubectl, and of these two as before, for zsh.
typeset -gA __oc_disconnected_former
__oc_disconnected() {
  local client=${words[1]:t} program='' former out directive line
  local -a typed found shown
  typed=("${(@)words[1,CURRENT]}")
  if [[ $client == (oc|kubectl) ]]; then
    if (( CURRENT > 2 )) && [[ $typed[2] == (@names@) ]]; then
      program=${commands[oc-${typed[2]//-/_}]:-${commands[kubectl-${typed[2]//-/_}]}}
      typed=("${(@)typed[3,-1]}")
    fi
    if [[ -z $program ]]; then
      former=$__oc_disconnected_former[$client]
      if [[ -n $former ]]; then $former "$@"; else _default; fi
      return
    fi
  else
    program=$words[1] typed=("${(@)typed[2,-1]}")
  fi
  out="$("$program" __complete "${typed[@]}" 2>/dev/null)" || return 1
  directive=${out##*:}
  for line in "${(@f)${out%:*}}"; do
    [[ -n $line ]] || continue
    found+=("${line%%$'\t'*}")
    shown+=("${line/$'\t'/  -- }")
  done
  [[ $typed[-1] == --*=* ]] && compset -P '*='
  if (( $#found )); then
    compadd -d shown -- "${found[@]}"
  elif [[ $directive == 0 ]]; then
    _files
  elif [[ $directive == 16 ]]; then
    _files -/
  fi
}
for __oc_disconnected_client in oc kubectl; do
  if [[ ${_comps[$__oc_disconnected_client]-} != __oc_disconnected ]]; then
    __oc_disconnected_former[$__oc_disconnected_client]=${_comps[$__oc_disconnected_client]-}
  fi
done
compdef __oc_disconnected oc kubectl @executables@
