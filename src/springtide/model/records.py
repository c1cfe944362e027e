"""What the store keeps beside nodes and operations: requests, holds, events, boots and images."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What the batch system (or an admin through it) asked of us, before it is an operation."""

    id: str
    program: str
    nodes: tuple[str, ...]
    received_at: float = 0.0
    jobs: tuple[str, ...] = ()
    wide: Mapping[str, str] = field(default_factory=dict)
    """The jobs of several nodes among them, and their nodes as a host list."""


class Cause(StrEnum):
    """Why nothing is launched somewhere for a while."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    DENIED = "denied"
    REJECTED = "rejected"
    BOOTS = "boots"


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is launched at a place, in a group or with a provider; then one node is tried."""

    key: str
    cause: Cause
    reason: str
    count: int
    """How often in a row it came to this."""
    since: float
    until: float


NOT_TAKEN = "node not taken"
"""What happened when the batch system refused a node, or was away when it was to join."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, past tense, to a node or an operation."""

    at: float
    what: str
    node: str | None = None
    operation: int | None = None
    detail: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True)
class Ticket:
    """The one right of a node's instance to join, and how it was used."""

    node: str
    generation: int
    expires_at: float
    used_at: float | None = None
    key: str = ""
    """The digest of the key that the node got for it, with which it reports and joins again."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """What the node said of itself when it joined."""
    proven: bool = False
    """Whether the node has used that key; then its answer did not get lost."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a node's boot, as the node told it."""

    node: str
    generation: int
    name: str
    at: float
    """When it was over."""
    took_s: float = 0.0
    detail: str = ""
    """Why it failed; empty if it went well."""

    def repeats(self, other: "Phase", within_s: float) -> bool:
        """Whether both tell of one moment: when it was is reckoned anew each time it is told."""
        return self == replace(other, at=self.at) and abs(self.at - other.at) < within_s


class Making(StrEnum):
    """How far an image is."""

    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MadeImage:
    """An image made here, or being made: one number of a family, of one architecture."""

    family: str
    number: int
    arch: str
    group: str
    """Whose provider made it."""
    provider: str
    """That provider's kind."""
    made_from: str
    """The image or node."""
    made_by: str = ""
    created_at: float = 0.0
    state: Making = Making.BUILDING
    builder: str = ""
    """The instance that it is made of has this name; of a node, empty."""
    id: str = ""
    """The provider's own."""
    detail: str = ""
    """Why it failed."""
    log: str = ""
    """The end of what the builder said."""

    @property
    def name(self) -> str:
        """What nodes made from it are said to run."""
        return f"{self.family}@{self.number}"

    @property
    def label(self) -> str:
        """What its provider calls it."""
        return f"{self.family}-{self.number}-{self.arch.replace('_', '-')}"
