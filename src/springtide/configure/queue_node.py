"""A container node of a batch system that is read: `ports.NodeConfigurator`, from its `Entry`.

What that batch system needs on a node, its adapter says. Here it gets what every node has before
it takes jobs: names, filesystems, users, and a look at its health.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

from springtide.configure import health, node_users
from springtide.configure.boot import FUNCTIONS, render_hosts, render_mounts
from springtide.configure.health import Checks
from springtide.configure.node_ssh import NodeSsh
from springtide.configure.programs import write
from springtide.model import Node
from springtide.node import entry as entries
from springtide.ports import Entry, Site

HERE = "127.0.0.1"
"""This machine, wherever a node finds it: as an address of `others`."""

BOOT = """\
set -eu
hosts={hosts}

{functions}named() {{ grep -qx "$TIDE_ADDRESS $TIDE_NODE" "$hosts" 2>/dev/null; }}

phase started
{ssh}until_there "$TIDE_NODE to be named in $hosts" 0.1 20 named
ln -sfn "$hosts" /etc/hosts
phase configuration
{mounts}phase mounts
{people}phase users
{prepare}{compare}phase files
{health}phase health

phase entry
{run}"""


@dataclass(frozen=True, slots=True)
class QueueNode:
    """Where the cluster's files are, on the control host and on nodes alike."""

    hosts: Path
    """The names of control host and nodes, for the nodes."""
    control: str
    """The control host's names."""
    entry: Callable[[str], Entry]
    """What a node is started with, by its name."""
    host_key: Path
    """Of all container nodes, in a directory that users cannot enter."""
    mounts: Sequence[Path] = ()
    """The shared filesystem: there before the node joins."""
    others: Callable[[], Mapping[str, str]] = field(default=dict)
    """Addresses of further machines by their names, such as that of a server elsewhere, or of this
    one by its own names, if nodes must find it at that address alone; an empty one cannot be found
    out now, and nodes keep what they know of it; HERE is another name of this machine. May take its
    time."""
    health: Path | None = None
    """The site's program that nodes must pass."""
    ssh: NodeSsh | None = None
    """How Ansible logs in; None if it does not."""
    joined: Callable[[], Awaitable[Collection[str]]] | None = None
    """Nodes that the batch system expects where they are. Others are not named to nodes, and so do
    not go on: Torque refuses who reports before it knows where he is, and hears from him again only
    after 45 s. None is for all."""

    async def prepare(self, site: Site) -> None:
        self.hosts.parent.mkdir(parents=True, exist_ok=True)
        self.host_key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(self.others)  # known then before the first node is made
        await self.install()

    async def publish(self, site: Site, addresses: Mapping[str, str]) -> None:
        """Files that all nodes see; each is replaced whole, and only if it changes."""
        found = await asyncio.to_thread(self.elsewhere, site.control_address)
        names = {**found, **await self._expected(addresses)}
        control = " ".join(name for name in self.control.split() if name not in names)
        write(self.hosts, render_hosts(control, site, names), 0o644)
        if not addresses:
            return
        entry = await asyncio.to_thread(self.entry, next(iter(addresses)))
        if entry.version:
            write(self.version, f"{entry.version}\n", 0o644)

    async def _expected(self, addresses: Mapping[str, str]) -> dict[str, str]:
        if self.joined is None:
            return dict(addresses)
        joined, known = await self.joined(), _written(self.hosts)
        return {n: at for n, at in addresses.items() if n in joined or known.get(n) == at}

    def elsewhere(self, here: str) -> dict[str, str]:
        """The further machines, for nodes that find this one at `here`. A lookup that failed takes
        none away from nodes."""
        known = _written(self.hosts)
        found = {name: address or known.get(name, "") for name, address in self.others().items()}
        return {name: here if at == HERE else at for name, at in found.items() if at}

    async def install(self) -> None:
        self.check.parent.mkdir(parents=True, exist_ok=True)
        write(self.check, health.render_check(Checks(self.health, mounts=self.mounts)), 0o755)

    @property
    def check(self) -> Path:
        """What looks at a node, where nodes see it."""
        return self.hosts.with_name("health")

    @property
    def version(self) -> Path:
        """What the batch system's version is, where nodes see it."""
        return self.hosts.with_name("version")

    def user_data(self, node: Node, site: Site) -> str:
        return render_boot(self, self.entry(node.name))


def _written(hosts: Path) -> dict[str, str]:
    """The addresses that a hosts file has."""
    lines = hosts.read_text().splitlines() if hosts.exists() else ()
    words = (line.split() for line in lines)
    return {name: address for address, *names in words for name in names}


def part_of(entry: Entry) -> dict[str, Any]:
    """As a node is told of it."""
    return {
        "command": list(entry.command),
        "environment": dict(entry.environment),
        "files": {str(path): text for path, text in entry.files.items()},
        "settings": {
            str(path): {"lines": list(one.lines), "defaults": list(one.defaults)}
            for path, one in entry.settings.items()
        },
        "directories": [str(path) for path in entry.directories],
        "versions": list(entry.versions),
        "ready": list(entry.ready),
    }


def render_boot(node: QueueNode, entry: Entry) -> str:
    """A shell script: names, filesystem and users first; the program only after all that."""
    return BOOT.format(
        hosts=quote(str(node.hosts)),
        functions=FUNCTIONS,
        ssh=node.ssh.render_boot() if node.ssh else "",
        mounts=render_mounts(node.mounts),
        people=node_users.render_boot(
            node.hosts.with_name("users"), None if node.ssh else node.host_key
        ),
        compare=entries.render_compare(entry.versions, str(node.version)),
        prepare=entries.render_prepare(part_of(entry)),
        health=health.render_boot(node.check),
        run=entries.render_run(entry.command, entry.ready),
    )
