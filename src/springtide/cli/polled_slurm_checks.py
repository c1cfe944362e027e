"""Whether the slurm.conf of a Slurm that is watched has our nodes and partitions as they must be.

For `tide check`; `tide deploy` makes `look_at_attach` before it starts a daemon. Looks, changes
nothing.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping
from math import prod

from springtide.batch import slurm_existing
from springtide.batch.slurm_existing import Conf, Line, UnreadableConf
from springtide.batch.slurm_polled_talk import TODO_NODES
from springtide.cli.attach_text import has_configless
from springtide.cli.attached_checks import not_handed_out
from springtide.cli.subject import Check, Subject
from springtide.configure.membership import told
from springtide.layout import Layout
from springtide.nodeset import NodeNameError, expand, fold
from springtide.spec import Cluster, Slurm

STARTED_BY_OTHERS = frozenset({"CLOUD", "FUTURE"})
"""States of nodes that slurmctld's own programs start, or that it does not show."""
REMEDY = "write State=UNKNOWN there, and restart slurmctld"
TODO_SIZE = (
    "write the same in both, or nodes start for jobs that they do not help; those that have less "
    "than slurm.conf says are drained by Slurm"
)


def look_at_attach(subject: Subject) -> Iterable[Check]:
    """Without it the daemon refuses to start."""
    try:
        _read(subject.spec)
    except UnreadableConf as error:
        yield Check("slurm.conf", False, str(error), "correct batch.attach, or that file")


def look_at_slurm_conf(subject: Subject) -> Iterable[Check]:
    """One that cannot be read is told of by another check."""
    spec = subject.spec
    try:
        conf = _read(spec)
    except UnreadableConf:
        return
    if conf is None:
        return
    wrong = [
        *_nodes(conf, spec),
        *_sizes(conf, spec),
        *_partitions(conf, spec),
        *_shared(conf, spec),
        *_settings(conf),
        *_handed_out(conf, spec),
    ]
    yield from wrong
    if not wrong:
        yield Check("slurm.conf", True, f"{conf.path} has our nodes and partitions")


def _read(spec: Cluster) -> Conf | None:
    """None if no Slurm is watched."""
    if not (isinstance(spec.batch, Slurm) and spec.polled and spec.batch.attach):
        return None
    return slurm_existing.read(spec.batch.attach, Layout(spec.state).include)


def _nodes(conf: Conf, spec: Cluster) -> Iterator[Check]:
    known = frozenset(conf.nodes)
    if missing := [name for name in spec.managed if name not in known]:
        yield Check("slurm.conf", False, f"{conf.path} has no {fold(missing)}", TODO_NODES)
    ours = frozenset(spec.managed)
    usual = ""
    for line in conf.lines:
        if line.kind != "nodename":
            continue
        state = dict(line.pairs).get("state", usual).upper()
        if line.name.upper() == "DEFAULT":
            usual = state
        names = [name for name in _expanded(line.name) if name in ours]
        if names and state in STARTED_BY_OTHERS:
            text = f"{fold(names)} have State={state}, but nodes that are watched are plain"
            yield Check("slurm.conf", False, f"{line.file}, line {line.number}: {text}", REMEDY)


def _sizes(conf: Conf, spec: Cluster) -> Iterator[Check]:
    """Nodes start for jobs by what the cluster file says of them."""
    usual: dict[str, str] = {}
    for line in conf.lines:
        if line.kind != "nodename":
            continue
        has = {**usual, **dict(line.pairs)}
        if line.name.upper() == "DEFAULT":
            usual = has
        names = frozenset(_expanded(line.name))
        for key in spec.groups:
            if ours := [name for name in spec.names(key) if name in names]:
                for text in _differences(has, *told(spec, key)):
                    where = f"{line.file}, line {line.number}: {fold(ours)} have {text}"
                    yield Check("slurm.conf", None, f"{where} in group {key}", TODO_SIZE)


def _differences(has: Mapping[str, str], cpus: int, memory: int) -> Iterator[str]:
    """Memory that is not written there is not looked at by most."""
    sockets = ("sockets",) if "sockets" in has else ("boards", "socketsperboard")
    parts = [has.get(key, "1") for key in (*sockets, "corespersocket", "threadspercore")]
    total = prod(int(part) if part.isdecimal() else 1 for part in parts)
    written = has.get("cpus") or has.get("procs", "")
    if (there := int(written) if written.isdecimal() else total) != cpus:
        yield f"CPUs={there}, but {cpus} CPUs"
    real = has.get("realmemory", "")
    if real.isdecimal() and int(real) != memory:
        yield f"RealMemory={real}, but {memory} MiB"


