"""A node of Slurm with a kernel and files of its own: what it does at boot.

Its image holds slurmd, munged and the cluster's munge key. All else it fetches from slurmctld
("configless"), so nothing here is secret, and a reboot is enough to have a new configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from springtide.model import Node
from springtide.ports import Configurator, Site

MUNGE_KEY = Path("/etc/munge/munge.key")
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")
"""Where munge's library looks if nobody tells it otherwise."""

BOOT = """\
set -eu
control={control} address={address} port={port} socket={socket} key={key}

# Once in a boot: cloud-init runs this by itself at the first boot of an instance alone, but renews
# it at every boot, and runs what lies beside it then.
[ ! -e /run/springtide.booted ] || exit 0
: >/run/springtide.booted
case $0 in
/var/lib/cloud/*)
    again=/var/lib/cloud/scripts/per-boot
    mkdir -p "$again"
    printf '#!/bin/sh\\nexec %s\\n' "$0" >"$again/springtide"
    chmod 755 "$again/springtide"
    ;;
esac

hostname "$TIDE_NODE"
# Names that no service may know: the control host's, which may have moved, and the node's own.
names=$(grep -v " $control\\$" /etc/hosts) || names=
printf '%s\\n' "$names" "$address $control" >/etc/hosts
grep -q " $TIDE_NODE\\$" /etc/hosts || echo "127.0.1.1 $TIDE_NODE" >>/etc/hosts

[ -s "$key" ] || {{ echo "no munge key in $key: the image must hold the cluster's"; exit 1; }}
# Without a configuration slurmd asks at munge's own socket; with one, at that of the cluster.
mkdir -p {run} "${{socket%/*}}" /var/spool/slurmd
chown munge {run}
munge -n >/dev/null 2>&1 || setpriv --reuid=munge --regid=munge --clear-groups \\
    munged --key-file="$key" --socket={own} --pid-file={run}/munged.pid \\
    --log-file={run}/munged.log --seed-file={run}/munged.seed
[ "$socket" = {own} ] || ln -sfn {own} "$socket"

# A slurmd that cannot reach slurmctld ends; this one is wanted for as long as the node is.
until slurmd -b -N "$TIDE_NODE" --conf-server "$address:$port"; do
    echo "slurmd did not start: is $address:$port reached from here?"
    sleep 2
done
"""


@dataclass(frozen=True, slots=True)
class CloudNode:
    """Where a node of a cloud finds the control host."""

    control: str
    """The control host's name."""
    port: int
    """slurmctld's."""
    socket: Path
    """Of the node's munged: Slurm's configuration names it, and is the same everywhere."""
    address: str | None = None
    """The control host's, if nodes reach it by another one than the site's."""
    key: Path = MUNGE_KEY

    def user_data(self, site: Site) -> str:
        return BOOT.format(
            control=quote(self.control),
            address=quote(self.address or site.control_address),
            port=self.port,
            socket=quote(str(self.socket)),
            key=quote(str(self.key)),
            own=MUNGE_SOCKET,
            run=MUNGE_SOCKET.parent,
        )


@dataclass(frozen=True, slots=True)
class ByGroup:
    """`ports.Configurator`: groups on clouds boot in their own way, all else is one for all."""

    control: Configurator
    """What is done on the control host, and for groups that are not on clouds."""
    clouds: Mapping[str, CloudNode] = field(default_factory=dict)

    async def prepare(self, site: Site) -> None:
        await self.control.prepare(site)

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        await self.control.publish(site, addresses)

    async def install(self) -> None:
        await self.control.install()

    def user_data(self, node: Node, site: Site) -> str:
        if node.group in self.clouds:
            return self.clouds[node.group].user_data(site)
        return self.control.user_data(node, site)
