#!/bin/sh
# A rack of machines for tests, switched by `provider: {kind: command}`: each is a set of namespaces
# with its own name, files and processes, on an address of the loopback network.
# Usage: rack.sh on|off|list RACK KEY STATE
set -eu
act=$1 rack=$2 key=$3 state=$4

start() {
    node=$1 home=$rack/$1
    mkdir -p "$home"
    echo "127.66.0.${node##*-}" >"$home/address"
    cp "$TIDE_USER_DATA" "$home/user-data"
    setsid unshare --mount --uts --pid --fork --kill-child --mount-proc \
        sh -eu "$0" boot "$home" "$key" "$state" >"$home/log" 2>&1 </dev/null &
    echo $! >"$home/pid"
    echo "$node ok $(cat "$home/address")"
}

is_on() { [ -s "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null; }

# Whether it is more than an entry that its parent has not looked at yet.
lives() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }

# Ends a machine, and waits until all of it has ended: what starts next needs its address and port.
# Its first process, a child of what made its namespaces, is the last to go.
stop() {
    pid=$(cat "$1/pid" 2>/dev/null) || return 0 # somebody else has just ended it
    tries=600
    inner=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || :
    kill -9 "-$pid" || :
    for one in $pid $inner; do
        while lives "$one"; do
            kill -9 "-$pid" 2>/dev/null || : # it may not have been in a group of its own yet
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || { echo "${1##*/}: process $one does not end" >&2 && exit 1; }
            sleep 0.1
        done
    done
}

case $act in
boot)
    home=$rack node=${rack##*/}
    mkdir -p "$home/spool" "$home/munge"
    cp /etc/hosts "$home/hosts"
    echo "$(cat "$home/address") $node" >>"$home/hosts"
    install -o munge -m 400 "$key" "$home/munge/munge.key"
    chown munge "$home/munge"
    mount --bind "$home/munge" /etc/munge
    mount --bind "$home/spool" /var/spool
    mount --bind "$home/hosts" /etc/hosts
    mount -t tmpfs none /run
    cp "$home/user-data" /run/user-data
    mount -t tmpfs none "$state"
    TIDE_NODE=$node TIDE_GENERATION=0 sh /run/user-data
    exec sleep 100000
    ;;
on) while read -r node _; do is_on "$rack/$node" || start "$node"; done ;;
off)
    while read -r node _; do
        ! is_on "$rack/$node" || stop "$rack/$node"
        rm -f "$rack/$node/pid"
    done
    ;;
list)
    for home in "$rack"/*/; do
        [ -d "$home" ] || continue
        home=${home%/}
        if is_on "$home"; then word=on; else word=off; fi
        echo "${home##*/} $word $(cat "$home/address")"
    done
    ;;
esac
