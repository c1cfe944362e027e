"""How an existing Slurm runs with what we put beside it; looks, changes nothing.

For `tide attach` after it has done its part, and for `tide check`. What only waits for the
owner of that Slurm is no failure.
"""

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from springtide.batch.slurm_conf import hides_nodes
from springtide.batch.slurm_existing import Conf, Line, Running, parse_lines
from springtide.batch.slurm_include import decide_clashes, same
from springtide.batch.slurm_standing import Standing
from springtide.batch.slurm_versions import Change
from springtide.cli.attach_checks import Look, Sight
from springtide.cli.attach_text import has_configless, is_configless, render_line, render_link
from springtide.cli.boot_checks import look_at_resume_timeout
from springtide.cli.subject import Check
from springtide.nodeset import NodeNameError, expand, fold
from springtide.ports import Unavailable

TIMES = ("suspendtime", "suspendtimeout", "resumetimeout")
OPTIONS = {
    "cloud_reg_addrs": ", so addresses of nodes are not learnt",
    "reboot_from_controller": ", so RebootProgram runs on nodes, not here",
    "power_save_interval": ", so nodes are asked for every 10 s only",
}
"""Of SlurmctldParameters, and what happens without them."""

UNREACHABLE = (
    "{} is included by its path: slurmctld does not hand that out, and slurmd on nodes of ours in "
    "a cloud ends without it"
)


def look_at_line(sight: Sight) -> Iterator[Check]:
    if isinstance(sight.standing, Unavailable):
        return
    line, include = sight.standing.conf.ours, sight.attachment.include
    if line is not None and sight.subject.spec.remote and _has_path(line):
        text = f"{line.file}, line {line.number}: {UNREACHABLE.format(line.included)}"
        yield Check("include", False, text, _link(sight, sight.standing))
    elif line is not None:
        yield Check("include", True, f"{line.file}, line {line.number} includes {include}")
    elif sight.is_loaded:
        text = f"{sight.attachment.conf} does not include {include} any more"
        todo = f"put the line back, or leave with `tide attach --remove`: include {include}"
        yield Check("include", False, text, todo)
    else:
        text = f"{sight.attachment.conf} does not include {include} yet"
        yield Check("include", None, text, "add the line")


def look_at_other_includes(sight: Sight) -> Iterator[Check]:
    if not isinstance(sight.conf, Unavailable) and sight.subject.spec.remote:
        yield from not_handed_out(sight.conf)


def not_handed_out(conf: Conf) -> Iterator[Check]:
    """Of a Slurm with nodes of ours in a cloud."""
    for line in conf.apart:
        text = f"{line.file}, line {line.number}: {UNREACHABLE.format(line.included)}"
        name = Path(line.included or "").name
        todo = f"put it beside {conf.path}, and write `include {name}`"
        yield Check("slurm.conf", False, text, todo)


def look_at_clashes(sight: Sight) -> Iterator[Check]:
    """A line before ours only makes daemons complain; one after it counts instead of ours."""
    if isinstance(sight.standing, Unavailable):
        return
    for clash in decide_clashes(sight.standing.conf, sight.standing.wanted):
        keys = ", ".join(clash.keys)
        text = f"{keys} is in {clash.line.file}, line {clash.line.number}, and in the include"
        yield Check("settings", None, text, f"take it out: {render_line(clash)}")


def look_at_loaded(sight: Sight) -> Iterator[Check]:
    now = sight.standing
    if isinstance(now, Unavailable):
        if not isinstance(sight.running, Unavailable):
            yield Check("loaded", None, str(now))
    elif now.is_taken:
        yield Check("loaded", True, "slurmctld runs with our programs, nodes and partitions")
    elif now.written != now.wanted:
        yield Check("loaded", None, "the include is not written as it should be", _again(sight))
    elif sight.is_loaded:
        yield Check("loaded", None, f"slurmctld runs with an older include{_missing(now)}")
    else:
        yield Check("loaded", None, "slurmctld does not run with the include yet")


def _again(sight: Sight) -> str:
    return sight.subject.deploy


