import { executables, literalWords, pluginWords } from './plugins.ts';

/** The completion script for fish. */
export const fishCompletion = `# Completes ${pluginWords.map((word) => `oc ${word}`).join(', ')}.
# What else is typed after oc and kubectl goes to the completion that these have.

# Asks a plugin, by its path or by the end of its name, what the last of the words may become.
function __oc_disconnected_ask
    set -l name $argv[1]
    set -e argv[1]
    if string match -q '*/*' -- $name
        command -q $name; and $name __complete $argv 2>/dev/null </dev/null
        return
    end
    for prefix in oc kubectl
        if command -q $prefix-$name
            command $prefix-$name __complete $argv 2>/dev/null </dev/null
            return
        end
    end
end

# The plugin whose words are being typed, and the words of its command line; nothing where it is none.
function __oc_disconnected_line
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l name (string split -r -m 1 / -- $words[1])[-1]
    if contains -- $name ${executables.join(' ')}
        string match -q '*/*' -- $words[1]; and set -l plugin $words[1]; or set -l plugin (string replace -r '^[a-z]+-' '' -- $name)
        printf '%s\\n' $plugin $words[2..] "$typed"
    else if contains -- "$words[2]" ${pluginWords.join(' ')}
        printf '%s\\n' (string replace -a - _ -- $words[2]) $words[3..] "$typed"
    else if test "$name" = oc; and functions -q __oc_plugin
        if test "$words[2..5]" = '${literalWords}'
            printf '%s\\n' adm_upgrade_bundle create $words[6..] "$typed"
        else if __oc_is_mirror_config $words[2..]
            printf '%s\\n' adm_release_mirror_config $words[5..] "$typed"
        end
    end
end

# Tells whether only the last of the literal words is missing.
function __oc_disconnected_nearly
    functions -q __oc_plugin; and test "$(string join ' ' -- (commandline -opc))" = 'oc adm upgrade create'
end

function __oc_disconnected_ours
    test -n "$(__oc_disconnected_line)"; or __oc_disconnected_nearly
end

# Asks for candidates, and tells whether there is more to offer than names of files.
function __oc_disconnected_prepare
    set -g __oc_disconnected_candidates
    set -l line (__oc_disconnected_line)
    test (count $line) -gt 1; or return 1
    set -l answer (__oc_disconnected_ask $line)
    set -l directive (string replace -r '^:' '' -- $answer[-1])
    string match -qr '^[0-9]+$' -- $directive; or return 1
    set -e answer[-1]
    test (count $answer) -eq 0 -a $directive -eq 0; and return 1
    # Candidates for a value come without its option.
    set -l before (string match -r '^-[^=]*=' -- $line[-1]; or echo)
    if test (count $answer) -eq 0 -a $directive -eq 16
        set answer (__fish_complete_directories (string replace -r '^-[^=]*=' '' -- $line[-1]) '')
    end
    set -g __oc_disconnected_candidates $before$answer
end

for name in oc kubectl
    # What a command has of its own is not asked where a plugin is.
    set -l rules (complete $name | string match -v '*__oc_disconnected_*')
    complete -e -c $name
    for rule in $rules
        eval "$rule -n 'not __oc_disconnected_ours'"
    end
    for word in ${pluginWords.join(' ')}
        complete -c $name -n 'test (count (commandline -opc)) -eq 1' -a $word -d Plugin
    end
end
complete -c oc -f -n __oc_disconnected_nearly -a bundle -d Plugin
for name in oc kubectl ${executables.join(' ')}
    complete -k -c $name -f -n __oc_disconnected_prepare -a '$__oc_disconnected_candidates'
end`;
