#!/bin/sh
# Machines for tests, switched by `provider: {kind: command}`: each has namespaces of its own, also
# of the network, and files of its own over those of this machine. Of the directory ROOT, where the
# cluster is, they see `shared` and nothing else, and so of others that `places` there names, a line
# each; what is in `image` there, their files have as well.
# A directory of this machine that `seen` there names they see, wherever it is. With a file `early`
# there they have an sshd as soon as they boot, and do nothing else before it was tried ten times.
# Usage: bay.sh on|off|list BAY BRIDGE ROOT
set -eu
act=$1 bay=$(realpath "$2") bridge=$3 root=$(realpath "$4")

is_on() { [ -s "$1/pid" ] && kill -0 "$(cat "$1/pid")" 2>/dev/null; }

# Whether it is more than an entry that its parent has not looked at yet.
lives() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }

# Ends a machine, and waits until all of it has ended: what starts next needs its files.
# Its first process, a child of what made its namespaces, is the last to go.
stop() {
    pid=$(cat "$1/pid" 2>/dev/null) || return 0 # somebody else has just ended it
    tries=600
    inner=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null) || :
    kill -9 "-$pid" || :
    for one in $pid $inner; do
        while lives "$one"; do
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || { echo "${1##*/}: process $one does not end" >&2 && exit 1; }
            sleep 0.1
        done
    done
}

# The process that is first in the machine, a child of what made its namespaces.
first() {
    until found=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && [ "$found" ]; do sleep 0.05; done
    echo "${found% }"
}

start() {
    node=$1 home=$bay/$1 number=${1##*-}
    rm -rf "$home"
    mkdir -p "$home/upper" "$home/work" "$home/root"
    cp "$TIDE_USER_DATA" "$home/user-data"
    network=$(ip -o -4 address show dev "$bridge" | sed 's/.* inet \([0-9.]*\)\.[0-9]*\/.*/\1/')
    echo "$network.$((10 + number))" >"$home/address"
    setsid unshare --mount --uts --ipc --pid --net --fork --kill-child \
        sh -eu "$0" boot "$home" "$bridge" "$root" >"$home/log" 2>&1 </dev/null &
    pid=$!
    inner=$(first "$pid")
    link=${bridge%0}$number
    # That of the machine before may be there still: a network is cleared away after its end.
    ip link delete "$link" 2>/dev/null || :
    ip link add "$link" master "$bridge" type veth peer name eth0 netns "$inner"
    ip link set "$link" up
    echo "$inner" >"$home/inner"
    echo "$pid" >"$home/pid"
    echo "$node ok $(cat "$home/address")"
}

boot() {
    home=$bay node=${bay##*/} new=$bay/root
    address=$(cat "$home/address")
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
    ip link set lo up
    ip address add "$address/24" dev eth0
    ip link set eth0 up

    mount --make-rprivate /
    mount -t overlay node -o "lowerdir=/,upperdir=$home/upper,workdir=$home/work" "$new"
    [ ! -d "$root/image" ] || tar -C "$root/image" -c . | tar -C "$new" -x --keep-directory-symlink
    mount -t tmpfs none "$new/run"
    mount -t tmpfs none "$new/tmp"
    for place in "$root" $(cat "$root/places" 2>/dev/null); do
        mkdir -p "$new$place"
        mount -t tmpfs -o mode=755 none "$new$place"
        mkdir "$new$place/shared"
        mount --bind "$place/shared" "$new$place/shared"
    done
    if [ -f "$root/seen" ]; then
        seen=$(cat "$root/seen")
        mkdir -p "$new$seen"
        mount --bind -o ro "$seen" "$new$seen"
    fi
    mount --rbind /dev "$new/dev"
    mount --rbind /sys "$new/sys"
    mount -t proc none "$new/proc"
    cp "$home/user-data" "$new/run/user-data"
    # An image has no keys of a machine.
    rm -f "$new"/etc/ssh/ssh_host_* "$new"/etc/munge/munge.key
    while [ -e "$home/../hold" ]; do sleep 0.05; done
    if [ -e "$root/early" ]; then early=yes; else early=; fi
    cd "$new"
    mkdir -p run/old run/sshd
    pivot_root . run/old
    umount -l /run/old
    if [ "$early" ]; then
        ssh-keygen -A
        /usr/sbin/sshd -E /run/sshd.log -o LogLevel=VERBOSE
        until [ "$(grep -c 'Connection from' /run/sshd.log)" -ge 10 ]; do sleep 0.05; done
    fi
    # With the tokens of other machines in it, it is to be in no file.
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TIDE_NODE="$node" sh -s 3</run/user-data <<'END' || :
rm /run/user-data
exec sh /dev/fd/3 </dev/null
END
    [ "$early" ] || /usr/sbin/sshd
    # No longer than any test: a machine that nobody switches off ends by itself.
    exec sleep 1800
}

case $act in
boot) boot ;;
on)
    while read -r node _; do
        is_on "$bay/$node" || start "$node"
    done
    ;;
off)
    while read -r node _; do
        ! is_on "$bay/$node" || stop "$bay/$node"
        rm -f "$bay/$node/pid"
    done
    ;;
list)
    for home in "$bay"/*/; do
        [ -d "$home" ] || continue
        home=${home%/}
        if is_on "$home"; then word=on; else word=off; fi
        echo "${home##*/} $word $(cat "$home/address")"
    done
    ;;
esac