def _missing(now: Standing) -> str:
    return f", without {fold(now.missing)}" if now.missing else ""


# --- what slurmctld runs with, if it runs with us ------------------------------------------


def look_at_tree(sight: Sight) -> Iterator[Check]:
    running = _loaded(sight)
    if running is None:
        return
    width, nodes = running.get("treewidth"), _count(sight)
    enough = width.isdecimal() and int(width) >= nodes
    text = f"{width} for {nodes} nodes"
    if not enough:
        text += ": slurmctld would have nodes pass on messages to nodes that they cannot find"
    yield Check("TreeWidth", enough, text, "" if enough else _overruled(sight, "treewidth"))


def look_at_times(sight: Sight) -> Iterator[Check]:
    """Partitions have their own; somebody may have changed them."""
    if _loaded(sight) is None or isinstance(sight.standing, Unavailable):
        return
    said = sight.attachment.commands.run(["scontrol", "-a", "-o", "show", "partitions"]).stdout
    shown = {line.name: dict(line.pairs) for line in parse_lines(said)}
    wrong = [
        f"{line.name} has {key}={shown[line.name].get(key, 'none')}, not {value}"
        for line in _partitions(sight.standing.wanted)
        for key, value in line.pairs
        if key in TIMES and line.name in shown and not same(key, value, _time(shown, line, key))
    ]
    if wrong:
        todo = "restart slurmctld, or change `timing` of the cluster file"
        yield Check("times", False, "; ".join(wrong), todo)
    else:
        yield Check("times", True, "SuspendTime, SuspendTimeout, ResumeTimeout are as in `timing`")


def _partitions(text: str) -> list[Line]:
    return [line for line in parse_lines(text) if line.kind == "partitionname"]


def _time(shown: dict[str, dict[str, str]], line: Line, key: str) -> str:
    return shown[line.name].get(key, "")


def look_at_parameters(sight: Sight) -> Iterator[Check]:
    running = _loaded(sight)
    if running is None or isinstance(sight.standing, Unavailable):
        return
    settings = [pair for line in parse_lines(sight.standing.wanted) for pair in line.settings]
    wanted = _options(dict(settings).get("slurmctldparameters", ""))
    missing = wanted - _options(running.get("slurmctldparameters"))
    for option in sorted(missing):
        text = f"{option} is missing{OPTIONS.get(option, '')}"
        todo = _overruled(sight, "slurmctldparameters")
        yield Check("SlurmctldParameters", False, text, todo)
    if not missing:
        yield Check("SlurmctldParameters", True, "has what we need")


def _options(text: str) -> set[str]:
    return {option.partition("=")[0] for option in text.split(",") if option}


def look_at_private_data(sight: Sight) -> Iterator[Check]:
    running = _loaded(sight)
    if running is None or hides_nodes(sight.subject.spec, running.release):
        return
    always = Change.SHOWS_POWERED_DOWN.applies(running.release)
    shown = always or "cloud" in running.get("privatedata").split(",")
    text = "shows powered-down nodes" if shown else "hides powered-down nodes, also from us"
    todo = "" if shown else f"{_overruled(sight, 'privatedata')}, or set `batch.hide_off: true`"
    yield Check("PrivateData", shown, text, todo)


def look_at_protection(sight: Sight) -> Iterator[Check]:
    """Nodes of theirs are never idle for too long, and are excluded by name besides."""
    running = _loaded(sight)
    if running is None or isinstance(sight.conf, Unavailable):
        return
    endless = running.get("suspendtime") in ("INFINITE", "NONE")
    bare = set(sight.conf.nodes) - _expanded(running.get("suspendexcnodes"))
    if bare and not endless:
        text = f"{fold(bare)} would be suspended after {running.get('suspendtime')}"
        todo = _overruled(sight, "suspendexcnodes", "suspendtime")
        yield Check("their nodes", False, text, todo)
    else:
        yield Check("their nodes", True, f"{len(sight.conf.nodes)}, none is ever suspended")


