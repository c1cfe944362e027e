"""Whether Torque's queues say which nodes are theirs: it gives a job any node, if nobody does.

For `tide check`; looks, changes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide import compose_queue
from springtide.batch import torque_submit_filter
from springtide.batch.torque_commands import Commands
from springtide.batch.torque_mom import HOME
from springtide.batch.torque_rules import properties
from springtide.batch.torque_text import parse_nodes, parse_queues
from springtide.batch.unread import UnreadableError
from springtide.cli.subject import Check, Subject
from springtide.cli.torque_filter_checks import decide_filter, look_at_filter
from springtide.ports import Member, Unavailable
from springtide.spec import Torque

DEFAULTS = ("resources_default.neednodes", "resources_default.nodes")
"""What jobs ask for that say nothing of nodes; the first that a queue has counts."""
NAME = "Torque's queues"

Queues = Mapping[str, Mapping[str, str]]


def look_at_queues(subject: Subject) -> Iterable[Check]:
    """One that is away is told of by another check."""
    spec = subject.spec
    if not isinstance(spec.batch, Torque) or compose_queue.lacks(spec):
        return
    commands = Commands(spec.batch.bin, spec.batch.server)
    try:
        queues = parse_queues(commands.read("qstat", "-Q", "-f"))
    except Unavailable:
        return
    members = compose_queue.members(spec).values()
    wrong = list(decide_checks(queues, spec.partitions, members, _nodes(commands)))
    yield from wrong
    if not wrong:
        yield Check(NAME, True, f"each says which nodes are its own: {', '.join(spec.partitions)}")
    found = look_at_filter(HOME / "torque.cfg", Path(torque_submit_filter.QUEUES))
    yield from decide_filter(found, tuple(spec.partitions))


def _nodes(commands: Commands) -> frozenset[str]:
    """The names of all; none if there are none, or if they are not told."""
    try:
        return frozenset(parse_nodes(commands.read("pbsnodes", "-x")))
    except (Unavailable, UnreadableError):
        return frozenset()


def decide_checks(
    queues: Queues, served: Collection[str], members: Collection[Member], nodes: Collection[str]
) -> Iterator[Check]:
    """What is to be told of the queues, as Torque has them; `nodes` are the names of all. Pure."""
    names = {*nodes, *(member.name for member in members)}
    asks = {name: _asks(queue, names) for name, queue in queues.items()}
    for name in served:
        yield from _of_ours(name, asks, [m for m in members if name in m.queues])
    executes = [name for name, one in queues.items() if one.get("queue_type") == "Execution"]
    others = [name for name in executes if name not in served]
    for name in others:
        if asks[name].strangers:
            yield _broken(name, asks[name], None)
    if loose := [name for name in others if not asks[name].words]:
        text = f"jobs of {', '.join(loose)} ask for no nodes of their own, and may start on ours"
        todo = "give your own nodes a property, and have the queue ask for it"
        yield Check(NAME, None, text, f"{todo}: `{_command(loose[0], 'PROPERTY')}`")


def _of_ours(name: str, asks: Mapping[str, "Asks"], members: Collection[Member]) -> Iterator[Check]:
    has = [{member.name, *properties(member)} for member in members]
    if name not in asks:
        todo = f'make it (`qmgr -c "create queue {name} queue_type=execution"`), or correct'
        yield Check(NAME, False, f"there is no queue {name}", f"{todo} `partitions`")
    elif asks[name].strangers:
        yield _broken(name, asks[name], False)
    elif not asks[name].words or not any(asks[name].words <= one for one in has):
        text = f"jobs of {name} do not ask for nodes of {name}, and may start elsewhere, or never"
        yield Check(NAME, None, text, f"run `{_command(name, name)}`")


@dataclass(frozen=True, slots=True)
class Asks:
    """What jobs of a queue ask for that say nothing of nodes."""

    key: str = ""
    spec: str = ""
    words: frozenset[str] = frozenset()
    """Properties and names of nodes."""
    strangers: tuple[str, ...] = ()
    """Names of nodes that there are not."""


def _asks(queue: Mapping[str, str], nodes: Collection[str]) -> Asks:
    """A part that begins with a letter is the name of a node, and no property."""
    key = next((key for key in DEFAULTS if queue.get(key)), "")
    spec = queue.get(key, "")
    parts = [part.split(":") for part in spec.partition("#")[0].split("+")]
    firsts = [words[0] for words in parts if words[0][:1].isalpha()]
    found = {word for words in parts for word in words if word[:1].isalpha() and "=" not in word}
    return Asks(key, spec, frozenset(found), tuple(one for one in firsts if one not in nodes))


def _broken(name: str, asks: Asks, ok: bool | None) -> Check:
    word = asks.strangers[0]
    text = (
        f'jobs of {name} without -l nodes fail with "Unknown node": in {asks.key} = {asks.spec} '
        f"{word} is a node's name, as no number stands before it, and there is no such node"
    )
    return Check(NAME, ok, text, f"run `{_command(name, word)}`")


def _command(queue: str, wanted: str) -> str:
    return f'qmgr -c "set queue {queue} {DEFAULTS[0]} = 1:{wanted}"'
