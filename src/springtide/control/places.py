"""What of this machine the control container sees, and what of it it may write. Pure.

Its root is this machine's own, read-only. No overlay: nodes are overlays of it, and the kernel
stacks only two.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from springtide.configure import node_users
from springtide.configure.mounts import bound_in
from springtide.spec import Cluster, Containers

PRIVATE = {
    Path("/run"): "755",
    Path("/tmp"): "1777",  # noqa: S108 - a mount point
    Path("/var/tmp"): "1777",  # noqa: S108
    Path("/dev/shm"): "1777",  # noqa: S108
}
"""What it has for itself, and with which rights."""
ROOT = Path("/")
KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))
"""What is no file system of this machine, so its rights stay."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Places:
    """Directories by what becomes of them in the container, in the order of mounting."""

    writable: tuple[Path, ...]
    private: tuple[Path, ...]
    read_only: tuple[Path, ...]
    """Besides the root, which always is."""


def decide_places(
    writable: Iterable[Path], seen: Iterable[Path], mounted: Iterable[Path]
) -> Places:
    """`seen` must not be hidden, so what is private otherwise is shared where it lies in it."""
    needed = [*writable, *seen]
    private = [path for path in PRIVATE if not any(one.is_relative_to(path) for one in needed)]
    shared = [path for path in PRIVATE if path not in private]
    kept = sorted({*writable, *shared})
    apart = (*KERNEL, *private, *kept)
    inner = (path for path in dict.fromkeys(mounted) if path != ROOT)
    rest = [path for path in inner if not any(path.is_relative_to(one) for one in apart)]
    return Places(tuple(kept), tuple(private), tuple(rest))


def shared_directories(spec: Cluster) -> list[Path]:
    """What the daemon and its nodes write: the state, and what nodes share with this machine."""
    providers = (spec.provider, *(spec.provider_of(group) for group in spec.groups))
    mounts = [path for one in providers if isinstance(one, Containers) for path in one.mounts]
    mounts += [one.source for one in bound_in(spec)]
    return [path.resolve() for path in dict.fromkeys((spec.state, *mounts))]


def parse_mounts(mountinfo: str) -> Iterator[Path]:
    """The mount points of /proc/self/mountinfo that can be written."""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        path = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        if "rw" in fields[5].split(",") and "\n" not in path:
            yield Path(path)


def render_lines(paths: Iterable[Path]) -> str:
    return "".join(f"{path}\n" for path in paths)


def render_private(paths: Iterable[Path]) -> str:
    return "".join(f"{PRIVATE[path]} {path}\n" for path in paths)


def render_hosts(host: str, address: str) -> str:
    return f"127.0.0.1 localhost\n{address} {host}\n"


def render_switch(nsswitch: str) -> str:
    """Nobody in there answers for names, and whoever asks would wait.

    People of the cluster are known in there, though not to this machine.
    """
    lines = [line for line in nsswitch.splitlines() if not line.lstrip().startswith("hosts:")]
    return node_users.render_switch("\n".join([*lines, "hosts: files"]))
