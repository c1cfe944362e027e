"""Whether Torque's queues say which nodes are theirs: it gives a job any node, if nobody does.

For `tide check`; looks, changes nothing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from springtide import compose_queue
from springtide.batch.torque_commands import Commands
from springtide.batch.torque_rules import properties
from springtide.batch.torque_text import parse_queues
from springtide.cli.subject import Check, Subject
from springtide.ports import Member, Unavailable
from springtide.spec import Torque

NEEDED = "resources_default.neednodes"
NAME = "Torque's queues"


def look_at_queues(subject: Subject) -> Iterable[Check]:
    """One that is away is told of by another check."""
    spec = subject.spec
    if not isinstance(spec.batch, Torque) or compose_queue.lacks(spec):
        return
    try:
        said = Commands(spec.batch.bin, spec.batch.server).read("qstat", "-Q", "-f")
    except Unavailable:
        return
    members = compose_queue.members(spec).values()
    wrong = list(decide_checks(parse_queues(said), spec.partitions, members))
    yield from wrong
    if not wrong:
        yield Check(NAME, True, f"each says which nodes are its own: {', '.join(spec.partitions)}")


def decide_checks(
    queues: Mapping[str, Mapping[str, str]], served: Collection[str], members: Collection[Member]
) -> Iterator[Check]:
    """What is to be told of the queues, as Torque has them. Pure."""
    for name in served:
        nodes = [set(properties(one)) for one in members if name in one.queues]
        wanted = _words(queues.get(name, {}))
        if name not in queues:
            todo = f'make it (`qmgr -c "create queue {name} queue_type=execution"`), or correct'
            yield Check(NAME, False, f"there is no queue {name}", f"{todo} `partitions`")
        elif not wanted or not any(wanted <= one for one in nodes):
            text = (
                f"jobs of {name} do not ask for nodes of {name}, and may start elsewhere, or never"
            )
            yield Check(NAME, None, text, f"run `{_command(name, name)}`")
    executes = [name for name, one in queues.items() if one.get("queue_type") == "Execution"]
    if loose := [name for name in executes if name not in served and not _words(queues[name])]:
        text = f"jobs of {', '.join(loose)} ask for no nodes of their own, and may start on ours"
        todo = "give your own nodes a property, and have the queue ask for it"
        yield Check(NAME, None, text, f"{todo}: `{_command(loose[0], 'PROPERTY')}`")


def _words(queue: Mapping[str, str]) -> set[str]:
    """The properties that its jobs ask for, if they say nothing."""
    words = re.split(r"[:+]", queue.get(NEEDED, ""))
    return {word for word in words if word and not word.isdigit() and "=" not in word}


def _command(queue: str, wanted: str) -> str:
    return f'qmgr -c "set queue {queue} {NEEDED} = {wanted}"'