def look_at_service(sight: Sight) -> Iterator[Check]:
    """Ours start afresh all the time; what happens to others is their owner's choice."""
    running = _loaded(sight)
    if running is not None:
        value = running.get("returntoservice")
        text = value if value == "2" else f"{value}, so we give nodes of ours back to service"
        yield Check("ReturnToService", True, text)


def _loaded(sight: Sight) -> Running | None:
    """What slurmctld runs with, if that is ours."""
    return sight.running if isinstance(sight.running, Running) and sight.is_loaded else None


def _count(sight: Sight) -> int:
    theirs = [] if isinstance(sight.conf, Unavailable) else sight.conf.nodes
    return len(theirs) + len(sight.subject.spec.node_group)


def _overruled(sight: Sight, *keys: str) -> str:
    """Who sets it instead of us."""
    lines = [] if isinstance(sight.conf, Unavailable) else sight.conf.lines
    found = [line for line in lines if any(key in keys for key, _ in line.settings)]
    if not found:
        return "restart slurmctld"
    return f"take {found[-1].text} out of {found[-1].file}, line {found[-1].number}"


def _expanded(text: str) -> set[str]:
    try:
        return set(expand(text)) if text else set()
    except NodeNameError:
        return set()


# --- what to bear in mind ------------------------------------------------------------------


def look_at_other_machines(sight: Sight) -> Iterator[Check]:
    """Whoever reads slurm.conf reads what it includes, and fails without it.

    That nodes of ours may fetch theirs changes nothing for machines that have a file of their own.
    """
    now, here = sight.standing, socket.gethostname().partition(".")[0]
    if isinstance(now, Unavailable):
        return
    nodes = [line for line in now.conf.lines if line.kind == "nodename"]
    elsewhere = [line for line in nodes if dict(line.pairs).get("nodehostname", line.name) != here]
    fetch = has_configless(sight.theirs)
    if not elsewhere or (fetch and not _has_path(now.conf.ours)):
        return
    text = f"slurmd and commands on other machines need {sight.attachment.include} as well"
    yield Check("other machines", None, text, _link(sight, now) if fetch else _copy(now))


def _has_path(line: Line | None) -> bool:
    """Without one a configless slurmctld hands it out; whoever has no line yet is told how."""
    return line is not None and "/" in (line.included or "")


def _link(sight: Sight, now: Standing) -> str:
    include, conf = sight.attachment.include, sight.attachment.conf
    line = f"write `include {include.name}` in {conf} instead, and restart slurmctld"
    return f"run `{render_link(now.conf, include)}`, {line}"


def _copy(now: Standing) -> str:
    """Where to, depends on how it is included."""
    named = is_configless(now) and not _has_path(now.conf.ours)
    place = "beside their slurm.conf" if named else "to the same path"
    return f"copy it there {place} whenever it changes, or use configless Slurm"


def look_at_cgroups(sight: Sight) -> Iterator[Check]:
    kinds = (sight.theirs.get(key, "") for key in ("proctracktype", "taskplugin"))
    if any("cgroup" in kind for kind in kinds):
        text = "container nodes share them with a slurmd of this machine itself"
        yield Check("cgroups", None, text, "let no slurmd run on this machine itself")


def look_at_lookups(sight: Sight) -> Iterator[Check]:
    """A name server that is away holds up slurmctld with its locks held."""
    name = next(iter(sight.subject.spec.managed), None)
    if name is None:
        return
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            text = f"nobody answers for {name}: slurmctld would wait 10 s for each such name"
            todo = "add our nodes to /etc/hosts of this machine, as 127.0.0.1, or mend the DNS"
            yield Check("names", None, text, todo)


STATE: Sequence[Look] = (
    look_at_line,
    look_at_other_includes,
    look_at_clashes,
    look_at_loaded,
    look_at_tree,
    look_at_times,
    look_at_resume_timeout,
    look_at_parameters,
    look_at_private_data,
    look_at_protection,
    look_at_service,
    look_at_other_machines,
    look_at_cgroups,
    look_at_lookups,
)


def look(looks: Iterable[Look], sight: Sight) -> list[Check]:
    return [check for each in looks for check in each(sight)]
