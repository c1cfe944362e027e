set -eu
control=head address=10.0.0.1

# Once in a boot: cloud-init runs this by itself at the first boot of an instance alone, but renews
# it at every boot, and runs what lies beside it then.
[ ! -e /run/springtide.booted ] || exit 0
: >/run/springtide.booted
case $0 in
/var/lib/cloud/*)
    again=/var/lib/cloud/scripts/per-boot
    mkdir -p "$again"
    printf '#!/bin/sh\nexec %s\n' "$0" >"$again/springtide"
    chmod 755 "$again/springtide"
    ;;
esac

hostname "$TIDE_NODE"
# Names that no service may know: the control host's, which may have moved, and the node's own.
names=$(grep -v " $control\$" /etc/hosts) || names=
printf '%s\n' "$names" "$address $control" >/etc/hosts
grep -q " $TIDE_NODE\$" /etc/hosts || echo "127.0.1.1 $TIDE_NODE" >>/etc/hosts

mkdir -p /run/springtide
printf %s 'set -eu
export SGE_CELL='"'"'it'"'"'"'"'"'"'"'"'s default'"'"'
command -v execd >/dev/null || {
    echo '"'"'cannot join: '"'"'execd" is not there: the image must have it"
    exit 1
}
mkdir -p /var/spool/execd
mkdir -p /etc
printf %s '"'"'springtide-node-name'"'"'"'"'"'"'"'"'s $HOME
'"'"' >'"'"'/etc/sge conf'"'"'
# Who comes before the batch system expects it is refused, and ends: it tries again. One that was
# told to end has left. One that ran for long was not refused.
tries=30
until began=$(date +%s) && execd -n springtide-node-name; do
    code=$?
    [ "$(($(date +%s) - began))" -lt 60 ] || tries=30
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        echo '"'"'cannot join: '"'"'execd" ended again and again, at last with status $code"
        exit 1
    fi
    sleep 2
done
' | sed "s/springtide-node-name/$TIDE_NODE/g" >/run/springtide/entry
setsid sh /run/springtide/entry >>/var/log/springtide-entry.log 2>&1 </dev/null &
