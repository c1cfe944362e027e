"""Whether queues of Grid Engine that nodes start for let loaded nodes have jobs, how soon a node
that died is noticed, and whether deleted jobs may stay.

For `tide check`; looks, changes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from springtide import compose_queue
from springtide.batch.gridengine_commands import Commands
from springtide.batch.gridengine_conf import (
    ClusterQueue,
    parse_duration,
    parse_queues,
    parse_settings,
)
from springtide.batch.unread import UnreadableError
from springtide.cli.subject import Check, Subject
from springtide.ports import Unavailable
from springtide.spec import Cluster, GridEngine

NAME = "Grid Engine's queues"
UNHEARD = "max_unheard"
LONGEST_S = 120.0
"""Thrice as often as hosts report of themselves by default: that is late enough for all."""
REPORTS = "load_report_time"
DEAF_S = 10.0
"""A job's shepherd passes on no order to kill that comes within this time of the last one. The
first is lost if the job is only starting; with each report of the node comes another."""


def look_at_queues(subject: Subject) -> Iterable[Check]:
    """One that is away, or lacks a queue, is told of by another check."""
    spec = subject.spec
    try:
        queues = parse_queues(_asked(spec, "-sq", "*"))
    except (Unavailable, UnreadableError):
        return
    wrong = list(decide_checks(queues, spec.partitions))
    yield from wrong
    if not wrong and (served := [name for name in spec.partitions if name in queues]):
        yield Check(NAME, True, f"nodes take jobs however loaded: {', '.join(served)}")


def look_at_unheard(subject: Subject) -> Iterable[Check]:
    try:
        shown = parse_settings(_asked(subject.spec, "-sconf"))
    except Unavailable:
        return
    yield from decide_unheard(shown)
    yield from decide_reports(shown)


def _asked(spec: Cluster, *words: str) -> str:
    """What qconf says; nothing of another batch system, or without its commands."""
    if not isinstance(spec.batch, GridEngine) or compose_queue.lacks(spec):
        raise Unavailable("there is no qconf")
    return Commands(spec.batch.bin, spec.batch.root, spec.batch.cell).checked("qconf", *words)


def decide_unheard(shown: Sequence[Mapping[str, str]]) -> Iterator[Check]:
    """What is to be told of the cell's configuration, its global one first. Pure."""
    value = shown[0].get(UNHEARD, "") if shown else ""
    if not value:
        return
    if parse_duration(value) <= LONGEST_S:
        yield Check(UNHEARD, True, f"a node that died is noticed after {value}")
        return
    text = f"a node that died stays unnoticed for {value}, and gets jobs that never end"
    todo = "run `qconf -mconf`, and write `max_unheard 00:02:00` there, or less (not less than "
    yield Check(UNHEARD, None, text, f"{todo}load_report_time, for that is how often nodes report)")


def decide_reports(shown: Sequence[Mapping[str, str]]) -> Iterator[Check]:
    """What is to be told if deleted jobs may stay. Pure."""
    value = shown[0].get(REPORTS, "") if shown else ""
    if value and parse_duration(value) <= DEAF_S:
        text = (
            f"nodes report every {value}, which is too often: a job that is deleted while it "
            "starts may go on without end, and keep its node"
        )
        todo = "run `qconf -mconf`, and write `load_report_time 00:00:12` there, or more"
        yield Check(REPORTS, None, text, todo)


def decide_checks(queues: Mapping[str, ClusterQueue], served: Collection[str]) -> Iterator[Check]:
    """What is to be told of the queues, as Grid Engine has them. Pure."""
    for name in served:
        limit = queues[name].load_thresholds if name in queues else ""
        if limit and limit != "NONE":
            text = (
                f"{name} gives no jobs to a node that is loaded (load_thresholds {limit}): jobs "
                "wait though there is room, and more nodes start than they need"
            )
            todo = f"run `qconf -rattr queue load_thresholds NONE {name}`"
            yield Check(NAME, None, text, todo)
