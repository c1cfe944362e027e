"""A node on a cloud, of a batch system that is read, that does not join: what it does at boot.

Its image holds the batch system's program and all that the site wants; it is told the control
host's name and its entry. Nodes that join get more, from the daemon: see `springtide.node`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from shlex import quote

from springtide.configure.cloud_node import render_head
from springtide.configure.queue_node import HERE, part_of
from springtide.node import entry as entries
from springtide.ports import Entry, Site

NAMELESS = "springtide-node-name"
"""Stands for the node's name: one text is for all nodes of a group."""

BOOT = """\
mkdir -p /run/springtide
printf %s {script} | sed "s/{nameless}/$TIDE_NODE/g" >/run/springtide/entry
setsid sh /run/springtide/entry >>/var/log/springtide-entry.log 2>&1 </dev/null &
"""


@dataclass(frozen=True, slots=True)
class QueueCloudNode:
    """Where it finds the control host, and what it is started with."""

    control: str
    """The control host's names: its entry may know it by any of them."""
    entry: Callable[[str], Entry]
    address: str | None = None
    """The control host's, if nodes reach it by another one than the site's."""
    servers: Callable[[], Mapping[str, str]] = field(default=dict)
    """Where the batch system's machines are, as for `QueueNode.others`, but told at once: the
    daemon asks while all wait."""

    def user_data(self, site: Site) -> str:
        here = self.address or site.control_address
        at = self.servers().get(self.control.split()[0])
        head = render_head(self.control, here if at in (None, "", HERE) else at)
        return head + BOOT.format(script=quote(self._script()), nameless=NAMELESS)

    def _script(self) -> str:
        entry = self.entry(NAMELESS)
        prepare = entries.render_prepare(part_of(entry))
        return f"set -eu\n{prepare}{entries.render_run(entry.command, entry.ready)}"
