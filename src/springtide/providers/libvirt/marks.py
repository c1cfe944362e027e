"""Who a machine is: an element of ours in the metadata of its libvirt domain. Pure.

It is written with the domain, or before one that exists is switched on, so it is there as soon as
the machine runs, for whichever daemon looks.
"""

from dataclasses import asdict, dataclass, replace
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import libvirt

from springtide.ports import Instance, InstanceState, Launch

SPACE = "urn:springtide:instance:1"
PREFIX = "springtide"

PAUSED_BROKEN = frozenset(
    {
        libvirt.VIR_DOMAIN_PAUSED_IOERROR,
        libvirt.VIR_DOMAIN_PAUSED_WATCHDOG,
        libvirt.VIR_DOMAIN_PAUSED_CRASHED,
    }
)
_STATES = {
    libvirt.VIR_DOMAIN_RUNNING: InstanceState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: InstanceState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTDOWN: InstanceState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTOFF: InstanceState.STOPPED,
    libvirt.VIR_DOMAIN_CRASHED: InstanceState.BROKEN,
    libvirt.VIR_DOMAIN_PMSUSPENDED: InstanceState.STOPPED,
    libvirt.VIR_DOMAIN_NOSTATE: InstanceState.PENDING,
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What the domain says of itself."""

    cluster: str
    node: str
    generation: int
    group: str
    image: str
    flavor: str
    disk: str
    """The path of the image it was made from; empty if it has disks of its own."""
    mac: str
    address: str
    created_at: float
    booted_at: float
    boot: int = 1
    zone: str = ""
    host_key: str = ""
    """The public half of what it was given."""
    starting: bool = False
    """It was to be switched on, and nobody has seen it run."""
    going_at: float = 0.0
    """When it was told to go."""

    @property
    def id(self) -> str:
        return name_of(self.cluster, self.node, self.generation)

    def is_of(self, other: Instance | Launch) -> bool:
        theirs = other.cluster, other.node, other.generation
        return (self.cluster, self.node, self.generation) == theirs

    def rebooted(self, now: float) -> "Mark":
        return replace(self, booted_at=now, boot=self.boot + 1, starting=False)


def name_of(cluster: str, node: str, generation: int) -> str:
    """Of an instance, and of its domain if we make it. Names of clusters have no dots."""
    return f"{cluster}.{node}.{generation}"


def made_for(launch: Launch, now: float, disk: str, mac: str, address: str) -> Mark:
    return Mark(
        cluster=launch.cluster,
        node=launch.node,
        generation=launch.generation,
        group=launch.group,
        image=launch.image,
        flavor=launch.flavor,
        disk=disk,
        mac=mac,
        address=address,
        created_at=now,
        booted_at=now,
        zone=launch.zone or "",
    )


def render(mark: Mark, prefix: str = "") -> str:
    """The element; libvirt itself puts the prefix to it where it is given apart."""
    words = " ".join(f"{key}={quoteattr(_text(value))}" for key, value in asdict(mark).items())
    if not prefix:
        return f"<instance {words}/>"
    return f"<{prefix}:instance xmlns:{prefix}={quoteattr(SPACE)} {words}/>"


def parse(text: str) -> Mark | None:
    """None if it is none that we can read."""
    try:
        said = dict(ElementTree.fromstring(text).attrib)  # noqa: S314 - libvirt has parsed it
        return Mark(
            **{key: said[key] for key in _TEXTS},
            generation=int(said["generation"]),
            created_at=float(said["created_at"]),
            booted_at=float(said["booted_at"]),
            boot=int(said["boot"]),
            starting=said["starting"] == "1",
            going_at=float(said["going_at"]),
        )
    except (ElementTree.ParseError, KeyError, ValueError):
        return None


_TEXTS = (
    "cluster",
    "node",
    "group",
    "image",
    "flavor",
    "disk",
    "mac",
    "address",
    "zone",
    "host_key",
)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def decide_state(state: int, reason: int, mark: Mark) -> InstanceState | None:
    """None if it is not there any more, or not yet."""
    off = state in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED)
    if mark.starting and off:
        return None
    if mark.going_at:
        return InstanceState.DELETING
    if state == libvirt.VIR_DOMAIN_PAUSED:
        broken = reason in PAUSED_BROKEN
        return InstanceState.BROKEN if broken else InstanceState.RUNNING
    return _STATES.get(state, InstanceState.PENDING)


def instance(mark: Mark, state: InstanceState, image: str, address: str | None) -> Instance:
    return Instance(
        id=mark.id,
        cluster=mark.cluster,
        node=mark.node,
        generation=mark.generation,
        state=state,
        address=address,
        image=image,
        flavor=mark.flavor,
        zone=mark.zone or None,
        created_at=mark.created_at,
        booted_at=mark.booted_at,
    )
