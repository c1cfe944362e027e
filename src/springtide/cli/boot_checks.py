"""Whether the limits for starting nodes leave room for the boots that were measured.

For `tide check`: of a Slurm of our own in `checks`, of an existing one also in `attached_checks`.
Too short a limit is a warning, no failure: all has been well so far.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf

from springtide.batch.slurm_existing import Running, parse_lines
from springtide.boots import Boots, advise
from springtide.cli.attach_checks import Sight
from springtide.cli.subject import Check, Subject
from springtide.spec import Cluster

NAME = "boot times"
KEY = "resumetimeout"
_SECONDS = re.compile(r"\d+")


def look_at_boots(subject: Subject) -> Iterator[Check]:
    """A line for each group that has booted."""
    limit_s = subject.spec.timing.start
    for boots in measured(subject):
        if advice := advise(boots, limit_s):
            yield _warning(advice)
        else:
            yield Check(NAME, True, f"{render_boots(boots)}; timing.start is {limit_s:.0f} s")


def look_at_resume_timeout(sight: Sight) -> Iterator[Check]:
    """What that Slurm really waits, for somebody may have set it besides us."""
    found = measured(sight.subject)
    if not found or not isinstance(sight.running, Running) or not sight.is_loaded:
        return
    shown = sight.attachment.commands.run(["scontrol", "-a", "-o", "show", "partitions"]).stdout
    limits = decide_limits(sight.subject.spec, shown, sight.running.get(KEY))
    for boots in found:
        where, limit_s = limits.get(boots.group, ("", inf))
        if advice := advise(boots, limit_s, f"ResumeTimeout of partition {where}"):
            yield _warning(f"{advice}, and no ResumeTimeout in `parameters`")


def measured(subject: Subject) -> list[Boots]:
    """As the daemon tells it; a group that left the file since does not matter."""
    rows = (subject.status or {}).get("boots", [])
    return [
        Boots(row["group"], row["count"], row["median_s"], row["slowest_s"])
        for row in rows
        if row["group"] in subject.spec.groups
    ]


def _warning(advice: str) -> Check:
    text, _, todo = advice.partition("; ")
    return Check(NAME, None, text, todo)


def render_boots(boots: Boots) -> str:
    times = f"median {boots.median_s:.1f} s, slowest {boots.slowest_s:.1f} s"
    return f"{boots.group}: {times} of the last {boots.count}"


def decide_limits(spec: Cluster, shown: str, default: str) -> Mapping[str, tuple[str, float]]:
    """The shortest ResumeTimeout for each group, and the partition that has it.

    `shown` is what `scontrol -o show partitions` printed.
    """
    theirs = {line.name: dict(line.pairs).get(KEY, default) for line in parse_lines(shown)}
    limits = {name: parse_limit(theirs[name]) for name in spec.partitions if name in theirs}
    found: dict[str, tuple[str, float]] = {}
    for name, limit_s in sorted(limits.items(), key=lambda item: -item[1]):
        found |= dict.fromkeys(spec.partitions[name].groups, (name, limit_s))
    return found


def parse_limit(text: str) -> float:
    """Seconds from what Slurm prints; words such as INFINITE are for ever."""
    found = _SECONDS.match(text)
    return float(found[0]) if found else inf
