"""What OpenPBS is told of nodes, queues and jobs, checked before it is told. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence

from springtide.batch.names import matching, node_names
from springtide.batch.openpbs_text import MARK, PbsQueue
from springtide.ports import OURS, Member, Unavailable

_QUEUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,29}")
_FEATURE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:=[A-Za-z0-9_.+-]+)?")
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+(?:,[A-Za-z0-9_.+-]+)*")
_JOB = re.compile(r"[0-9]+(?:\[[0-9]*\])?(?:\.[A-Za-z0-9._-]+)?")


def attributes(member: Member, queues: Mapping[str, PbsQueue]) -> str:
    """That it is ours, what its queues' jobs ask for, and what it has; as qmgr takes it."""
    values = {MARK: [OURS]}
    require_ties(member, queues)
    for name in member.queues:
        for key, value in queues[name].marks.items():
            values.setdefault(key, []).extend(_checked_value(name, value).split(","))
    for feature in member.features:
        key, _, value = feature.partition("=")
        values.setdefault(key, []).append(value or "True")
    pairs = [f"comment={OURS}"]
    pairs += [f"resources_available.{k}={_quoted(v)}" for k, v in values.items()]
    pairs += [f"resources_available.ncpus={member.cores}"] if member.cores else []
    pairs += [f"resources_available.mem={member.memory}mb"] if member.memory else []
    if len(member.queues) == 1:
        pairs.append(f"queue={member.queues[0]}")
    return ",".join(pairs)


def _checked_value(queue: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise Unavailable(f"the default_chunk of queue {queue} cannot be that of nodes: {value!r}")
    return value


def _quoted(values: Sequence[str]) -> str:
    once = list(dict.fromkeys(values))
    return once[0] if len(once) == 1 else f'"{",".join(once)}"'


def require(queues: Mapping[str, PbsQueue], name: str) -> None:
    if name not in queues:
        raise Unavailable(
            f"OpenPBS has no queue {name}; create it (qmgr -c 'create queue {name} …'), or name "
            "another one under partitions"
        )
    if not queues[name].executes:
        raise Unavailable(f"queue {name} only routes jobs; name an execution queue instead")


def require_ties(member: Member, queues: Mapping[str, PbsQueue]) -> None:
    """A node belongs to one queue, or to several by resources that their jobs ask for."""
    for name in member.queues:
        require(queues, name)
    bare = [name for name in member.queues if not queues[name].marks]
    if len(member.queues) > 1 and bare:
        raise Unavailable(
            f"{member.name} is of several queues, and jobs of {', '.join(bare)} do not say which "
            f"nodes are theirs; run qmgr -c 'set queue {bare[0]} default_chunk.Qlist={bare[0]}'"
        )


def checked(members: Iterable[Member]) -> list[Member]:
    listed = list(members)
    node_names(member.name for member in listed)
    matching(_QUEUE, (name for member in listed for name in member.queues), "a queue of OpenPBS")
    matching(
        _FEATURE, (name for member in listed for name in member.features), "a feature of OpenPBS"
    )
    return listed


def jobs_of(jobs: Iterable[str]) -> list[str]:
    return matching(_JOB, jobs, "a job of OpenPBS")
