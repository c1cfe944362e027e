"""The filesystems of `shared` as nodes have them. Pure.

Nodes elsewhere mount them when they join, before slurmd starts: `membership` tells them
`mounts_of`. Container nodes see directories of this machine: `compose` has them bound in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from springtide.spec import Cluster
from springtide.spec.joining import Nfs, Shared

NFS_PORT = 2049
SANE = {
    "vers=4.2": ("vers", "nfsvers"),
    "hard": ("soft", "softerr"),
    "nodev": ("dev",),
    "nosuid": ("suid",),
}
"""Options of what this machine serves, each with those of the file that take its place.

A job must wait for a server that is away rather than read half a file.
"""
READ_ONLY = "ro"


@dataclass(frozen=True, slots=True)
class Bound:
    """A directory of this machine, and where container nodes see it."""

    source: Path
    path: Path
    read_only: bool


def mounts_of(spec: Cluster, control_address: str) -> list[dict[str, Any]]:
    """For nodes elsewhere, that know the control host by this address; as a welcome has them."""
    return [_mount(one, spec.nfs, control_address) for one in spec.shared]


def _mount(shared: Shared, nfs: Nfs, address: str) -> dict[str, Any]:
    source = f"{address}:{shared.directory}" if shared.here else shared.source
    options = [*_sane(shared, nfs), *shared.options] if shared.here else list(shared.options)
    return {
        "source": source,
        "path": str(shared.path),
        "type": shared.type,
        "options": options,
    }


def _sane(shared: Shared, nfs: Nfs) -> Iterator[str]:
    written = {option.partition("=")[0] for option in shared.options}
    for option, others in SANE.items():
        if not written & {option, *others}:
            yield option
    if nfs.port != NFS_PORT and "port" not in written:
        yield f"port={nfs.port}"


def bound_in(spec: Cluster) -> list[Bound]:
    """For container nodes. What another machine serves is mounted on this one, at its path."""
    return [
        Bound(
            source=Path(one.directory) if one.here else one.path,
            path=one.path,
            read_only=READ_ONLY in one.options,
        )
        for one in spec.shared
    ]
