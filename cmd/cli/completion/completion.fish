# Completion of the plugins of oc and kubectl for fish.
function __oc_disconnected_is
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[2] @names@
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
        printf "$prefix%s\n" $out
    else if test $directive = :0
        printf "$prefix%s\n" (__fish_complete_path $value)
    else if test $directive = :16
        printf "$prefix%s\n" (__fish_complete_directories $value)
    end
end
complete -c oc -n __oc_disconnected_is -f -a '(__oc_disconnected)'
complete -c kubectl -n __oc_disconnected_is -f -a '(__oc_disconnected)'
