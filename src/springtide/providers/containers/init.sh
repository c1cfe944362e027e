#!/bin/sh
# PID 1 of a node. The provider starts it in new net, mount, uts, pid and ipc namespaces, in the
# node's directory, with the host's network namespace as stdin, a pipe to the provider as
# stdout and boot.log as stderr. Each program costs a millisecond, so few are run.
# usage: init.sh "NAMES OF THE CONTROL HOST"
set -eu

# First of all it says who it is, with the host's pid. Only one can: `process` is the claim on
# this node. Whoever deletes it claims it too, and then nothing starts here any more.
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

echo "$TIDE_NODE" >/proc/sys/kernel/hostname
if [ -e /proc/sys/net/ipv6/conf/default/disable_ipv6 ]; then
    echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
fi

# The cable is made on the host's side, and host.links has descriptor 6 for this side.
exec 3<&0 </dev/null 6</proc/self/ns/net
{
    nsenter --net=/proc/self/fd/3 ip -batch host.links
    ip -batch node.links
} &
mount -n -a -T fstab
wait $!
exec 3<&- 6<&-

# Whoever makes an image of this node finds here what it has written.
exec 5<rw/up
cd rw/root
pivot_root . sys
umount -n -l /sys
cd /
unset OLDPWD
exec </dev/null

printf '127.0.0.1 localhost\n%s %s\n%s %s\n' \
    "$TIDE_ADDRESS" "$TIDE_NODE" "$TIDE_CONTROL_ADDRESS" "$1" >/etc/hosts
printf '%s: files\n' passwd group shadow hosts >/etc/nsswitch.conf
# Images of nodes have an empty one, for every machine has its own.
if [ -e /etc/machine-id ] && [ ! -s /etc/machine-id ]; then
    read -r id </proc/sys/kernel/random/uuid
    joined() {
        IFS=-
        set -- $1
        echo "$1$2$3$4$5" >/etc/machine-id
    }
    (joined "$id")
fi

# The provider may be gone; the node goes on without it.
echo ready >&4
exec 4>&-
trap '' PIPE
echo ready || :
trap - PIPE
exec >&2

sh /run/tide/boot 5<&- || {
    echo "the boot script ended with status $?"
    exit 1
}
# It reaps orphans while it waits.
while sleep 86400 5<&-; do :; done
