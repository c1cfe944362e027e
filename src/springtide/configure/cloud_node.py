"""A node of Slurm with a kernel and files of its own: what it does at boot.

Nodes that join get all they need from the daemon (`joining_node`). Those of groups without `join`
have an image that holds slurmd, munged and the cluster's munge key. All else they fetch from
slurmctld ("configless"), so nothing here is secret, and a reboot is enough to have a new
configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Protocol

from springtide.configure import joining_node
from springtide.model import Node
from springtide.node import second
from springtide.ports import NodeConfigurator, Site

MUNGE_KEY = Path("/etc/munge/munge.key")
MUNGE_SOCKET = Path("/run/munge/munge.socket.2")
"""Where munge's library looks if nobody tells it otherwise."""

HEAD = (
    """\
set -eu
control={control} address={address}{more}

"""
    + joining_node.ONCE
    + """
hostname "$TIDE_NODE"
# Names that no service may know: the control host's, which may have moved, and the node's own.
names=$(grep -v " $control\\$" /etc/hosts) || names=
printf '%s\\n' "$names" "$address $control" >/etc/hosts
grep -q " $TIDE_NODE\\$" /etc/hosts || echo "127.0.1.1 $TIDE_NODE" >>/etc/hosts

"""
)
BOOT = """\
[ -s "$key" ] || {{ echo "no munge key in $key: the image must hold the cluster's"; exit 1; }}
# Without a configuration slurmd asks at munge's own socket; with one, at that of the cluster.
mkdir -p {run} "${{socket%/*}}" /var/spool/slurmd
chown munge {run}
munge -n >/dev/null 2>&1 || setpriv --reuid=munge --regid=munge --clear-groups \\
    munged --key-file="$key" --socket={own} --pid-file={run}/munged.pid \\
    --log-file={run}/munged.log --seed-file={run}/munged.seed
[ "$socket" = {own} ] || ln -sfn {own} "$socket"

{second}
# A slurmd that cannot reach slurmctld ends; this one is wanted for as long as the node is.
until slurmd {boot}-N "$TIDE_NODE" --conf-server "$address:$port"; do
    echo "slurmd did not start: is $address:$port reached from here?"
    sleep 2
done
"""


def render_head(control: str, address: str, more: str = "") -> str:
    """What nodes of any batch system begin with: once in a boot, and with names.

    `more` are further assignments.
    """
    return HEAD.format(control=quote(control), address=quote(address), more=more)


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
    pin: str = ""
    """What nodes that join know the daemon by; empty if they do not join."""
    join_port: int = 0
    """The daemon's, for nodes that join."""
    tells_boot: bool = True
    """A slurmctld that is only watched takes who tells of its boot late, by -b, for rebooted."""

    def user_data(self, site: Site) -> str:
        address = self.address or site.control_address
        if self.pin:
            return joining_node.render_boot(address, self.join_port, self.pin)
        own = f" port={self.port} socket={quote(str(self.socket))} key={quote(str(self.key))}"
        return render_head(self.control, address, own) + BOOT.format(
            own=MUNGE_SOCKET,
            run=MUNGE_SOCKET.parent,
            second=second.render_wait() if self.tells_boot else "",
            boot="-b " if self.tells_boot else "",
        )


class Boots(Protocol):
    """What nodes of a group on a cloud do at boot: one text for all of them."""

    def user_data(self, site: Site) -> str: ...


@dataclass(frozen=True, slots=True)
class ByGroup:
    """`ports.NodeConfigurator`: groups on clouds boot in their own way, all else is one for all."""

    control: NodeConfigurator
    """What is done on the control host, and for groups that are not on clouds."""
    clouds: Mapping[str, Boots] = field(default_factory=dict)

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
