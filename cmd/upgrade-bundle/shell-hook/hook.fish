# Sends “oc adm upgrade create bundle …” and “oc adm release mirror … @mirrorOptions@” to the plugins,
# and every other command line to the real oc.
function __oc_plugin
    set -l name $argv[1]
    set -e argv[1]
    for prefix in oc kubectl
        if command -q $prefix-$name
            command $prefix-$name $argv
            return
        end
    end
    echo "oc: the plugin oc-$name is not on the PATH" >&2
    return 127
end

# Finds a command (the first argument) in the words of a command line, among flags that oc has everywhere. Keeps these
# flags in __oc_flags, and what follows the command in __oc_rest.
function __oc_find
    set -l wanted (string split ' ' -- $argv[1])
    set -l words $argv[2..]
    set -l found 0
    set -l place 1
    set -g __oc_flags
    set -g __oc_rest
    while test $place -le (count $words)
        set -l word $words[$place]
        switch $word
            case --
                return 1
            case '-*=*' @plain@
                set -a __oc_flags $word
            case @valued@
                set place (math $place + 1)
                test $place -le (count $words); or return 1
                set -a __oc_flags $word $words[$place]
            case '-*'
                return 1
            case '*'
                set found (math $found + 1)
                test "$word" = "$wanted[$found]"; or return 1
                if test $found -eq (count $wanted)
                    test $place -eq (count $words); or set __oc_rest $words[(math $place + 1)..]
                    return 0
                end
        end
        set place (math $place + 1)
    end
    return 1
end

# Tells whether “oc adm release mirror” has an option of the plugin.
function __oc_is_mirror_config
    for word in $argv
        switch $word
            case --
                return 1
            case @mirrorCases@
                return 0
        end
    end
    return 1
end

# Tells whether a command line asks for help.
function __oc_asks_help
    for word in $argv
        switch $word
            case --
                return 1
            case -h --help
                return 0
        end
    end
    return 1
end

# Completes what the plugins run: the completion of oc calls “oc __complete WORD… TYPED”.
function __oc_complete
    if __oc_find 'adm upgrade create bundle' $argv; and set -q __oc_rest[1]
        __oc_plugin adm_upgrade_bundle __complete create $__oc_rest
    else if __oc_find 'adm upgrade create' $argv; and test (count $__oc_rest) -eq 1; and string match -q -- "$__oc_rest*" bundle
        printf 'bundle\n:4\n'
    else if __oc_find 'adm release mirror' $argv; and __oc_is_mirror_config $__oc_rest
        __oc_plugin adm_release_mirror_config __complete $__oc_flags $__oc_rest
    else
        __oc_real __complete $argv
    end
end

# Makes of the words of an alias what is run in place of oc, and which options go to the plugin: these choose the
# cluster.
function __oc_take_alias
    set -l before
    set -l program
    set -l options
    for word in $argv
        string match -qr '^[A-Za-z0-9_./,:@%+~=$-]+$' -- $word; or return 1
        if not set -q program[1]; and string match -qr '^[A-Za-z_]\w*=' -- $word
            set -a before $word
        else if not set -q program[1]; and test $word = command
            continue
        else if not set -q program[1]
            set program $word
        else if string match -qr '^-.*=|^--insecure-skip-tls-verify$' -- $word
            set -a options $word
        else
            return 1
        end
    end
    set -q program[1]; or return 1
    test $program = oc; and set program command oc
    eval "function __oc_real; $before $program $options \$argv; end"
    eval "function __oc_mirror_config; $before __oc_plugin adm_release_mirror_config $options \$argv; end"
    eval "function __oc_create_bundle; $before __oc_plugin adm_upgrade_bundle create \$argv; end"
end

function __oc_hook
    set -l text (alias | string match -r '^alias oc (.*)$')
    if set -q text[2]
        if not __oc_take_alias (string split -n ' ' -- (string unescape -- $text[2]))
            echo 'oc: the alias oc has more than options in it, and stays: call the plugins as oc adm-upgrade-bundle and oc adm-release-mirror-config' >&2
            return
        end
    else if functions -q oc
        if not functions oc | string match -q '*__oc_real*'
            echo 'oc: there is a function oc already, which stays: call the plugins as oc adm-upgrade-bundle and oc adm-release-mirror-config' >&2
            return
        end
    else
        function __oc_real
            command oc $argv
        end
        function __oc_mirror_config
            __oc_plugin adm_release_mirror_config $argv
        end
        function __oc_create_bundle
            __oc_plugin adm_upgrade_bundle create $argv
        end
    end
    function oc --description 'oc, and the plugins for clusters without a registry'
        # The flags choose a cluster, which a bundle does not need.
        if test "$argv[1]" = __complete
            __oc_complete $argv[2..]
        else if __oc_find 'adm upgrade create bundle' $argv
            __oc_create_bundle $__oc_rest
        else if __oc_find 'adm release mirror' $argv; and __oc_is_mirror_config $__oc_rest
            __oc_mirror_config $__oc_flags $__oc_rest
        else if __oc_find 'adm release mirror' $argv; and __oc_asks_help $__oc_rest
            __oc_real $argv
            set -l code $status
            echo '@helpNote@' >&2
            return $code
        else
            __oc_real $argv
        end
    end
end
__oc_hook
