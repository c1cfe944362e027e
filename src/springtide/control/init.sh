#!/bin/sh
# PID 1 of a control container. It is started in new net, mount, uts, pid and ipc namespaces, in
# `control` of the state directory, with the daemon's log as stdout and stderr.
# usage: init.sh HOST-NAME STATE-DIRECTORY COMMAND-OF-THE-DAEMON...
set -eu

# First of all it says who it is, with the host's pid. Only one can: `process` is the claim on the
# container.
set -C
exec 4>process
set +C
read -r boot </proc/sys/kernel/random/boot_id
read -r stat </proc/self/stat
start_of() {
    shift 19
    started=$1
}
start_of ${stat##*) }
echo "$boot ${stat%% *} started=$started" >&4
exec 4>&-

state=$2
echo "$1" >/proc/sys/kernel/hostname
shift 2
if [ -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ]; then
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
fi
ip link set lo up

while IFS= read -r path; do
    mount -n --rbind "$path" "$path"
done <writable
cd "$state/control"
while read -r mode path; do
    [ ! -d "$path" ] || mount -n -t tmpfs -o "mode=$mode" tmpfs "$path"
done <private
mount -n --bind hosts /etc/hosts
[ ! -e /etc/nsswitch.conf ] || mount -n --bind nsswitch.conf /etc/nsswitch.conf
if [ -d /var/lib/extrausers ]; then
    mkdir -p "$state/conf/users"
    mount -n --bind "$state/conf/users" /var/lib/extrausers
fi

# Of the network, /sys shows what was there when it was mounted.
mkdir -p sys
mount -n -t sysfs sysfs sys
[ ! -d /sys/fs/cgroup ] || mount -n --rbind /sys/fs/cgroup sys/fs/cgroup
mount -n --move sys /sys
mount -n -t proc proc /proc

# File systems come and go, and some let not even root in; but the root must do as it is told.
while IFS= read -r path; do
    mount -n -o remount,bind,ro "$path" || echo "$path is not read-only in the control container"
done <read-only
mount -n -o remount,bind,ro /
echo ready >>process

# Services write down what they know when they are asked to end; killed with us they could not.
stop() {
    trap '' TERM
    echo ending >>process
    kill "$daemon" 2>/dev/null || :
    wait "$daemon" || :
    pids=
    for file in "$state"/run/*.pid; do
        if read -r pid rest <"$file" && kill "$pid" 2>/dev/null; then pids="$pids $pid"; fi
    done
    left=300
    for pid in $pids; do
        while kill -0 "$pid" 2>/dev/null && [ "$left" -gt 0 ]; do
            sleep 0.1
            left=$((left - 1))
        done
    done
    exit 0
}
trap stop TERM

# It reaps orphans while it waits. A daemon that never came up is not tried again: whoever
# started the container reads its last words.
rm -f "$state/tide.sock"
came_up=
while :; do
    "$@" </dev/null &
    daemon=$!
    until [ "$came_up" ] || ! kill -0 "$daemon" 2>/dev/null; do
        [ ! -S "$state/tide.sock" ] || came_up=yes
        sleep 0.1
    done
    status=0
    wait "$daemon" || status=$?
    [ -e "$state/record.db" ] || exit "$status"
    [ "$came_up" ] || exit "$status"
    [ "$status" -eq 0 ] || {
        echo "the daemon ended with status $status, and is started again"
        sleep 1
    }
done
