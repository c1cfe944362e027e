"""Pieces of the boot scripts of container nodes, the same for every batch system. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote

from springtide.ports import Site

FUNCTIONS = """\
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
"""

MOUNTS = """\
for path in {mounts}; do
    until_there "$path to be mounted" 0.1 20 [ -d "$path" ]
done
"""


def own_path(path: str, node: str) -> str:
    """A node's own, of a path in which Slurm writes %n and %h for its name."""
    return path.replace("%n", node).replace("%h", node)


def render_mounts(paths: Iterable[Path]) -> str:
    """Waits for the shared filesystems."""
    return MOUNTS.format(mounts=" ".join(quote(str(path)) for path in paths))


def render_hosts(control: str, site: Site, addresses: Mapping[str, str]) -> str:
    """The hosts file of every node; `control` are the control host's names, but for those that are
    among `addresses`."""
    fixed = [f"{site.control_address} {control}"] * bool(control) + ["127.0.0.1 localhost"]
    names = [f"{address} {name}" for name, address in sorted(addresses.items())]
    return "\n".join([*fixed, *names]) + "\n"
