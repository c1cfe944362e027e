"""Decisions about nodes in service, pure: who may go, who starts afresh, what another file means.

Steps, people and planner call them; `decide` is about nodes that come and go with the jobs.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from springtide.model import Kind, Move, Node, NodeState
from springtide.nodeset import fold
from springtide.ports import ITSELF, OURS, BatchNode, Instance, InstanceState, Power
from springtide.spec import Cluster

# --- taking nodes out of service ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draining:
    """How far nodes are that must leave service."""

    undrained: tuple[str, ...]
    """They take jobs still."""
    resting: tuple[str, ...]
    """They are off, but a job might have them started."""
    unserved: tuple[str, ...]
    """Jobs wait for them to start, which they will not."""
    busy: tuple[str, ...]
    free: tuple[str, ...]


def draining(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> Draining:
    """Sort nodes that are to be drained; one that the batch system does not know is free."""
    undrained, resting, unserved, busy, free = [], [], [], [], []
    for node in nodes:
        seen = batch.get(node.name)
        if _is_at_rest(node, seen):
            free.append(node.name)
            if seen is not None and not seen.drained:
                resting.append(node.name)
            continue
        if seen is not None and not seen.drained:
            undrained.append(node.name)
        if seen is not None and node.state is NodeState.OFF and seen.power is Power.GOING_UP:
            unserved.append(node.name)
        elif seen is not None and seen.busy and seen.power is not Power.DOWN:
            busy.append(node.name)
        elif seen is None or seen.drained:
            free.append(node.name)
    return Draining(tuple(undrained), tuple(resting), tuple(unserved), tuple(busy), tuple(free))


def _is_at_rest(node: Node, seen: BatchNode | None) -> bool:
    """It is off and nobody wants it, or the batch system has let go of it."""
    if seen is None:
        return node.state is NodeState.OFF
    return seen.power in (Power.DOWN, Power.GOING_DOWN) and not seen.busy


def undrainable(waiting: Iterable[str], busy: Iterable[str], limit: str) -> dict[str, str]:
    """Why nodes are given back when jobs did not end in time: all or none of them go."""
    late = frozenset(busy)
    others = f"given back, because jobs on {fold(late)} did not end in time" if late else ""
    return {
        name: f"its jobs did not end within {limit}, so it was given back"
        if name in late
        else others
        for name in waiting
    }


def adoption(node: Node, seen: BatchNode, instances: Iterable[Instance]) -> Move | None:
    """The record as the world has it: the node serves with the instance that is heard from."""
    running = [one for one in instances if one.state is InstanceState.RUNNING and one.address]
    heard = [one for one in running if one.address == seen.address] or running
    if not heard:
        return None
    one = max(heard, key=lambda instance: instance.generation)
    after = replace(
        node,
        state=NodeState.READY,
        generation=one.generation,
        instance=one.id,
        address=one.address,
        image=one.image,
        flavor=one.flavor,
        zone=one.zone,
        reason="",
    )
    return Move(node, after)


# --- giving nodes a fresh start ----------------------------------------------------------


class Fate(StrEnum):
    """What becomes of a node that is rebuilt."""

    RECREATE = "recreate"
    REBOOT = "reboot"
    REBUILD = "rebuild"
    """In place, where the provider can: the instance stays, its disk is made anew."""
    GO = "go"
    """The batch system has let go of it: what comes next is made from the new image anyway."""


_REBUILD_REASON = re.compile(r"(?:springtide: )?rebuild\b(?:.*?\bimage:\s*(\S+))?", re.IGNORECASE)


def image_asked(reason: str, action: str | None = None) -> str | None:
    """The image that somebody asks for who has the batch system reboot a node.

    An action says what to do with the node; then the reason may begin as it likes.
    """
    words = _own_words(reason)
    match = _REBUILD_REASON.match(f"rebuild {words}" if action == "rebuild" else words)
    return match[1] if match else None


def only_reboot(reason: str, action: str | None = None) -> bool:
    """Whether a reboot was chosen, or else its reason is one that says nothing of a rebuild."""
    if action is not None:
        return action == "reboot"
    words = _own_words(reason)
    return bool(words) and not _REBUILD_REASON.match(words)


def _own_words(reason: str) -> str:
    """Slurm adds words of its own to the reason for a reboot, or gives them as one."""
    words = re.sub(r"(?:\s*:\s*reboot [a-z ]+)+$", "", reason.strip())
    return "" if re.fullmatch(r"reboot(?: asap| requested| issued)?", words.lower()) else words


def fate(
    node: Node,
    runs: Instance | None,
    target: str,
    flavors: Sequence[str],
    in_place: bool = False,
) -> Fate:
    """A node whose instance is as it should be is rebooted, another one is made anew."""
    if runs is None or runs.state is not InstanceState.RUNNING:
        return Fate.RECREATE
    image, flavor = runs.image or node.image, runs.flavor or node.flavor
    if flavor not in flavors:
        return Fate.RECREATE
    if image == target:
        return Fate.REBOOT
    return Fate.REBUILD if in_place else Fate.RECREATE


def outdated(
    spec: Cluster,
    nodes: Iterable[Node],
    instances: Iterable[Instance],
    images: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Nodes whose instance is not what the file (or somebody) wants, and in what it differs.

    `images` are those that nodes of each group are to have; left out, those that the file names.
    """
    runs = {(one.node, one.generation): one for one in instances}
    found = {}
    for node in nodes:
        group = spec.groups[node.group]
        wanted = images[node.group] if images else spec.image_of(node.group)
        one = runs.get((node.name, node.generation))
        runs_image, flavor = (one.image, one.flavor) if one else (node.image, node.flavor)
        if runs_image != wanted:
            found[node.name] = f"image {runs_image} instead of {wanted}"
        elif flavor not in group.flavors:
            found[node.name] = f"flavor {flavor} instead of {group.flavors[0]}"
    return found


