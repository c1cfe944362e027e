"""What a node does before an image is made of it: it forgets who it was, and switches itself off.

Run as its user data, at a reboot. Nothing of the cluster stays on its disk: no munge key (not even
in blocks that are free), no configuration, names, logs, host keys. So the image can be given
away, and a node made from it is a node of its own; the key must then come from elsewhere.
"""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from springtide.configure.cloud_node import MUNGE_KEY

ANONYMISE = """\
set -u
quietly() {{ "$@" >/dev/null 2>&1 || true; }}

# First whoever would write it again.
for service in slurmd munge; do quietly systemctl stop "$service"; done
for program in slurmd slurmstepd munged; do quietly killall "$program"; done

# A deleted file can be read in the image as long as nothing else was written to its place.
for key in {keys}; do
    [ -f "$key" ] || continue
    size=$(wc -c <"$key")
    dd if=/dev/zero of="$key" bs="$size" count=1 conv=notrunc 2>/dev/null
    sync
    rm -f "$key"
done

rm -rf /etc/slurm/* /etc/slurm-llnl/* /run/slurm /var/spool/slurmd/* /var/spool/slurm/*
rm -rf /var/lib/munge/* /var/lib/slurm/*
printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost ip6-loopback\\n' >/etc/hosts
rm -f /etc/hostname /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
# An empty one is filled at the next boot.
[ ! -e /etc/machine-id ] || : >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed
rm -rf /var/lib/dhcp/* /var/lib/NetworkManager/* /run/systemd/netif/leases
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data /var/lib/cloud/sem
rm -f /var/lib/cloud/scripts/per-boot/springtide
rm -rf /tmp/* /var/tmp/*
rm -f /root/.*_history /home/*/.*_history
find /var/log -type f -exec rm -f {{}} +
sync
quietly fstrim -a
echo "{done}"
poweroff
"""
DONE = "this node has forgotten who it was"
"""What it says last."""


def anonymise(keys: Iterable[Path] = (MUNGE_KEY,)) -> str:
    """The script, for a node whose secrets are in these files."""
    return ANONYMISE.format(keys=" ".join(quote(str(key)) for key in keys), done=DONE)
