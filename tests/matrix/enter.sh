# Becomes a machine of its own: enter.sh ROOT PRIVATE COMMAND...
# PRIVATE is a directory whose `springtide` and `results` the machine sees, and which holds what it
# writes. Called in new namespaces (network, mount, pid, uts, ipc). The root becomes a real mount root,
# as container nodes need it. Slurm needs an address that is not the loopback's.
root=$1 private=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mkdir -p "$private"/{tmp,var-tmp,lib} springtide results var/lib/springtide .old
chmod 1777 "$private"/tmp "$private"/var-tmp
mount -t proc proc proc
mount --rbind /dev dev
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs tmpfs run
mkdir run/lock
mount --bind "$private/tmp" tmp
mount --bind "$private/var-tmp" var/tmp
mount --bind "$private/lib" var/lib/springtide
mount --bind "$private/springtide" springtide
mount --bind "$private/results" results

hostname matrix
printf '127.0.0.1 localhost\n192.0.2.2 matrix\n' >"$private/hosts"
: >"$private/resolv.conf"
sed 's/^hosts:.*/hosts: files/' etc/nsswitch.conf >"$private/nsswitch.conf"
for file in hosts resolv.conf nsswitch.conf; do
    touch "etc/$file"
    mount --bind "$private/$file" "etc/$file"
done
ip link set lo up
ip link add eth0 type veth peer name outside
ip link set outside up
ip address add 192.0.2.2/24 dev eth0
ip link set eth0 up
ip route add default via 192.0.2.1

pivot_root . .old
umount -l /.old
cd /springtide
# Not instead of this shell, which as the first process looks after what its children leave.
/usr/bin/env -i PATH=/opt/env/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
