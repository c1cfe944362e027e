"""Decisions, pure: what is to be done, from spec, record and world. Steps and API call them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf

from springtide.model import STARTING, Node, NodeState
from springtide.nodeset import NodeNameError, expand, fold
from springtide.ports import (
    BatchNode,
    CloudError,
    Denied,
    Instance,
    InstanceState,
    Job,
    NoCapacity,
    Power,
    QuotaExceeded,
    Rejected,
    Transient,
)
from springtide.spec import Cluster

GAVE_UP = "its boot failed"
"""How reasons begin of nodes that said so themselves."""

FEW = 10
"""Jobs that get a letter of their own."""

Choice = tuple[str, str | None, str | None]
"""A flavor, a zone and a market."""


def choices(spec: Cluster, group: str) -> list[Choice]:
    """Where and as what a node of the group may be made, in the order to try."""
    wanted = spec.groups[group]
    flavors = list(wanted.flavors)
    if wanted.choose == "price":
        flavors.sort(key=partial(_price, spec))
    return list(product(flavors, wanted.zones or (None,), wanted.markets or (None,)))


def _price(spec: Cluster, flavor: str) -> float:
    """What is not known is dear."""
    price = spec.flavors[flavor].price
    return inf if price is None else price


def elsewhere(
    failed: Mapping[str, CloudError], choices_left: Mapping[str, Sequence[Choice]]
) -> list[str]:
    """Nodes that the provider has no room for, and that can be tried with another choice."""
    return [n for n, error in failed.items() if isinstance(error, NoCapacity) and choices_left[n]]


def again(failed: Mapping[str, CloudError], asked: Collection[str]) -> list[str]:
    """Those whose failure may pass, if others fared otherwise: else it has been waited for."""
    passing = [name for name, error in failed.items() if isinstance(error, Transient)]
    return passing if len(passing) < len(asked) else []


_EXPLANATIONS: Mapping[type[CloudError], str] = {
    Transient: "the provider kept failing",
    NoCapacity: "the provider is full",
    QuotaExceeded: "the account's quota is used up",
    Denied: "the provider refused our credentials",
    Rejected: "the provider refused the request",
}


def explain(error: CloudError) -> str:
    """In words, and in those of the provider."""
    known = (words for kind, words in _EXPLANATIONS.items() if isinstance(error, kind))
    return f"{next(known, 'the provider failed')}: {error}"


def instances_of(instances: Iterable[Instance], names: Iterable[str]) -> dict[str, list[Instance]]:
    """All instances of the nodes, whatever their generation."""
    found: dict[str, list[Instance]] = {name: [] for name in names}
    for instance in instances:
        if instance.node in found:
            found[instance.node].append(instance)
    return found


def dead(nodes: Iterable[Node], instances: Sequence[Instance]) -> dict[str, str]:
    """Nodes on their way up whose instance is broken, and why."""
    broken = {
        (instance.node, instance.generation)
        for instance in instances
        if instance.state in (InstanceState.BROKEN, InstanceState.STOPPED)
    }
    return {
        node.name: "its instance died while it booted"
        for node in nodes
        if (node.name, node.generation) in broken
    }


def unwanted(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> dict[str, str]:
    """Nodes on their way up that the batch system is powering down again."""
    return {
        node.name: "the batch system powers it down again"
        for node in nodes
        if node.name in batch and batch[node.name].power is Power.GOING_DOWN
    }


def gave_up(nodes: Iterable[Node], said: Mapping[str, tuple[int, str]]) -> dict[str, str]:
    """Nodes on their way up that say themselves that they will not come; of this instance."""
    found = ((node, said.get(node.name, (-1, ""))) for node in nodes)
    return {
        node.name: f"{GAVE_UP}: {why}"
        for node, (generation, why) in found
        if generation == node.generation
    }


def waited_for(names: Iterable[str], batch: Mapping[str, BatchNode]) -> list[str]:
    """Nodes that the batch system has asked for and not heard from yet."""
    return [
        name
        for name in names
        if name in batch and batch[name].power is Power.GOING_UP and not batch[name].registered
    ]


def given_up(names: Iterable[str], batch: Mapping[str, BatchNode]) -> list[str]:
    """Nodes that the batch system has put down, and not asked for again."""
    return [name for name in names if name in batch and batch[name].state == "DOWN"]


def lost(nodes: Iterable[Node], instances: Iterable[Instance]) -> list[str]:
    """Ready nodes without an instance of their generation that lives.

    Clouds show machines as pending that they reboot, move or take an image of.
    """
    living = {
        (instance.node, instance.generation)
        for instance in instances
        if instance.state in (InstanceState.RUNNING, InstanceState.PENDING)
    }
    return [node.name for node in nodes if (node.name, node.generation) not in living]


def haunted(names: Iterable[str], jobs: Iterable[Job]) -> list[str]:
    """Nodes made anew on which the batch system believes the jobs of their former life to run."""
    used = {name for job in jobs if not job.configuring for name in job_nodes(job)}
    return [name for name in names if name in used]


def astray(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> dict[str, str]:
    """Nodes that the batch system looks for where they are not, and where they are."""
    return {
        node.name: node.address
        for node in nodes
        if node.address is not None and batch[node.name].address not in (None, node.address)
    }


SETBACK = "{} could not start, so the job waits again: {}"
LOSS = "{} broke, so the job goes back to the queue: {}"
"""What jobs are told, and their stories say: of which nodes, and why."""


def news(jobs: Iterable[Job], fallen: Mapping[str, str]) -> dict[str, list[str]]:
    """What to say to jobs that wait for nodes which cannot start, and to which."""
    waiting = [job for job in jobs if job.configuring]
    return _letters(waiting, fallen, SETBACK)


def losses(jobs: Iterable[Job], broken: Mapping[str, str]) -> dict[str, list[str]]:
    """What to say to jobs that have one of these nodes, and to which."""
    return _letters(jobs, broken, LOSS)


def _letters(jobs: Iterable[Job], reasons: Mapping[str, str], words: str) -> dict[str, list[str]]:
    """The same letter costs one command for all; so if they are many, nodes are not named."""
    told: dict[str, list[str]] = {}
    missing = {job.id: [name for name in job_nodes(job) if name in reasons] for job in jobs}
    concerned = {job: names for job, names in missing.items() if names}
    for job, names in concerned.items():
        which = fold(names) if len(concerned) <= FEW else "a node of it"
        told.setdefault(words.format(which, reasons[names[0]]), []).append(job)
    return told


def job_nodes(job: Job) -> list[str]:
    """The names of a job's nodes; a list that makes no sense has none."""
    try:
        return expand(job.nodes) if job.nodes else []
    except NodeNameError:
        return []


