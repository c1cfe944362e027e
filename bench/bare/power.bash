#!/bin/bash
# The root half of the bare programs: makes and kills the nodes that lines on a fifo name.
# Nothing is checked, recorded or repaired: as little as makes a node.
# usage: power.bash DIRECTORY INIT "NAMES OF THE CONTROL HOST"
# DIRECTORY/nodes/NAME holds all that a node is started from, DIRECTORY/power is the fifo.
. "${0%/*}/names.bash"
cd "$1" || exit
init=$2 control=$3
spaces=(--net --mount --uts --pid --ipc --fork --kill-child=KILL)

up() {
    local name address addresses=
    printf -v TIDE_ASKED_AT '%(%s)T' -1
    export TIDE_ASKED_AT
    names "$1"
    for name in "${names[@]}"; do
        read -r address <"nodes/$name/address"
        addresses+=${addresses:+,}$address
        start "$name" "$address" &
    done
    scontrol update nodename="$1" nodeaddr="$addresses"
}

start() {
    cd "nodes/$1" || exit
    export TIDE_NODE=$1 TIDE_ADDRESS=$2
    exec setsid --fork unshare "${spaces[@]}" /bin/sh "$init" "$control" \
        </proc/self/ns/net >/dev/null 2>boot.log
}

down() {
    local name pid port _
    names "$1"
    for name in "${names[@]}"; do
        [[ -s nodes/$name/process ]] || continue
        read -r _ pid _ <"nodes/$name/process"
        grep -qsaF "$init" "/proc/$pid/cmdline" && kill -KILL "$pid"
    done
    for name in "${names[@]}"; do
        read -r _ _ port _ <"nodes/$name/host.links"
        while [[ -e /sys/class/net/$port ]]; do sleep 0.005; done
        rm -f "nodes/$name/process"
    done
    scontrol update nodename="$1" state=resume
}

exec 3<>power
while read -r what nodes <&3; do
    "$what" "$nodes" &
done
