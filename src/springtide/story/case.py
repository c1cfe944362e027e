"""What is known of a node or a job when its story is told; the API gathers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from springtide.model import Event, Node, NodeState, Operation
from springtide.ports import ITSELF, OURS, BatchNode, Instance, Job
from springtide.spec import Timing


@dataclass(frozen=True, slots=True)
class Due:
    """What the reconciler found wrong with a node, and will do about it."""

    why: str
    """Completes `c3: …`."""
    repair: str
    """One of `REPAIRS`, or words that complete `Springtide will …`."""
    at: float | None = None


REPAIRS: Mapping[str, str] = {
    "nothing": "",
    "tell people": "nothing by itself: a person has to look",
    "adopt its instance": "Springtide takes it into its record as it is",
    "record it as failed": "Springtide counts its start as failed and removes what it left",
    "record it as ready": "Springtide counts it as in service again",
    "release it": "Springtide tells Slurm that it may be started again",
    "undrain it": "Springtide ends the drain",
    "delete its other instances": "Springtide deletes its other instances",
    "resume": "Springtide starts it",
    "suspend": "Springtide deletes its instance",
    "repair": "Springtide removes it and gives its jobs back to the queue",
}
"""What the reconciler does, in plain words."""


@dataclass(frozen=True, slots=True)
class Held:
    """A group of which no node is launched for a while."""

    why: str
    until: float


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
    due: Due | None = None
    held: Held | None = None
    """Its group."""
    rests: str = ""
    """Why the reconciler does nothing, such as `maintenance since …`."""
    closed: str = ""
    """Why nothing is started in the whole cluster, and what to do."""
    always_up: bool = False
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
    groups: Sequence[str] = ()
    """Those of its partitions."""
    silent: str = ""
    """Why the batch system did not answer."""
    closed: str = ""
    """Why nothing is started in the whole cluster, and what to do."""
    running_since: float | None = None
    usual_s: float | None = None
    """How long a start takes as a rule."""
    start_s: float = 600.0
    """How long it may take."""

    @property
    def last(self) -> Operation | None:
        return self.operations[-1] if self.operations else None
