"""What a node is told when it joins: everything it needs to become a member. Pure.

`membership` gathers the facts, `springtide.node` has the protocol. A node is told only what its
group gets, and of that nothing that it does not need.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from springtide.configure.boot import own_path
from springtide.node import PROTOCOL
from springtide.node.bundle import PLACE
from springtide.spec import Cluster

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Control:
    """Where the batch system's control host is, and what slurmd must know of it."""

    names: tuple[str, ...]
    address: str
    port: int
    socket: Path
    """Of munge, on nodes too: Slurm's configuration names it."""
    directories: tuple[str, ...] = ("/var/spool/slurmd",)
    """What slurmd expects to be there; Slurm writes %n and %h for the node's name."""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Ssh:
    """How a node is known to others, and whom it lets in."""

    certificates: Mapping[str, str] = field(default_factory=dict)
    known_hosts: str = ""
    authorized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a welcome is made of."""

    spec: Cluster
    node: str
    features: Sequence[str]
    """What it is told of."""
    address: str
    control: Control
    clock: float
    munge_key: bytes = b""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """PEM texts by the names of their files."""
    names: Mapping[str, Any] = field(default_factory=dict)
    mounts: Sequence[Mapping[str, Any]] = ()
    users: Mapping[str, Any] = field(default_factory=dict)
    ssh: Ssh = Ssh()
    health: Mapping[str, Any] = field(default_factory=dict)
    entry: Mapping[str, Any] = field(default_factory=dict)
    """How it becomes a node of a batch system other than Slurm."""
    cpus: int = 0
    memory: int = 0
    """What Slurm is told of the node."""


def welcome(facts: Facts) -> Part:
    """For a node that has shown its token, or its key."""
    features = [one for one in facts.features if _is_wanted(facts, one)]
    parts = {feature: _PARTS[feature](facts) for feature in features}
    return {
        "protocol": PROTOCOL,
        "cluster": facts.spec.cluster,
        "node": facts.node,
        "clock": facts.clock,
        "features": features,
        **parts,
    }


def _is_wanted(facts: Facts, feature: str) -> bool:
    """Whether the file says anything of it; without that images have it as they are."""
    match feature:
        case "time":
            return bool(facts.spec.time)
        case "ansible":
            return facts.spec.ansible is not None and facts.spec.ansible.pull is not None
        case "health":
            return bool(facts.health)
        case _:
            return True


def _ansible(facts: Facts) -> Part:
    assert facts.spec.ansible is not None
    assert facts.spec.ansible.pull is not None
    pull = facts.spec.ansible.pull
    return {"url": pull.url, "playbook": pull.playbook, "version": pull.version or ""}


def _ssh(facts: Facts) -> Part:
    ssh = facts.ssh
    return {
        "certificates": dict(ssh.certificates),
        "known_hosts": ssh.known_hosts,
        "authorized": list(ssh.authorized),
    }


def _slurmd(facts: Facts) -> Part:
    control = facts.control
    return {
        "server": f"{control.address}:{control.port}",
        "control": control.names[0],
        "directories": [own_path(path, facts.node) for path in control.directories],
        "tells_boot": not facts.spec.polled,
        **_told(facts),
    }


def _entry(facts: Facts) -> Part:
    return {**facts.entry, "agent": PLACE, **_told(facts)}


def _told(facts: Facts) -> Part:
    """What any batch system knows of the node."""
    return {
        "address": facts.address,
        "memory": facts.memory,
        "cpus": facts.cpus,
        "version": facts.control.version,
        "skew": facts.spec.join.skew,
    }


_PARTS = {
    "certificates": lambda facts: {"files": dict(facts.certificates)},
    "time": lambda facts: {"servers": list(facts.spec.time)},
    "names": lambda facts: dict(facts.names),
    "munge": lambda facts: {
        "key": b64encode(facts.munge_key).decode(),
        "socket": str(facts.control.socket),
    },
    "mounts": lambda facts: [dict(mount) for mount in facts.mounts],
    "users": lambda facts: dict(facts.users),
    "ssh": _ssh,
    "ansible": _ansible,
    "health": lambda facts: dict(facts.health),
    "slurmd": _slurmd,
    "entry": _entry,
}
"""By feature, as the protocol has it."""