def unconfigured(nodes: Iterable[Node], configs: Mapping[str, str]) -> dict[str, str]:
    """Nodes that were started with another configuration than those of their group are now."""
    known = (node for node in nodes if node.config and node.group in configs)
    return {
        node.name: "another configuration" for node in known if node.config != configs[node.group]
    }


# --- another cluster file ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resizing:
    """Which nodes another cluster file sends away, and which it calls."""

    leaving: tuple[str, ...]
    joining: tuple[str, ...]
    rewritten: bool = False
    """The batch system's configuration may be another one."""
    only_sizes: bool = True
    """Nothing else changes."""

    def operations(self) -> list[tuple[Kind, tuple[str, ...]]]:
        """What has to be done; nothing, if all is as the file says.

        Nodes may leave for a day; other changes do not wait for that.
        """
        found = [(Kind.SHRINK, self.leaving), (Kind.ENLARGE, self.joining)]
        wanted = [(kind, names) for kind, names in found if names]
        alone = self.rewritten and not self.joining and not (self.leaving and self.only_sizes)
        return [(Kind.UPDATE, ()), *wanted] if alone else wanted


def resizing(
    wanted: Cluster,
    kept: Iterable[str],
    left: Collection[str],
    nodes: Iterable[Node],
    going: Collection[str] = (),
    coming: Collection[str] = (),
    up: Iterable[str] | None = None,
) -> Resizing:
    """Nodes that were always up and need not be, or left the file; those that must be up now.

    `kept` are the nodes that the last file wanted always up, `left` those that this one has no
    more, `going` those that an operation is taking away already, `coming` those that one adds,
    though it may not have begun, `up` those that must be up now, if that is another thing than
    always.
    """
    former, always = frozenset((*kept, *coming)), frozenset(wanted.always_up)
    now = always if up is None else frozenset(up)
    too_many, gone = former - always - now, frozenset(left)
    leaving, joining = [], []
    for node in nodes:
        there = node.state is not NodeState.OFF or node.name in coming
        surplus = node.name in too_many and there
        if node.name not in going and (node.name in gone or surplus):
            leaving.append(node.name)
        elif node.name in now and (node.state is not NodeState.READY or node.name in going):
            joining.append(node.name)
    return Resizing(tuple(leaving), tuple(joining))


def withheld(seen: Mapping[str, BatchNode]) -> dict[str, BatchNode]:
    """Nodes that are drained, or that a person has put down."""
    return {
        name: node
        for name, node in seen.items()
        if node.drained or (node.state == "DOWN" and node.owner not in (None, OURS, ITSELF))
    }


def withheld_by_others(nodes: Mapping[str, BatchNode], by: str) -> dict[str, list[str]]:
    """What somebody else than this person has done, and to which nodes."""
    found: dict[str, list[str]] = {}
    for name, node in nodes.items():
        if node.owner not in (None, by):
            verb = "drained" if node.drained else "put down"
            found.setdefault(f"{verb} by {node.owner}", []).append(name)
    return found