def _partitions(conf: Conf, spec: Cluster) -> Iterator[Check]:
    lines = {line.name: line for line in conf.lines if line.kind == "partitionname"}
    sets = frozenset(line.name for line in conf.lines if line.kind == "nodeset")
    for key, partition in spec.partitions.items():
        if key not in lines:
            todo = f"add `PartitionName={key} Nodes=…` to it, or name another under partitions"
            yield Check("slurm.conf", False, f"{conf.path} has no partition {key}", todo)
            continue
        names = [name for group in partition.groups for name in spec.names(group)]
        if absent := _absent(lines[key], names, sets):
            text = f"partition {key} does not have nodes {fold(absent)}"
            todo = f"add them to its Nodes= ({lines[key].file}, line {lines[key].number})"
            yield Check("slurm.conf", False, text, todo)


def _shared(conf: Conf, spec: Cluster) -> Iterator[Check]:
    """Jobs of other partitions start no node, but run on those that are up."""
    lines = [line for line in conf.lines if line.kind == "partitionname"]
    for line in lines:
        if line.name in spec.partitions:
            continue
        listed = frozenset(_expanded(dict(line.pairs).get("nodes", "")))
        if both := [name for name in spec.managed if name in listed]:
            text = f"partition {line.name}, which is not ours, has {fold(both)} too"
            todo = f"take them out of its Nodes= ({line.file}, line {line.number}), or its jobs run"
            yield Check("slurm.conf", None, text, f"{todo} there when they are up")


def _absent(line: Line, names: Iterable[str], sets: frozenset[str]) -> list[str]:
    """A node set or ALL may have them; only slurmctld knows."""
    listed = frozenset(_expanded(dict(line.pairs).get("nodes", "")))
    if listed & sets or any(name.upper() == "ALL" for name in listed):
        return []
    return [name for name in names if name not in listed]


def _settings(conf: Conf) -> Iterator[Check]:
    if conf.settings.get("slurmdtimeout") == "0":
        text = "SlurmdTimeout is 0: slurmctld never notices that a node died"
        yield Check("slurm.conf", None, text, "set it to a few minutes, such as 300")
    if conf.settings.get("suspendprogram") and conf.settings.get("suspendtime", "-1") != "-1":
        text = "slurmctld powers idle nodes down by itself (SuspendProgram), ours too"
        yield Check("slurm.conf", None, text, "name our nodes in SuspendExcNodes")


def _handed_out(conf: Conf, spec: Cluster) -> Iterator[Check]:
    """Nodes with files of their own have no slurm.conf: their slurmd asks slurmctld for it."""
    if not spec.remote:
        return
    yield from not_handed_out(conf)
    yield from _elsewhere(conf)
    if has_configless(conf.settings):
        return
    held = conf.settings.get("slurmctldparameters", "")
    wanted = ",".join(filter(None, (held, "enable_configless")))
    text = (
        f"{conf.path} lets no slurmd fetch its configuration from slurmctld, as those on nodes of "
        f"{', '.join(spec.remote)} do: they would end"
    )
    todo = f"write `SlurmctldParameters={wanted}` there, and restart slurmctld"
    yield Check("slurm.conf", False, text, todo)


def _elsewhere(conf: Conf) -> Iterator[Check]:
    """Nodes ask the machine that they joined at; this one may have other names."""
    settings = [pair for line in conf.lines for pair in line.settings]
    hosts = [value.partition("(")[0] for key, value in settings if key == "slurmctldhost"]
    if hosts and socket.gethostname().partition(".")[0] not in (h.partition(".")[0] for h in hosts):
        text = f"slurmctld runs on {', '.join(hosts)}, but nodes in a cloud look for it here"
        todo = "run Springtide there, unless that is another name of this machine"
        yield Check("slurm.conf", None, text, todo)


def _expanded(text: str) -> list[str]:
    try:
        return expand(text) if text else []
    except NodeNameError:
        return []
