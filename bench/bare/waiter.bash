#!/bin/bash
# One waiter for all bare prologs: asks Slurm once for everybody, and lets go of those whose
# nodes have registered.
# usage: waiter.bash DIRECTORY
# Prologs write "JOB HOSTLIST" into DIRECTORY/waiting and then read DIRECTORY/gates/JOB.
. "${0%/*}/names.bash"
cd "$1" || exit
declare -A jobs absent

hear() { # with the options of `read`: one line, and what has come after it
    local job nodes
    read -r "$@" job nodes <&3 || return
    jobs[$job]=$nodes
    while read -r -t 0 <&3; do
        read -r job nodes <&3
        jobs[$job]=$nodes
    done
}

look() {
    local name state
    absent=()
    while read -r name state; do
        [[ $state == *[~#*%!]* || $state == down* ]] && absent[$name]=1
    done < <(sinfo --noheader --Node -o '%N %t')
}

let_go() {
    local job name
    for job in "${!jobs[@]}"; do
        names "${jobs[$job]}"
        for name in "${names[@]}"; do
            [[ ${absent[$name]-} ]] && continue 2
        done
        echo go >"gates/$job" &
        unset "jobs[$job]"
    done
}

exec 3<>waiting
while :; do
    if ((${#jobs[@]})); then hear -t 0.02; else hear; fi
    look
    let_go
done
