"""The file that an existing slurm.conf includes, beside what stands there: pure.

A setting that stands twice counts as it stands last, and daemons complain of it. So what we set
has to go from slurm.conf; the include tells what that was, and has it merged in where it is a
list. Called by `slurm_attached`, and by the checks.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from springtide.batch.slurm_conf import render_include
from springtide.batch.slurm_existing import Conf, Line, Running, parse_lines
from springtide.nodeset import NodeNameError, expand
from springtide.spec import Cluster

_FORMER = "#: "
_TAKEN_OVER = """\
# These stood in {conf}, and have to go from there.
# `tide attach --remove` keeps them here until somebody puts them back.
"""
_LEFT = """\
# Springtide has left. Take the line that includes this file out of
# {conf}, and put there what follows, if anything does.
"""
_UNIT = re.compile(r"(\d+) (?:sec|min|nodes/min)")
_HOSTS = frozenset({"suspendexcnodes"})


@dataclass(frozen=True, slots=True)
class Clash:
    """A line of slurm.conf with a setting that is in the include as well."""

    line: Line
    keys: tuple[str, ...]
    """All that the line sets and the include too, as we spell them."""

    @property
    def is_all(self) -> bool:
        """Whether the line says nothing else."""
        return len(self.keys) == len(self.line.settings)


def compose_include(cluster: Cluster, conf: Conf, running: Running, before: str) -> str:
    """The include for this slurm.conf; `before` is what it was until now."""
    former = parse_former(before)
    text = render_include(
        cluster,
        state=cluster.state,
        version=running.release,
        existing=former | conf.settings,
        keep=conf.nodes,
        default=conf.default_partition is None,
        actions=conf.actions,
    )
    needed = _without(text, _satisfied(text, conf, len(cluster.node_group)))
    return _told(needed, conf.path, former | conf.settings)


def _satisfied(text: str, conf: Conf, count: int) -> frozenset[str]:
    """What stands in slurm.conf as it should be, and can stay there."""
    theirs, nodes = conf.settings, count + len(conf.nodes)
    good = {key for key, value in _settings(text).items() if same(key, value, theirs.get(key, ""))}
    width = theirs.get("treewidth", "")
    return frozenset(good | ({"treewidth"} if width.isdecimal() and int(width) >= nodes else set()))


def same(key: str, ours: str, theirs: str) -> bool:
    """Whether two values mean the same; Slurm prints them with units, and in its own order."""
    if key in _HOSTS:
        return _hosts(ours) == _hosts(theirs)
    one, other = (_UNIT.sub(r"\1", value.strip('"')) for value in (ours, theirs))
    return set(one.lower().split(",")) == set(other.lower().split(","))


def _hosts(text: str) -> frozenset[str]:
    try:
        return frozenset(expand(text)) if text else frozenset()
    except NodeNameError:
        return frozenset({text})


def _settings(text: str) -> dict[str, str]:
    return dict(pair for line in parse_lines(text) for pair in line.settings)


def _without(text: str, keys: frozenset[str]) -> str:
    """Each of our settings has a line of its own."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.partition("=")[0].lower() not in keys) + "\n"


def _told(text: str, conf: Path, existing: Mapping[str, str]) -> str:
    """With what the file takes over, which only comments tell."""
    spelled = [line.partition("=")[0] for line in text.splitlines()]
    ours = _settings(text)
    taken = [key for key in spelled if key.lower() in ours and key.lower() in existing]
    if not taken:
        return text
    lines = "".join(f"{_FORMER}{key}={existing[key.lower()]}\n" for key in taken)
    return f"{text}\n{_TAKEN_OVER.format(conf=conf)}{lines}"


def parse_former(include: str) -> dict[str, str]:
    """What an include says that it took over."""
    lines = (line for line in include.splitlines() if line.startswith(_FORMER))
    pairs = (line.removeprefix(_FORMER).partition("=") for line in lines)
    return {key.lower(): value for key, _, value in pairs}


def render_left(include: str, conf: Conf) -> str:
    """What stays of the include when we leave: what slurm.conf has lost to it."""
    marked = [line for line in include.splitlines() if line.startswith(_FORMER)]
    return "\n".join([_LEFT.format(conf=conf.path), *marked, *lost(include, conf)]) + "\n"


def lost(include: str, conf: Conf) -> list[str]:
    """What slurm.conf had before we came, and has not got back."""
    lines = [line for line in include.splitlines() if line.startswith(_FORMER)]
    former = [line.removeprefix(_FORMER) for line in lines]
    return [line for line in former if line.partition("=")[0].lower() not in conf.settings]


# What has to be changed in slurm.conf


def decide_clashes(conf: Conf, include: str) -> list[Clash]:
    """The lines of slurm.conf that the include stands against."""
    ours = _settings(include)
    spelled = {line.partition("=")[0].lower(): line.partition("=")[0] for line in _lines(include)}
    found = []
    for line in conf.lines:
        keys = tuple(spelled[key] for key, _ in line.settings if key in ours)
        if keys:
            found.append(Clash(line, keys))
    return found


def _lines(text: str) -> Iterable[str]:
    return (line for line in text.splitlines() if line and line[0] != "#")


def decide_differences(include: str, running: Running) -> dict[str, str]:
    """The settings of the include that slurmctld does not run with, and what it has instead.

    Of what it does not tell at all nothing is known.
    """
    told = {key: value for key, value in _settings(include).items() if key in running.settings}
    return {
        key: running.get(key)
        for key, value in told.items()
        if not same(key, value, running.get(key))
    }
