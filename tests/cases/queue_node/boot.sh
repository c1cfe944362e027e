set -eu
hosts=/srv/conf/hosts

# Says once what it waits for, if that takes longer than 2 s: who reads the log of a node that
# does not come up must see where it stopped.
until_there() {
    what=$1 pause=$2 tries=$3
    shift 3
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" != 0 ] || echo "waiting for $what"
        sleep "$pause"
    done
}
# Where the time goes: `configure.phases` reads it.
phase() {
    read -r up _ </proc/uptime
    echo "springtide: phase $1 up $up"
}
named() { grep -qx "$TIDE_ADDRESS $TIDE_NODE" "$hosts" 2>/dev/null; }

phase started
until_there "$TIDE_NODE to be named in $hosts" 0.1 20 named
ln -sfn "$hosts" /etc/hosts
phase configuration
for path in /home '/srv/my data'; do
    until_there "$path to be mounted" 0.1 20 [ -d "$path" ]
done
phase mounts
# People of the cluster: as they come and go if the image has libnss_extrausers.so.2, else as they are now.
people=/srv/conf/users can=
for each in /usr/lib/libnss_extrausers.so.2 /usr/lib64/libnss_extrausers.so.2 /usr/lib/*/libnss_extrausers.so.2; do
    [ ! -e "$each" ] || can=yes
done
if [ "$can" ]; then
    [ -L /var/lib/extrausers ] || rm -rf /var/lib/extrausers
    ln -sfn "$people" /var/lib/extrausers
    sed -i -E '/^(passwd|group|shadow):/{/extrausers/!s/$/ extrausers/}' /etc/nsswitch.conf
elif [ -e "$people/passwd" ]; then
    # Who is ours is noted before the lines are there.
    add() {
        echo "$each $name" >>/etc/springtide.people
        if [ "$each" = passwd ] && ! grep -q "^$found:" /etc/shadow; then
            echo "shadow $name" >>/etc/springtide.people
            grep "^$found:" "$people/shadow" >>/etc/shadow || true
        fi
        printf '%s\n' "$line" >>"/etc/$each"
    }
    # One who has the id of another would own what is the other's.
    for each in group passwd; do
        while IFS= read -r line; do
            name=${line%%:*} id=${line#*:*:}
            id=${id%%:*} found=$name
            case $name in *.*) found=$(printf %s "$name" | sed 's/[.]/[.]/g') ;; esac
            known=$(grep -m1 -e "^$found:" -e "^[^:]*:[^:]*:$id:" "/etc/$each") || known=
            case $known in
            "") add ;;
            "$name":*:"$id":*) ;;
            *)
                echo "$name ($id) of the cluster is not known here, for /etc/$each of the image" \
                    "has $known: remove that, or give the cluster's another name or id"
                ;;
            esac
        done <"$people/$each"
    done
fi
# People log in with the keys in their homes, and from node to node without being asked whether
# they know it: all container nodes have one host key, and the file names these nodes alone.
# Without people there is nobody to wait for.
if [ -s "$people/passwd" ] && [ -s /srv/key/host_key ] && [ -x /usr/sbin/sshd ]; then
    ln -sfn "$people/known_hosts" /etc/ssh/ssh_known_hosts
    mkdir -p /run/sshd
    /usr/sbin/sshd -f /dev/null -o HostKey=/srv/key/host_key -o PidFile=none -o UsePAM=no \
        -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o PermitRootLogin=no \
        -o ListenAddress="$TIDE_ADDRESS" -o Subsystem='sftp internal-sftp' ||
        echo "sshd did not start: people cannot log in"
fi &
phase users
export SGE_CELL='it'"'"'s default'
command -v execd >/dev/null || {
    echo 'cannot join: 'execd" is not there: the image must have it"
    exit 1
}
mkdir -p /var/spool/execd
mkdir -p /etc
printf %s 'n7'"'"'s $HOME
' >'/etc/sge conf'
first_version() { grep -v 'shared librar' | grep -Eo '[0-9]+([.][0-9A-Za-z]+)+' | head -n 1; }
theirs=$(first_version 2>/dev/null </srv/conf/version) || theirs=
own=$(execd -version 2>&1 </dev/null | first_version) || own=
if [ "$theirs" ] && [ "$own" ] && [ "$own" != "$theirs" ]; then
    echo 'cannot join: '"it has version $own, and the batch system has $theirs: use another image"
    exit 1
fi
phase files

# The check: who fails it says why, and takes no job.
until_there 'the health check /srv/conf/health' 0.1 20 [ -x /srv/conf/health ]
/srv/conf/health boot
phase health

phase entry
# Who comes before the batch system expects it is refused, and ends: it tries again. One that was
# told to end has left. One that ran for long was not refused.
tries=30
until began=$(date +%s) && execd -n n7; do
    code=$?
    [ "$(($(date +%s) - began))" -lt 60 ] || tries=30
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        echo 'cannot join: 'execd" ended again and again, at last with status $code"
        exit 1
    fi
    sleep 2
done
