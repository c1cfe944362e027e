"""What a batch system brings to the parts of a cluster, and what any of them needs. For `compose`.

`compose_slurm` and `compose_queue` make a Wiring each; `compose` puts the rest around it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from springtide.configure import identity
from springtide.configure.membership import Membership
from springtide.configure.programs import write
from springtide.daemon import DaemonError
from springtide.layout import Layout
from springtide.ports import BatchSystem, NodeConfigurator
from springtide.served.configurator import Serves
from springtide.spec import Cluster
from springtide.spec import Containers as ContainersSpec


@dataclass(frozen=True, slots=True)
class View:
    """What container nodes see of the control host's configuration, and what they must not."""

    seen: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    """Each node has one of its own there."""

    def read_only(self, path: Path, writable: Iterable[Path]) -> Path | None:
        """What is seen that a path lies in; None where a node may write, as to `writable`."""
        kinds = ((self.hidden, 0), (self.seen, 1), (writable, 2))
        around = [(one, kind) for ones, kind in kinds for one in ones if path.is_relative_to(one)]
        nearest, kind = max(around, default=(path, 0))
        return nearest if kind == 1 else None


@dataclass(frozen=True, slots=True)
class Wiring:
    """A batch system, and how nodes become its own."""

    batch: BatchSystem
    nodes: NodeConfigurator
    control: str
    """The control host's name."""
    membership: Membership
    """What nodes get that join."""
    key: Path
    """The munge key that nodes get, where the batch system has one."""
    port: int | None = None
    """slurmctld's; none of other batch systems."""
    outdated: Callable[[], bool] | None = None
    """Whether a Slurm that is not ours has other places by now; takes a moment."""
    served: Sequence[Serves] = ()
    """What it needs besides on the control host."""


def mounts(spec: Cluster) -> tuple[Path, ...]:
    """What container nodes have before they join."""
    own = spec.provider.mounts if isinstance(spec.provider, ContainersSpec) else ()
    return (*own, *(one.path for one in spec.shared))


def container_nodes(spec: Cluster) -> tuple[str, ...]:
    """In the order of the file, by which each of them has its address."""
    boxed = [key for key in spec.groups if isinstance(spec.provider_of(key), ContainersSpec)]
    return tuple(name for key in boxed for name in spec.groups[key].names)


def pin(spec: Cluster) -> str:
    """What nodes that join know the cluster by, made if need be; empty if none joins."""
    if not any(spec.gets(group) for group in spec.groups):
        return ""
    layout = Layout(spec.state)
    directory = layout.join
    try:
        identity.ensure(directory, spec.cluster)
        layout.conf.mkdir(parents=True, exist_ok=True)
        known = identity.known_hosts(directory, spec.patterns)
        write(layout.known_hosts, f"{known}\n", 0o644)
        return identity.pin(directory)
    except OSError as error:
        raise DaemonError(f"nodes could not join: {error.strerror}") from error
