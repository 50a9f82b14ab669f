# Sends “oc adm upgrade create bundle …” and “oc adm release mirror … @mirrorOptions@” to the plugins,
# and every other command line to the real oc.
function __oc_plugin {
  local prefix name="$1"
  shift
  for prefix in oc kubectl; do
    if command -v "$prefix-$name" >/dev/null 2>&1; then
      command "$prefix-$name" "$@"
      return
    fi
  done
  printf 'oc: the plugin oc-%s is not on the PATH\n' "$name" >&2
  return 127
}

# Finds a command ($1) in the words of a command line, among flags that oc has everywhere. Keeps these flags in
# __oc_flags, and the number of words up to the end of the command in __oc_read.
function __oc_find {
  local wanted="$1 " found=''
  shift
  __oc_flags=()
  __oc_read=0
  while [[ $# -gt 0 ]]; do
    __oc_read=$((__oc_read + 1))
    case $1 in
      --) return 1 ;;
      -*=* | @plain@) __oc_flags+=("$1") ;;
      @valued@)
        [[ $# -ge 2 ]] || return 1
        __oc_flags+=("$1" "$2")
        __oc_read=$((__oc_read + 1))
        shift
        ;;
      -*) return 1 ;;
      *)
        found="$found$1 "
        [[ $wanted == "$found"* && $1 != *' '* ]] || return 1
        [[ $wanted != "$found" ]] || return 0
        ;;
    esac
    shift
  done
  return 1
}

# Tells whether “oc adm release mirror” has an option of the plugin.
function __oc_is_mirror_config {
  local word
  for word in "$@"; do
    case $word in
      --) return 1 ;;
      @mirrorCases@) return 0 ;;
    esac
  done
  return 1
}

# Tells whether a command line asks for help.
function __oc_asks_help {
  local word
  for word in "$@"; do
    case $word in
      --) return 1 ;;
      -h | --help) return 0 ;;
    esac
  done
  return 1
}

# Completes what the plugins run: the completion of oc calls “oc __complete WORD… TYPED”.
function __oc_complete {
  local __oc_flags __oc_read
  if __oc_find 'adm upgrade create bundle' "$@" && [[ $# -gt $__oc_read ]]; then
    shift "$__oc_read"
    __oc_plugin adm_upgrade_bundle __complete create "$@"
  elif __oc_find 'adm upgrade create' "$@" && [[ $# -eq $((__oc_read + 1)) && bundle == "${@: -1}"* ]]; then
    printf 'bundle\n:4\n'
  elif __oc_find 'adm release mirror' "$@" && __oc_is_mirror_config "$@"; then
    shift "$__oc_read"
    __oc_plugin adm_release_mirror_config __complete ${__oc_flags[@]+"${__oc_flags[@]}"} "$@"
  else
    __oc_real __complete "$@"
  fi
}

# Makes of the words of an alias what is run in place of oc, and which options go to the plugin: these choose the
# cluster.
function __oc_take_alias {
  local word before='' program='' options=''
  for word in "$@"; do
    word="${word#\\}"
    case $word in *[!A-Za-z0-9_./,:@%+~=\$-]*) return 1 ;; esac
    if [[ -z $program && $word == [A-Za-z_]*=* ]]; then
      before="$before$word "
    elif [[ -z $program && $word == command ]]; then
      :
    elif [[ -z $program ]]; then
      program=$word
    elif [[ $word == -*=* || $word == --insecure-skip-tls-verify ]]; then
      options="$options $word"
    else
      return 1
    fi
  done
  [[ -n $program ]] || return 1
  [[ $program != oc ]] || program='command oc'
  unalias oc
  eval "function __oc_real { $before$program$options \"\$@\"; }"
  eval "function __oc_mirror_config { ${before}__oc_plugin adm_release_mirror_config$options \"\$@\"; }"
  eval "function __oc_create_bundle { ${before}__oc_plugin adm_upgrade_bundle create \"\$@\"; }"
}

function __oc_hook {
  local __oc_text __oc_words
  if [[ $(typeset -f oc) == *__oc_real* ]]; then
    unset -f oc
  elif typeset -f oc >/dev/null; then
    echo 'oc: there is a function oc already, which stays: call the plugins as oc adm-upgrade-bundle and oc adm-release-mirror-config' >&2
    return
  else
    function __oc_real { command oc "$@"; }
    function __oc_mirror_config { __oc_plugin adm_release_mirror_config "$@"; }
    function __oc_create_bundle { __oc_plugin adm_upgrade_bundle create "$@"; }
  fi
  if __oc_text="$(alias oc 2>/dev/null)" && [[ -n $__oc_text ]]; then
    @readAlias@
    if ! __oc_take_alias "${__oc_words[@]}"; then
      echo "oc: the alias oc has more than options in it, and stays: call the plugins as oc adm-upgrade-bundle and oc adm-release-mirror-config" >&2
      return
    fi
  fi
  function oc {
    local __oc_flags __oc_read
    if [[ ${1-} == __complete ]]; then
      shift
      __oc_complete "$@"
    elif __oc_find 'adm upgrade create bundle' "$@"; then
      # They choose a cluster, which a bundle does not need.
      shift "$__oc_read"
      __oc_create_bundle "$@"
    elif __oc_find 'adm release mirror' "$@" && __oc_is_mirror_config "$@"; then
      shift "$__oc_read"
      __oc_mirror_config ${__oc_flags[@]+"${__oc_flags[@]}"} "$@"
    elif __oc_find 'adm release mirror' "$@" && __oc_asks_help "$@"; then
      __oc_real "$@"
      local __oc_code=$?
      echo '@helpNote@' >&2
      return "$__oc_code"
    else
      __oc_real "$@"
    fi
  }
}
__oc_hook
