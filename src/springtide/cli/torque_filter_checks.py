"""Whether qsub has a submit filter that works: no queue keeps jobs that ask for nodes on its own.

For `torque_checks`; looks, changes nothing.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from springtide.batch import torque_submit_filter
from springtide.cli.subject import Check

FILTER = "Torque's submit filter"
FILTERS = ("/usr/local/libexec/qsub_filter", "/usr/libexec/qsub_filter")
OWN_FILTER = "/usr/local/sbin/torque_submitfilter"
"""Where qsub looks for a submit filter, unless torque.cfg has another place."""
OWN = Path(torque_submit_filter.__file__)
_NAMED = re.compile(r"SUBMITFILTER\S*\s+(\S+)")
"""As qsub finds it: torque.cfg has no comments."""
_MORE = "with a line for each of your own queues (docs/batch/torque.md)"


@dataclass(frozen=True, slots=True)
class Filter:
    """The program to which qsub of this machine gives jobs before it submits them."""

    path: str = ""
    """Empty if it gives them to none."""
    mode: int | None = None
    """None if there is no such file."""
    text: str = ""
    queues_mode: int | None = None
    queues: str = ""
    """What ours reads."""

    @property
    def ours(self) -> bool:
        return torque_submit_filter.QUEUES in self.text


def decide_filter(found: Filter, served: Collection[str]) -> Iterator[Check]:
    """Whether qsub of this machine has a submit filter that works. Pure."""
    wrong = list(_unfit(found, served))
    yield from wrong
    if not wrong:
        whose = "" if found.ours else ", which is not Springtide's"
        yield Check(FILTER, True, f"qsub of this machine has one: {found.path}{whose}")


def _unfit(found: Filter, served: Collection[str]) -> Iterator[Check]:
    place, needed = found.path, 0o5 if found.ours else 0o1
    if not place:
        yield _no_filter(served)
    elif found.mode is None:
        text = f"torque.cfg names {place}, which is not there: qsub refuses every job"
        text += ' ("invalid submit filter")'
        todo = f"{_install(place)}; or take SUBMITFILTER out of torque.cfg"
        yield Check(FILTER, False, text, todo)
    elif found.mode & needed != needed:
        text = f"users may not run {place} (mode {found.mode:04o}): qsub refuses every job"
        yield Check(FILTER, False, text, f"run `chmod 755 {place}`")
    elif found.ours:
        yield from _unfit_ours(found, served)


def _unfit_ours(found: Filter, served: Collection[str]) -> Iterator[Check]:
    queues = torque_submit_filter.QUEUES
    known = torque_submit_filter.parse_queues(found.queues)[0]
    unknown = [queue for queue in served if queue not in known]
    passes = f"{found.path} passes all jobs unchecked"
    if found.queues_mode is None:
        todo = f"{_write(served)}, {_MORE}"
        yield Check(FILTER, None, f"{passes}: there is no {queues}", todo)
    elif not found.queues_mode & 0o4:
        text = f"{passes}: users may not read {queues} (mode {found.queues_mode:04o})"
        yield Check(FILTER, None, text, f"run `chmod 644 {queues}`")
    elif unknown:
        text = f"jobs of {', '.join(unknown)} pass unchecked: {queues} has no line of that queue"
        todo = f"add the line `{unknown[0]} {unknown[0]}`: the queue, and the property of its nodes"
        yield Check(FILTER, None, text, todo)
    if found.text != OWN.read_text():
        text = f"{found.path} is not the one of this version of Springtide"
        yield Check(FILTER, None, text, _install(found.path))


def _no_filter(served: Collection[str]) -> Check:
    queue = next(iter(served), "cloud")
    text = (
        f"there is none here, and pbs_sched heeds no queue's nodes for jobs that ask for nodes: "
        f"`qsub -q {queue} -l nodes=1` may start on your nodes, and the same of another queue on "
        "ours"
    )
    todo = (
        f"on machines with qsub, {_install(OWN_FILTER)} and {_write(served)}, {_MORE}; or leave "
        "it, if your scheduler is another, or users write the property themselves"
    )
    return Check(FILTER, None, text, todo)


def _install(place: str) -> str:
    return f"run `install -m 755 {OWN} {place}`"


def _write(served: Collection[str]) -> str:
    lines = " ".join(f"'{queue} {queue}'" for queue in served)
    install = f"install -D -m 644 /dev/stdin {torque_submit_filter.QUEUES}"
    return f"run `printf '%s\\n' {lines} | {install}`"


def look_at_filter(cfg: Path, queues: Path) -> Filter:
    """What torque.cfg names goes before all, even if it is not there."""
    named = _NAMED.findall(_read(cfg) or "")[:1]
    found = [place for place in (*FILTERS, OWN_FILTER) if Path(place).exists()]
    place = next(iter([*named, *found]), "")
    program = Path(place)
    return Filter(place, _mode(program), _read(program) or "", _mode(queues), _read(queues) or "")


def _mode(file: Path) -> int | None:
    try:
        return file.stat().st_mode & 0o7777
    except OSError:
        return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return None
