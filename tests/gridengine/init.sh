#!/bin/sh
# Holds the mount namespace of a Grid Engine for tests, and its qmaster, until stdin ends.
# usage: init.sh ROOT QMASTER
# Reads `start`, `stop` or `kill` a line, and answers each with a line when it is done.
set -eu
root=$1 qmaster=$2 pid=

# The names that it knows are those of ROOT/hosts, which may be replaced at any time.
mount -t tmpfs tmpfs "$root/etc"
mkdir "$root/etc/upper" "$root/etc/work"
ln -s "$root/hosts" "$root/etc/upper/hosts"
printf 'hosts: files\n%s: files\n' passwd group >"$root/etc/upper/nsswitch.conf"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$root/etc/upper,workdir=$root/etc/work" /etc

ended() {
    [ -z "$pid" ] || { kill "-$1" "$pid" && wait "$pid"; } 2>/dev/null || :
    pid=
}
trap 'ended KILL' EXIT

echo ready
while read -r word; do
    case $word in
    start)
        "$qmaster" >>"$root/qmaster.out" 2>&1 </dev/null &
        pid=$!
        ;;
    stop) ended TERM ;;
    kill) ended KILL ;;
    esac
    echo "$word $pid"
done
