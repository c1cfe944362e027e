"""Gathers what a node is told when it joins: keys, names, mounts, users, from where they are kept.

`compose` makes one from the cluster file; the join service asks it for each node that joins.
"""

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from springtide.configure import identity
from springtide.configure.health import Checks, render_check
from springtide.configure.identity import BadKey
from springtide.configure.mounts import mounts_of
from springtide.configure.names import address_for, names_of, parse_domains
from springtide.configure.queue_node import part_of
from springtide.configure.welcome import Control, Facts, Ssh, welcome
from springtide.layout import Layout
from springtide.model import Node
from springtide.node.bundle import PLACE
from springtide.ports import Entry, Site
from springtide.spec import Cluster, Queued

_NOT_IN_NAME = re.compile(r"^[.-]|[^A-Za-z0-9._-]")
RESOLVER = Path("/etc/resolv.conf")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_MAX_STEM = 200
"""Nodes put words of ours before and behind it."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A node that is let in."""

    node: Node
    address: str
    """Where it is."""
    host_keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """What else is, when it is let in."""

    site: Site
    version: str
    """Of slurmctld."""
    now: float
    addresses: Mapping[str, str]
    """Of nodes that are there."""
    users: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Membership:
    """What members of one cluster have."""

    spec: Cluster
    control: Control
    """Without an address; that is the site's, or a provider's own."""
    munge_key: Path
    entry: Callable[[str], Entry] | None = None
    """How nodes of a batch system other than Slurm are started, by their names."""
    servers: Callable[[str], Mapping[str, str]] = lambda here: {}
    """Addresses of its machines by their names, for nodes that find the control host at `here`; may
    take its time."""

    @property
    def _join(self) -> Path:
        return Layout(self.spec.state).join

    @property
    def groups(self) -> tuple[str, ...]:
        """Those whose nodes join."""
        return tuple(group for group in self.spec.groups if self.spec.gets(group))

    def address(self, group: str, site: Site) -> str:
        """Where nodes of a group find the control host."""
        return address_for(self.spec, group, site)

    def wanted(self, group: str, only: Sequence[str] | None = None) -> tuple[str, ...]:
        """What a node of a group is told of: all that it gets, or of that what it asks for."""
        gets = self.spec.gets(group)
        return tuple(one for one in gets if only is None or one in only)

    def welcome(
        self, newcomer: Newcomer, around: Around, gets: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What the node is told, of these features or of all that its group gets; reads files,
        and so may fail with an OSError."""
        node, spec = newcomer.node, self.spec
        address = self.address(node.group, around.site)
        gets = self.wanted(node.group) if gets is None else gets
        cpus, memory = told(spec, node.group)
        facts = Facts(
            spec=spec,
            node=node.name,
            features=gets,
            address=newcomer.address,
            control=replace(self.control, address=address, version=around.version),
            clock=around.now,
            munge_key=self.munge_key.read_bytes() if "munge" in gets else b"",
            certificates=_certificates(spec.certificates) if "certificates" in gets else {},
            names=self._names(address, around) if "names" in gets else {},
            mounts=mounts_of(spec, address),
            users=around.users,
            ssh=self._ssh(newcomer) if "ssh" in gets else Ssh(),
            health=self._health(node.group) if "health" in gets else {},
            entry=part_of(self.entry(node.name)) if self.entry and "entry" in gets else {},
            cpus=cpus,
            memory=memory,
        )
        return welcome(facts)

    def _names(self, address: str, around: Around) -> dict[str, Any]:
        servers = self.servers(address)
        known = around.addresses
        return names_of(self.spec, self.control.names, address, known, _domains(), servers)

    def _health(self, group: str) -> dict[str, str]:
        """Where Slurm's configuration says that it is; others only have it run at boot."""
        gets = self.spec.gets(group)
        checks = Checks(
            program=self.spec.health,
            mounts=[one.path for one in self.spec.shared] if "mounts" in gets else (),
            socket=self.control.socket if "munge" in gets else None,
            memory=told(self.spec, group)[1],
            system="the batch system" if isinstance(self.spec.batch, Queued) else "Slurm",
            agent=Path(PLACE),
        )
        return {"path": str(Layout(self.spec.state).health), "text": render_check(checks)}

    def _ssh(self, newcomer: Newcomer) -> Ssh:
        """Keys of kinds that we do not sign are done without."""
        keys = [line for line in newcomer.host_keys if _is_key(line)]
        signed = identity.sign_all(self._join, newcomer.node.name, [newcomer.address], keys)
        names = (f"ssh_host_{_kind(line)}_key-cert.pub" for line in keys)
        known = identity.known_hosts(self._join, self.spec.patterns)
        certificates = dict(zip(names, signed, strict=True))
        return Ssh(certificates, known, (identity.client_key(self._join),))


def _domains() -> list[str]:
    """Where this machine looks for short names; one without a resolver has nothing to say."""
    try:
        return parse_domains(RESOLVER.read_text())
    except OSError:
        return []


def told(spec: Cluster, group: str) -> tuple[int, int]:
    """CPUs and MiB that Slurm is told of a group's nodes: what all its flavors have."""
    flavors = [spec.flavor(name) for name in spec.groups[group].flavors]
    return min(one.cpus for one in flavors), min(one.memory for one in flavors)


def _is_key(line: str) -> bool:
    try:
        return bool(identity.parse_key(line))
    except BadKey:
        return False


def _kind(line: str) -> str:
    """As sshd calls its files."""
    kind = line.split(" ", 1)[0]
    return kind.removeprefix("ssh-").split("-", 1)[0]


def _certificates(paths: Sequence[Path]) -> dict[str, str]:
    """By names that the agent takes. Files of one name may be different ones, and each
    certificate of a file gets one of its own: programs do not find those that share one."""
    found = [(_stem(path), text) for path in paths for text in _apart(_pem(path))]
    stems = [stem for stem, _ in found]
    return {
        f"{stem}.crt" if stems.count(stem) == 1 else f"{stem}-{number}.crt": text
        for number, (stem, text) in enumerate(found, 1)
    }


def _stem(path: Path) -> str:
    return _NOT_IN_NAME.sub("_", path.stem)[:_MAX_STEM]


def _apart(text: str) -> list[str]:
    """What has no certificate that we know stays as it is."""
    return _CERTIFICATE.findall(text) or [text]


def _pem(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        why = f"no certificate in PEM: {error.reason}"
        raise OSError(errno.EILSEQ, why, str(path)) from error
