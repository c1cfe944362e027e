# `names HOSTLIST` puts the names of a hostlist with one prefix, such as n-[000-003,007], into
# the array of that name. Slurm could do it, but a program costs milliseconds.
names() {
    local list=${1#*\[} prefix=${1%%\[*} part first at
    names=()
    if [[ $1 != *\[* ]]; then
        IFS=, read -r -a names <<<"$1"
        return
    fi
    for part in ${list//[],]/ }; do
        first=${part%-*}
        for ((at = 10#$first; at <= 10#${part#*-}; at++)); do
            printf -v "names[${#names[@]}]" '%s%0*d' "$prefix" "${#first}" "$at"
        done
    done
}
