"""What the owner of an existing Slurm is told to do: pure; for `tide attach` and its checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from springtide.batch.slurm_existing import Conf, Line, Running, parse_lines
from springtide.batch.slurm_include import Clash, decide_clashes, lost
from springtide.batch.slurm_standing import Standing
from springtide.batch.slurm_versions import Change


def render_line(clash: Clash) -> str:
    """A line to take out, or what to take out of it."""
    return clash.line.text if clash.is_all else f"{', '.join(clash.keys)} of `{clash.line.text}`"


def render_restart(running: Running | None, command: str) -> list[str]:
    """How to have slurmctld take what has changed; a new one is asked by us to reread its files."""
    if running is None:
        return ["start slurmctld, which does not answer:", f"  {command}"]
    if Change.RELOADS_ALL.applies(running.release):
        return []
    return [
        "restart slurmctld; jobs go on "
        f"(no `scontrol reconfigure` before that: {running.version} ends when nodes come or go):",
        f"  {command}",
    ]


def render_joining(now: Standing, include: Path, restart: Sequence[str], again: str) -> list[str]:
    """What to do until slurmctld runs with us: exactly, and in order."""
    lines = [] if now.conf.ours else _include(now, include)
    if clashes := decide_clashes(now.conf, now.wanted):
        lines.append("take out what the include has now, with what it was if it is a list:")
        lines += [f"  {_place(each)}: {render_line(each)}" for each in clashes]
    return [*lines, *restart, "then run this again:", f"  {again}"]


def _include(now: Standing, include: Path) -> list[str]:
    """A configless Slurm hands out only what is beside slurm.conf and included without a path."""
    if not is_configless(now):
        return [_where(now.conf), f"  include {include}"]
    return [
        f"link the include to where slurmctld hands it out (configless) beside {now.conf.path}:",
        f"  {render_link(now.conf, include)}",
        _where(now.conf),
        f"  include {include.name}",
    ]


def render_link(conf: Conf, include: Path) -> str:
    """What puts the include beside slurm.conf."""
    return f"ln -s {include} {conf.path.with_name(include.name)}"


def is_configless(now: Standing) -> bool:
    """Whether nodes may fetch their configuration from slurmctld: now, or with our include."""
    ours = dict(pair for line in parse_lines(now.wanted) for pair in line.settings)
    return any(map(has_configless, (now.running.settings, now.conf.settings, ours)))


def has_configless(settings: Mapping[str, str]) -> bool:
    return "enable_configless" in settings.get("slurmctldparameters", "").lower().split(",")


def _place(clash: Clash) -> str:
    return f"{clash.line.file}, line {clash.line.number}"


def _where(conf: Conf) -> str:
    if not conf.defaults:
        return f"add to {conf.path}, as its last line:"
    first = conf.defaults[0]
    return (
        f"add to {first.file}, before line {first.number} "
        f"(what `{first.text}` says must not hold for our nodes):"
    )


def render_leaving(
    conf: Conf, include: Path, left: str, restart: Sequence[str], again: str
) -> list[str]:
    """What to do until nothing of ours is needed any more."""
    lines: list[str] = []
    if conf.ours is not None:
        lines.append(f"take out of {conf.ours.file}, line {conf.ours.number}:")
        lines.append(f"  {conf.ours.text}")
        lines += _unlink(conf.ours)
    if back := lost(left, conf):
        kept = f"until then {include} has it" if conf.ours else f"or do without: remove {include}"
        lines.append(f"put back into {conf.path} ({kept}):")
        lines += [f"  {line}" for line in back]
    return [*lines, *restart, "then run this again, which removes the rest:", f"  {again}"]


def _unlink(line: Line) -> list[str]:
    """Whoever includes it without a path has linked it."""
    if line.included is None or "/" in line.included:
        return []
    return ["remove the link to it, after that:", f"  rm {line.file.with_name(line.included)}"]
