"""What a decision about nodes of a polled batch system is made of: one look, by groups. Pure.

`polling` makes the scene, and `scaling` decides on it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from springtide.batch.polled import Look
from springtide.calendar import Limits, too_many
from springtide.demand import Demand
from springtide.model import Node
from springtide.packing import Pool, Rank, Room
from springtide.ports import Member
from springtide.spec import Cluster
from springtide.spec.queues import Polling
from springtide.standing import Standing, Usage, Way, free, standings


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a decision is made of."""

    spec: Cluster
    polling: Polling
    members: Mapping[str, Member]
    look: Look
    record: Mapping[str, Node]
    limits: Mapping[str, Limits]
    claimed: Collection[str] = ()
    """Nodes that operations are at."""
    held: Collection[str] = ()
    """Nodes that cannot be started now."""
    now: float = 0.0
    resting: bool = False
    """In maintenance nodes come and go with jobs alone."""


def names_of(nodes: Iterable[Standing]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of a group, in the order of the file."""

    key: str
    nodes: tuple[Standing, ...]
    limits: Limits
    member: Member | None
    """What each of them has."""
    startable: tuple[str, ...]
    able: int
    """How many can serve at once, as long as nobody undrains any."""
    kept: frozenset[str]
    """Those that others see to that they are up, as far as they can be."""

    @classmethod
    def of(cls, scene: Scene, key: str) -> "Group":
        names = [n for n in scene.spec.names(key) if n in scene.members and n in scene.record]
        nodes = tuple(standings(names, scene.look, scene.record, scene.claimed))
        held = scene.held
        group = scene.spec.groups[key]
        limits = scene.limits.get(key, Limits(group.min, len(group.names)))
        return cls(
            key,
            nodes,
            limits,
            scene.members[names[0]] if names else None,
            tuple(n.name for n in nodes if n.is_startable and n.name not in held),
            min(limits.max, sum(_may_serve(node, held) for node in nodes)),
            _kept(group.names[: group.min], nodes, held),
        )

    @property
    def shut_off(self) -> "Group":
        """With no node that may start."""
        return replace(self, startable=())

    def is_unproven(self, useless: Collection[str]) -> bool:
        """Whether a node comes up, or has, of which it is not known yet what jobs do to it."""
        there = (node for node in self.at(Way.STARTING, Way.UP) if not node.drained)
        return any(node.name not in useless for node in there)

    def at(self, *ways: Way) -> list[Standing]:
        return [node for node in self.nodes if node.way in ways]

    @property
    def up(self) -> int:
        """How many are in service or will be."""
        return len(self.at(Way.UP, Way.STARTING))

    @property
    def left(self) -> int:
        """How many more may start."""
        there = sum(node.way is not Way.OFF for node in self.nodes)
        return max(0, min(len(self.startable), self.limits.max - there))

    @property
    def pool(self) -> Pool:
        assert self.member is not None
        return Pool(
            self.key,
            names_of(self.nodes),
            self.member.cores,
            self.member.memory,
            frozenset(self.member.features),
            frozenset(self.member.queues),
            self.startable,
            self.left,
        )

    def rooms(self, taken: Usage, useless: Collection[str]) -> Iterator[Room]:
        """What is there for jobs, as far as it can be believed to be."""
        assert self.member is not None
        back = max(0, self.limits.max - self.up)
        for node in self.nodes:
            if node.drained or node.name in useless:
                continue
            if node.way is Way.UP:
                cores, memory = free(node, self.member, taken)
                yield Room(node.name, self.key, cores, memory, Rank.UP)
            elif node.way is Way.STARTING:
                yield self._whole(node, Rank.STARTING)
            elif back and node.may_stay:
                back -= 1
                yield self._whole(node, Rank.LEAVING)

    @property
    def idle_rooms(self) -> list[Room]:
        """Nodes on which jobs could start at once."""
        return [self._whole(n, Rank.UP) for n in self.nodes if n.is_free]

    def _whole(self, node: Standing, rank: Rank) -> Room:
        assert self.member is not None
        return Room(node.name, self.key, self.member.cores, self.member.memory, rank)

    def lacking(self, starting: Collection[str]) -> list[str]:
        """Those to start besides, so that as many are up as must be."""
        new = [name for name in self.startable if name in starting]
        awaited = sum(node.name in self.kept for node in self.at(Way.OFF))
        count = min(self.limits.min - self.up - len(new) - awaited, self.left - len(new))
        others = [n for n in self.startable if n not in self.kept and n not in starting]
        return others[: max(0, count)]

    def idle(self, idle_s: Mapping[str, float], least_s: float, needs: Demand) -> list[str]:
        """Those that may go, the last of the file first; the first ones are those that stay."""
        stay = frozenset(names_of(self.nodes[: self.limits.min]))
        due = [
            node.name
            for node in reversed(self.nodes)
            if node.is_idle
            and idle_s[node.name] >= least_s
            and node.name not in needs.used
            and node.name not in stay
        ]
        return due[: max(0, self.up - self.limits.min)]

    def surplus(self) -> list[str]:
        """Those that are too many and in service, without jobs first; the others end theirs."""
        found = too_many(
            self.at(Way.UP, Way.STARTING),
            self.limits.max,
            lambda node: not node.drained,
            lambda node: node.is_idle,
        )
        return list(names_of(node for node in found if node.may_retire))


def _may_serve(node: Standing, held: Collection[str]) -> bool:
    return not node.drained and (node.way is not Way.OFF or node.name not in held)


def _kept(
    first: Collection[str], nodes: Iterable[Standing], held: Collection[str]
) -> frozenset[str]:
    """Nobody starts what is drained or held: others are up in its place."""
    return frozenset(n.name for n in nodes if n.name in first and _may_serve(n, held))
