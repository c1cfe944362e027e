"""What a node does before an image is made of it: it forgets who it was, and switches itself off.

Run as its user data at a reboot, or over ssh. Nothing of the cluster stays on its disk: no munge
key or other secret (not even in blocks that are free), no configuration, names, logs, host keys. So
the image can be given away, and a node made from it is a node of its own; the key must then come
from elsewhere.
"""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from springtide.configure.cloud_node import MUNGE_KEY
from springtide.node.entry import SCRIPT as ENTRY
from springtide.node.entry import UNIT
from springtide.node.system import BEGIN, END

JOIN_KEY = Path("/var/lib/springtide/key")
"""What a node joined with, and reports with."""
LAG_S = 300.0
"""So much later a console may tell what a machine said before it was off."""
UNHEARD = (
    "the machine is off and never said that it was done, so something else switched it off: its "
    "host, an admin or a script; its disk may be half made or hold secrets, so no image was made: "
    "find out what it was, and try again"
)
SHARED = (
    *("nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "smbfs", "afs", "9p", "virtiofs", "beegfs"),
    *("gpfs", "glusterfs", "pvfs2", "ocfs2", "gfs2", "fuse", "fuse.*"),
)
"""Kinds of filesystems that others may use as well, as patterns of the shell."""
SECRETS = (
    *("/etc/ssh/ssh_host_*_key", "/etc/krb5.keytab", "/etc/sssd/sssd.conf", "/var/lib/sss/db/*"),
    *("/var/lib/sss/secrets/*", "/var/lib/sss/secrets/.[!.]*"),
    *("/var/lib/cloud/instances/*/*", "/var/lib/cloud/instances/*/scripts/*"),
)
"""Passwords of the directory of people and of who was here, and what the node was started with:
cloud-init has several copies of that."""
PBS_HOMES = ("/var/spool/torque", "/var/lib/torque", "/var/spool/pbs")
PBS_JOBS = ("mom_priv/jobs", "spool", "undelivered", "aux", "checkpoint", "mom_logs")
"""Where a pbs_mom has scripts, environments and output of jobs, and who ran them."""
SECRET_DIRS = (
    *("/var/lib/sss/db", "/var/lib/sss/mc", "/var/lib/sss/secrets", "/var/lib/munge"),
    *("/etc/slurm", "/etc/slurm-llnl", "/var/spool/slurmd", "/var/spool/slurm", "/var/lib/slurm"),
    *(f"{home}/{name}" for home in PBS_HOMES for name in PBS_JOBS),
    *("/var/spool/gridengine/*", "/var/spool/sge/*", "/var/lib/gridengine/*/spool/*"),
    *("/opt/sge/*/spool/*", "/opt/gridengine/*/spool/*"),
)
"""All that is in them goes; patterns of the shell."""
TOLD = ("/etc/pbs.conf", *(f"{home}/server_name" for home in PBS_HOMES))
"""What names the server. Whoever joins writes it again."""
MARKED = (
    *("/root/.ssh/authorized_keys", "/etc/ssh/ssh_known_hosts", "/etc/ssh/sshd_config"),
    *("/etc/chrony.conf", "/etc/ntp.conf", "/etc/ntpsec/ntp.conf"),
    *(f"{home}/mom_priv/config" for home in PBS_HOMES),
)
"""Files of the image in which a part is ours."""
SERVICES = (
    *("slurmd", "pbs_mom", "torque-mom", "pbs"),
    *("gridengine-exec", "sgeexecd", "sge_execd"),
)
"""What takes jobs, as systemd knows it: a node starts it when it has joined."""
PROGRAMS = (
    *("slurmd", "slurmstepd", "pbs_mom", "sge_execd", "sge_shepherd"),
    *("munged", "sssd", "automount"),
)
ANONYMISE = """\
set -u
label={label}
quietly() {{ "$@" >/dev/null 2>&1 || true; }}
give_up() {{
    printf '\\n%s\\n' "{failed}$1"
    while :; do sleep 3600; done
}}

# First whoever would write it again. Nodes made from the image start these when they have joined.
for service in {services}; do quietly systemctl disable "$service"; done
for service in {unit} {services} munge sssd autofs; do quietly systemctl stop "$service"; done
# It starts the program of its batch system again when that ends.
for line in /proc/[0-9]*/cmdline; do
    pid=${{line#/proc/}}
    case $(tr '\\0' ' ' <"$line") in
    "sh {entry} "* | "/bin/sh {entry} "*) quietly kill -s KILL "${{pid%/cmdline}}" ;;
    esac
done 2>/dev/null
running() {{
    for comm in /proc/[0-9]*/comm; do
        read -r name <"$comm" || continue
        pid=${{comm#/proc/}}
        [ "$name" != "$1" ] || printf '%s ' "${{pid%/comm}}"
    done 2>/dev/null
}}
# They may still write while they end.
for program in {programs}; do
    for signal in TERM TERM TERM TERM TERM KILL KILL; do
        found=$(running "$program")
        [ "$found" ] || break
        quietly kill -s "$signal" $found
        sleep 1
    done
done

# What others share with this node is not its own to delete.
shared() {{
    while read -r _ path kind _; do
        case $kind in {kinds}) ;; *) is_named "$(printf %b "$path")" || continue ;; esac
        printf '%s\\n' "$path"
    done </proc/mounts
}}
# By the cluster file, of whichever kind it is. A mount is known by where its path really leads.
is_named() {{
    for named in {paths}; do
        real=$(readlink -f "$named") || real=$named
        case $1 in "$named" | "$named"/* | "$real" | "$real"/*) return 0 ;; esac
    done
    return 1
}}
there=$(shared)
printf '%s\\n' "$there" | while read -r path; do
    [ "$path" = / ] || quietly umount -l "$(printf %b "$path")"
done
left=$(shared | tr '\\n' ' ')
[ -r /proc/mounts ] || left="nobody knows which"
[ -z "$left" ] || give_up "shared files stay mounted, so nothing was deleted: $left"
# Of a directory of its own; a link may lead anywhere. The find of busybox knows no -delete.
empty() {{
    for dir in "$@"; do
        [ ! -L "$dir" ] || continue
        quietly find "$dir" -mindepth 1 -xdev ! -type d -exec rm -f {{}} +
        quietly find "$dir" -mindepth 1 -xdev -depth -type d -exec rmdir {{}} +
    done
}}

# A deleted file can be read in the image as long as nothing else was written to its place.
kept=
wipe() {{
    [ -f "$1" ] || return 0
    size=$(wc -c <"$1")
    [ "$size" = 0 ] || dd if=/dev/zero of="$1" bs="$size" count=1 conv=notrunc 2>/dev/null ||
        kept="$kept$1 "
    sync "$1"
    rm -f "$1"
}}
for key in {keys}; do wipe "$key"; done
# This script may be one of them, read on as it runs. It has no secret, and is only deleted.
for file in {secrets}; do [ -L "$file" ] || [ "$file" -ef "$0" ] || wipe "$file"; done

# What joining left: users of the cluster, lines between marks of ours, names, keys, the agent.
of_join() {{ sed -n "s/$1/\\\\1/p" {users} 2>/dev/null; }}
edit() {{
    change=$1
    shift
    for file in "$@"; do [ ! -f "$file" ] || sed -i "$change" "$file"; done
}}
literal() {{ printf %s "$1" | sed 's/[.]/[.]/g'; }}
for name in $(of_join '.*"users": \\[\\([^]]*\\)\\]}}$' | tr -d '",'); do
    edit "/^$(literal "$name"):/d" /etc/passwd /etc/shadow
done
for name in $(of_join '^{{"groups": \\[\\([^]]*\\)\\].*' | tr -d '",'); do
    edit "/^$(literal "$name"):/d" /etc/group /etc/gshadow
done
# A group of the image, and who of the cluster is in it: a line each.
of_join '.*"members": {{\\(.*\\)}}, "users": .*' | sed 's/\\], /\\n/g' | tr -d '":,[]' |
    while read -r group names; do
        for name in $names; do
            name=$(literal "$name")
            change="s/\\([:,]\\)$name,/\\1/;s/,$name\\$//;s/:$name\\$/:/"
            edit "/^$(literal "$group"):/{{$change}}" /etc/group /etc/gshadow
        done
    done
for file in {marked}; do
    [ ! -f "$file" ] || sed -i '/^{begin}$/,/^{end}$/d' "$file"
done
# What our roles wrote: they have no marks there.
[ ! -f /etc/fstab ] || sed -i '/^[^ #]* [^ ]* [^ ]* _netdev[^ ]* 0 0$/d' /etc/fstab
for file in /etc/default/slurmd /etc/sysconfig/slurmd; do
    [ ! -f "$file" ] || sed -i '/^SLURMD_OPTIONS=.*--conf-server/d' "$file"
done
rm -rf /var/lib/springtide /usr/local/lib/springtide /etc/sssd/sssd.conf
empty /var/lib/extrausers {dirs}
rm -f {told}
rm -f /etc/ssh/ssh_host_*-cert.pub /etc/ssh/sshd_config.d/springtide*
rm -f /etc/chrony/sources.d/springtide.sources /etc/chrony.d/springtide.sources
rm -f /etc/systemd/timesyncd.conf.d/springtide.conf
rm -f /usr/local/share/ca-certificates/springtide* /etc/pki/ca-trust/source/anchors/springtide*
quietly update-ca-certificates --fresh
quietly update-ca-trust
# The next boot, or whoever joins, writes it again; a link to a service's is not the cluster's.
[ -L /etc/resolv.conf ] || rm -f /etc/resolv.conf

rm -rf /run/slurm
printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost ip6-loopback\\n' >/etc/hosts
rm -f /etc/hostname /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
# An empty one is filled at the next boot.
[ ! -e /etc/machine-id ] || : >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
empty /var/lib/dhcp /var/lib/NetworkManager
rm -rf /run/systemd/netif/leases
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data /var/lib/cloud/sem
rm -f /var/lib/cloud/scripts/per-boot/springtide
empty /tmp /var/tmp
rm -f /root/.*_history /home/*/.*_history
# A checkout by ansible-pull has the name of the node; what the site installed for Ansible stays.
[ -L /root/.ansible ] || quietly find /root/.ansible -mindepth 1 -maxdepth 1 \
    ! -name collections ! -name roles -exec rm -rf {{}} +
find /var/log -type f -exec rm -f {{}} +
sync
quietly fstrim -a

# A file that cannot be changed, or is mounted, is there still.
secrets() {{
    for file in {keys} {secrets} /var/lib/springtide/*; do
        [ -L "$file" ] || [ ! -e "$file" ] || printf '%s ' "$file"
    done
    for dir in {dirs}; do
        [ -L "$dir" ] || [ ! -d "$dir" ] || find "$dir" -xdev -type f | tr '\\n' ' '
    done
}}
kept=$(printf %s "$kept$(secrets)" | tr ' ' '\\n' | sort -u | tr '\\n' ' ')
[ -z "$kept" ] || give_up "files with secrets could not be wiped and deleted: $kept"
printf '\\n%s\\n' "{done}"
"""
OFF = "sleep 30\npoweroff\n"
"""Some clouds tell what a machine said only while it runs, and are asked every few seconds."""


def done(label: str) -> str:
    """What a node says last that has forgotten who it was, for the image of this label.

    A console may hold what it said for an earlier one. The script has no such line as a whole, so
    whoever shows the script does not say it.
    """
    return f"springtide: {label}: this node has forgotten who it was"


def failed(label: str) -> str:
    """Before the reason why a machine gave up."""
    return f"springtide: {label}: the image was not built: "


def anonymise(
    label: str, shared: Iterable[Path] = (), keys: Iterable[Path] = (MUNGE_KEY, JOIN_KEY)
) -> str:
    """The script, for the image of this label and a node whose secrets are in the files `keys`.

    `shared` are paths of filesystems that are not the node's own, whatever their kind.
    """
    script = ANONYMISE.format(
        label=quote(label),
        keys=_words(keys),
        kinds="|".join(SHARED),
        paths=_words(shared),
        secrets=" ".join(SECRETS),
        dirs=" ".join(SECRET_DIRS),
        told=" ".join(TOLD),
        marked=" ".join(MARKED),
        services=" ".join(SERVICES),
        programs=" ".join(PROGRAMS),
        unit=UNIT,
        entry=ENTRY,
        users=JOIN_KEY.with_name("users"),
        begin=BEGIN,
        end=END,
        done=done("$label"),
        failed=failed("$label"),
    )
    return script + OFF


def _words(paths: Iterable[Path]) -> str:
    return " ".join(quote(str(path)) for path in paths)


def decide_forgotten(label: str, console: str, off_s: float | None) -> str | None:
    """None as long as it is not known, empty if a node has forgotten who it was, or why not.

    `off_s` is for how long it is off, None if it is not. One that was heard at all has to say it
    too, for anything may switch a machine off. The console of a cloud puts a time and a name
    before each line.
    """
    why = [
        line.partition(failed(label))[2] for line in console.splitlines() if failed(label) in line
    ]
    if why:
        return why[-1].strip() or "it did not say why"
    if done(label) in console:
        return ""
    if off_s is None:
        return None
    if not console.strip():
        return ""
    return UNHEARD if off_s >= LAG_S else None