def alike(names: Iterable[str], reasons: Mapping[str, str]) -> list[list[str]]:
    """Nodes whose reasons are of one kind; what follows the first colon is particular."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(reasons[name].partition(":")[0], []).append(name)
    return list(kinds.values())


def still_wanted(names: Iterable[str], batch: Mapping[str, BatchNode]) -> dict[str, str]:
    """Nodes that a suspend must leave alone because the batch system uses them."""
    return {
        name: f"the batch system wants it again: it is {batch[name].state}, {batch[name].power}"
        for name in names
        if name in batch and batch[name].power in (Power.UP, Power.GOING_UP)
    }


def outlived(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> list[str]:
    """Ready nodes that the batch system asks for afresh: their instance is of a former life."""
    return [
        node.name
        for node in nodes
        if node.state is NodeState.READY
        and node.name in batch
        and batch[node.name].power is Power.GOING_UP
    ]


@dataclass(frozen=True, slots=True)
class ByHand:
    """How an admin's request is carried out."""

    through_batch: tuple[str, ...]
    """Ask the batch system, whose programs then call us."""
    direct: tuple[str, ...]
    """The batch system already sees it so: act ourselves."""
    settled: tuple[str, ...]
    """Nothing to do."""


def resume_by_hand(
    nodes: Iterable[Node], batch: Mapping[str, BatchNode], held: Collection[str] = ()
) -> ByHand:
    """Powered-down nodes go through the batch system; lost, leaving and held ones directly.

    The batch system forgets a request for a node that it is powering down; one that is only to
    leave when its jobs have ended is asked to stay.
    """
    through, direct, settled = [], [], []
    for node in nodes:
        seen = batch.get(node.name)
        served = node.state in (NodeState.READY, NodeState.DRAINING)
        if node.state is NodeState.READY and seen is not None and seen.leaving:
            through.append(node.name)
        elif node.state in STARTING or (served and seen is not None and seen.registered):
            settled.append(node.name)
        elif _is_plainly_off(node, seen) and node.name not in held:
            through.append(node.name)
        else:
            direct.append(node.name)
    return ByHand(tuple(through), tuple(direct), tuple(settled))


def let_go(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> list[str]:
    """Nodes that are up still, though the batch system has done with them."""
    ready = (node.name for node in nodes if node.state is NodeState.READY)
    return [name for name in ready if name in batch and batch[name].power is Power.GOING_DOWN]


def _is_plainly_off(node: Node, seen: BatchNode | None) -> bool:
    return node.state is NodeState.OFF and seen is not None and seen.power is Power.DOWN


def suspend_by_hand(nodes: Iterable[Node], batch: Mapping[str, BatchNode]) -> ByHand:
    """Nodes in service leave through the batch system, so that no job is lost."""
    through, direct, settled = [], [], []
    for node in nodes:
        seen = batch.get(node.name)
        if seen is not None and seen.power in (Power.UP, Power.GOING_UP):
            through.append(node.name)
        elif node.state is NodeState.OFF:
            settled.append(node.name)
        else:
            direct.append(node.name)
    return ByHand(tuple(through), tuple(direct), tuple(settled))
