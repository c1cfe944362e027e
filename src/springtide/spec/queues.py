"""Batch systems that are there without us and do not ask for nodes, as the cluster file has them.

Each of the cluster file's partitions is one of their queues, by its name.
"""

from typing import Literal

from springtide.spec.strict import Strict
from springtide.spec.values import AbsolutePath, Account, Host, Name, PositiveSeconds, Seconds


class Polling(Strict):
    """How it is watched."""

    every: PositiveSeconds = 10.0
    """Between two looks at its jobs and nodes."""
    patience: Seconds = 0.0
    """A job must have waited so long before nodes start for it."""
    doubt: PositiveSeconds = 120.0
    """A job that waits so long beside free nodes that would hold it is kept from starting by
    something else, such as a quota: for a while no node is started or kept for it. Longer than
    the batch system's scheduler may take."""
    leave: Literal["all", "one"] = "all"
    """Of the nodes that have been idle for `timing.idle`: all go at once, or one at a look."""


class Queued(Strict):
    """What all of them have."""

    user: Account = "root"
    """Who besides root may call our hook."""
    polling: Polling = Polling()
    bin: AbsolutePath | None = None
    """The directory of its commands, if they are not on the PATH."""
    hosts: AbsolutePath | None = None
    """A hosts file of this machine, such as /etc/hosts, in which we keep a part of our own with
    the names of nodes that are up; left out, the site makes their names known."""


class Torque(Queued):
    """A Torque server."""

    kind: Literal["torque"] = "torque"
    """Which batch system; the keys beside it depend on it."""
    server: Host | None = None
    """Its host; left out, that which its commands ask by themselves."""


class OpenPbs(Queued):
    """An OpenPBS server."""

    kind: Literal["openpbs"] = "openpbs"
    """Which batch system; the keys beside it depend on it."""
    server: Host | None = None
    """Its host; left out, that which its commands ask by themselves."""


class GridEngine(Queued):
    """A qmaster of Grid Engine."""

    kind: Literal["gridengine"] = "gridengine"
    """Which batch system; the keys beside it depend on it."""
    root: AbsolutePath | None = None
    """SGE_ROOT; left out, that of the daemon's environment."""
    cell: Name = "default"
    """SGE_CELL."""
    placeholder: Host | None = None
    """A host that exists in no network, and keeps the queues from being empty: Grid Engine
    refuses jobs for a queue without hosts. Left out, `springtide-CLUSTER-placeholder`."""

    def placeholder_of(self, cluster: str) -> str:
        """Each cluster has its own: one that goes must not empty the queues of another."""
        return self.placeholder or f"springtide-{cluster}-placeholder"
