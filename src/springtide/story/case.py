"""What is known of a node or a job when its story is told; the API gathers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from springtide.model import Event, Node, NodeState, Operation
from springtide.ports import CALENDAR, ITSELF, OURS, BatchNode, Instance, Job
from springtide.spec import Timing
from springtide.story.telling import Told
from springtide.triage import Rule


@dataclass(frozen=True, slots=True)
class Due:
    """What is wrong with a node by the table of troubles, and when that is acted upon."""

    rule: Rule
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """Why nothing is repaired that might be."""

    why: str
    ends: bool = True
    """Repairs go on by themselves when that is over; if not, a person has to look."""
    do: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A group of which no node is launched for a while, or a node that is not."""

    why: str
    until: float
    key: str = ""
    """What to say to have it lifted."""
    alone: bool = False
    """Whether it is a node's own."""


@dataclass(frozen=True, slots=True)
class NodeCase:
    """All that is known of a node."""

    name: str
    node: Node | None
    """Our record; None if it is a machine that we never touch."""
    events: Sequence[Event] = ()
    operations: Mapping[int, Operation] = field(default_factory=dict)
    """Those that the events name."""
    operation: Operation | None = None
    """The one that has it now."""
    seen: BatchNode | None = None
    silent: str = ""
    """Why the batch system did not answer."""
    jobs: Sequence[Job] = ()
    """Those on it."""
    instances: Sequence[Instance] = ()
    unlisted: bool = False
    """Nobody knows what its provider has: it did not answer, or before the record changed."""
    due: Due | None = None
    held: Held | None = None
    """Its group, or itself."""
    rest: Rest | None = None
    outage: Told | None = None
    """What of the batch system is away, and who brings it back."""
    hindrance: Told | None = None
    """What keeps it from coming up, if it is on its way."""
    unbuilt: str = ""
    """The family of its group's image, if none was built yet."""
    drift: Told | None = None
    """In what it differs from the file, and what becomes of that."""
    closed: str = ""
    """Why nothing is started in the whole cluster, and what to do."""
    always_up: bool = False
    """It is to be up, always or by the calendar."""
    calendar: str = ""
    """How many nodes of its group are to be up now, if the calendar says it."""
    full: bool = False
    """Polled batch systems: as many nodes of its group are up, or start, as the calendar allows."""
    usual_s: float | None = None
    """How long a start takes as a rule."""
    timing: Timing = field(default_factory=Timing)

    @property
    def state(self) -> NodeState:
        assert self.node is not None
        return self.node.state

    @property
    def changed_at(self) -> float:
        assert self.node is not None
        return self.node.changed_at

    @property
    def person(self) -> str:
        """Who drained it or put it down, if that is a person."""
        seen = self.seen
        if seen is None or not (seen.drained or seen.state == "DOWN"):
            return ""
        return "" if seen.owner in (None, OURS, ITSELF) else str(seen.owner)

    @property
    def too_many(self) -> bool:
        """Whether it is kept off, or is to go, by the calendar."""
        seen = self.seen
        held = seen is not None and seen.drained and f"{OURS}: {CALENDAR}" in seen.reason
        return held or self.full

    @property
    def wish(self) -> str:
        """What that person did."""
        down = self.seen is not None and self.seen.state == "DOWN"
        return f"{self.person} {'put it down' if down else 'drained it'}"


@dataclass(frozen=True, slots=True)
class Short:
    """A group that has not enough nodes."""

    most: int
    """That may be up now."""
    size: int
    """All that it has."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What the last look at a polled batch system came to for a job that waits."""

    every_s: float
    """Between two looks."""
    seen: bool = True
    """Whether it was there at that look."""
    held: bool = False
    """Something else than room must come first: the batch system does not count it as waiting."""
    strange: str = ""
    """Why no node of ours can be for it."""
    impossible: str = ""
    """Why it can never start."""
    stuck_s: float = 0.0
    """It did not start though nodes stood free for it, so it is no demand for so much longer."""
    short: Mapping[str, Short] = field(default_factory=dict)
    """Groups that have not enough nodes left for it."""
    vain: Mapping[str, float] = field(default_factory=dict)
    """Groups whose nodes take no jobs: of these no more are started for so much longer."""
    held_back: Sequence[str] = ()
    """Groups whose other nodes are not started for now."""
    patience_s: float = 0.0
    """Nodes start for it when it has waited so much longer."""
    starting: Sequence[str] = ()
    """Nodes on their way up that it may get."""


@dataclass(frozen=True, slots=True)
class JobCase:
    """All that is known of a job."""

    id: str
    job: Job | None
    """As the batch system shows it; None if it shows none of that id."""
    nodes: Sequence[Node] = ()
    """Our records of the nodes that it has, or that were asked for on its behalf last."""
    shared: bool = False
    """Some of these may be other jobs': Slurm asked for all of them at once."""
    operations: Sequence[Operation] = ()
    """Those that were for it or are at its nodes, oldest first."""
    events: Sequence[Event] = ()
    """Of those operations, about its nodes."""
    held: Mapping[str, Held] = field(default_factory=dict)
    """By group."""
    held_nodes: Mapping[str, Held] = field(default_factory=dict)
    """Nodes that were asked for on its behalf, or all that it might yet get, held by themselves."""
    groups: Sequence[str] = ()
    """Those of its partitions."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """How many nodes each of these has, where all of them are up: there are no more to start."""
    dues: Mapping[str, Due] = field(default_factory=dict)
    """What is wrong with nodes that it has."""
    rests: Mapping[str, Rest] = field(default_factory=dict)
    """Why they are not repaired."""
    silent: str = ""
    """Why the batch system did not answer."""
    outage: Told | None = None
    """What of it is away, and who brings it back."""
    calendar: Mapping[str, str] = field(default_factory=dict)
    """How many nodes are to be up now, of groups of which the calendar allows not all."""
    closed: str = ""
    """Why nothing is started in the whole cluster, and what to do."""
    unbuilt: str = ""
    """A family that one of its groups is to have, and of which no image was built yet."""
    wait: Wait | None = None
    """Where Springtide decides for which jobs nodes start."""
    running_since: float | None = None
    usual_s: float | None = None
    """How long a start takes as a rule."""
    start_s: float = 600.0
    """How long it may take."""
    over: Job | None = None
    """As the batch system keeps it for a while, if it is over."""

    @property
    def last(self) -> Operation | None:
        return self.operations[-1] if self.operations else None
