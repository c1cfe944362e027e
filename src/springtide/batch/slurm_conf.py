"""slurm.conf, rendered from the spec: whole, or as the file that an existing one includes.

Pure, but for the name of this machine. Called by `slurm`. The values are those measured to
make a node usable soonest; `batch.parameters` of the spec adds to them and changes them.
"""

import socket
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path

from springtide.batch import slurm_actions, slurm_rebuild
from springtide.layout import Layout
from springtide.nodeset import fold
from springtide.ports import Site
from springtide.spec import Cluster
from springtide.spec.fresh import ALONE, is_fresh
from springtide.spec.parts import Flavor, Slurm

Settings = dict[str, str]

OLDEST = (22, 5)
LEARNS_ADDRESSES = (23, 11)
"""From here on Slurm takes a node's address from its message, and complains of cloud_reg_addrs."""
WIDEST_TREE = 65533
CREDENTIALS_S = 10
"""A job that is put back into the queue waits a second longer than this."""
HEALTH_S = 60
"""Between two health checks of a node."""
PATIENCE_S = 30
"""How much longer than we do Slurm waits for a node."""

_LISTS = frozenset(
    {
        "communicationparameters",
        "schedulerparameters",
        "slurmctldparameters",
        "slurmdparameters",
    }
)
_SITE_LISTS = _LISTS | {"privatedata"}
_REREAD = frozenset(
    {
        "partitionname",
        "poweraction",
        "resumerate",
        "resumetimeout",
        "schedulerparameters",
        "suspendexcnodes",
        "suspendrate",
        "suspendtime",
        "suspendtimeout",
    }
)
"""What a running slurmctld takes from `scontrol reconfigure`; for the rest it must restart.

An old one dies of it when nodes came or went, and forgets its last seconds. A restart takes 0.1 s
and loses no job, but for those that ask for a node by name which is no more.
"""
_TIMES = ("SuspendTime", "SuspendTimeout", "ResumeTimeout")
"""What partitions may have of their own."""


class TooOldError(ValueError):
    """This version of Slurm lacks what we need."""


def render(cluster: Cluster, site: Site, *, state: Path, version: tuple[int, int]) -> str:
    """The whole file, for a slurmctld of ours."""
    check_version(version)
    sections = {
        "the cluster": _identity(cluster, site),
        "files and credentials": _files(Layout(state)),
        "power saving": _power_saving(cluster, Layout(state), version),
        "nodes and jobs": _nodes_and_jobs(cluster),
        "health": _health(cluster, Layout(state)),
        "accounting": _accounting(cluster, site, Layout(state)),
    }
    actions = _actions(cluster, Layout(state), version)
    return _document([*_with_parameters(cluster, sections), actions, *_machines(cluster)])


def render_include(
    cluster: Cluster,
    *,
    state: Path,
    version: tuple[int, int],
    existing: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    default: bool = True,
    actions: Iterable[str] = (),
) -> str:
    """Only what an existing slurm.conf must include: power saving, our nodes and partitions.

    `existing` are that file's own settings, whose lists are extended; `keep` are its nodes,
    which must never be suspended; without `default` none of our partitions is the default;
    `actions` are the names of its power actions.
    """
    check_version(version)
    theirs = {key.lower(): value for key, value in (existing or {}).items()}
    layout = Layout(state)
    settings, times = _beside(_power_saving(cluster, layout, version, keep), theirs)
    lists = {key: value for key, value in theirs.items() if key in _SITE_LISTS}
    merged = {"power saving": _merged(settings, lists, _SITE_LISTS)}
    sections = _with_parameters(cluster, merged, lists)
    ours = _actions(cluster, layout, version, actions)
    return _document([*sections, ours, *_machines(cluster, times, default)])


def _beside(ours: Settings, theirs: Mapping[str, str]) -> tuple[Settings, Settings]:
    """What concerns a whole Slurm that has other nodes too, and the times of our partitions.

    Nodes that are not in our partitions are never idle for too long, also those to come. And
    a RebootProgram of theirs runs on their nodes, as it always did.
    """
    times = {key: ours[key] for key in _TIMES}
    settings = {key: value for key, value in ours.items() if key not in times}
    if theirs.get("rebootprogram", ours["RebootProgram"]) != ours["RebootProgram"]:
        del settings["RebootProgram"]
        options = settings["SlurmctldParameters"].split(",")
        kept = (option for option in options if option != "reboot_from_controller")
        settings["SlurmctldParameters"] = ",".join(kept)
    return settings | {"SuspendTime": "INFINITE"}, times


def _with_parameters(
    cluster: Cluster, sections: Mapping[str, Settings], lists: Mapping[str, str] | None = None
) -> list[str]:
    """The sections, changed by the spec's own parameters and followed by the rest of them.

    `lists` are those of an existing slurm.conf.
    """
    parameters = _added(lists or {}, slurm_of(cluster).parameters)
    theirs = {key.lower(): value for key, value in parameters.items()}
    known = {key.lower() for settings in sections.values() for key in settings}
    others = {key: value for key, value in parameters.items() if key.lower() not in known}
    merged = {title: _merged(ours, theirs, _LISTS) for title, ours in sections.items()}
    return [
        _section(title, ours) for title, ours in (merged | {"batch.parameters": others}).items()
    ]


def check_version(version: tuple[int, int]) -> None:
    if version < OLDEST:
        found, oldest = (f"{major}.{minor:02d}" for major, minor in (version, OLDEST))
        raise TooOldError(f"Slurm {found} is too old; install Slurm {oldest} or newer")


def control_host(cluster: Cluster) -> str:
    """The control host's name: the spec's, or this machine's short one."""
    return slurm_of(cluster).host or socket.gethostname().partition(".")[0]


def hides_nodes(cluster: Cluster) -> bool:
    """Whether Slurm shows no powered-down nodes, not even to root.

    It does so without `cloud` in PrivateData. Then we take what it does not show to be
    powered down, and cannot see if it is down or drained as well.
    """
    batch = slurm_of(cluster)
    parameters = {key.lower(): value for key, value in batch.parameters.items()}
    shown = parameters.get("privatedata", "" if batch.hide_off else "cloud")
    return "cloud" not in shown.strip('"').lower().split(",")


def slurm_of(cluster: Cluster) -> Slurm:
    if isinstance(cluster.batch, Slurm):
        return cluster.batch
    raise TypeError(f"the batch system of {cluster.cluster} is {cluster.batch.kind}, not slurm")


# Sections


def _identity(cluster: Cluster, site: Site) -> Settings:
    batch = slurm_of(cluster)
    return {
        "ClusterName": cluster.cluster,
        "SlurmctldHost": f"{control_host(cluster)}({site.control_address})",
        "SlurmctldPort": str(batch.port),
        "SlurmdPort": str(batch.node_port),
        "SlurmUser": batch.user,
        # Listen on the control address alone, so that clusters can share a port.
        "CommunicationParameters": "NoCtldInAddrAny",
    }


def _files(layout: Layout) -> Settings:
    return {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket},cred_expire={CREDENTIALS_S}",
        "StateSaveLocation": str(state_save(layout)),
        "SlurmctldPidFile": str(state_save(layout) / "slurmctld.pid"),
        "SlurmctldLogFile": str(slurmctld_log(layout)),
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmdSpoolDir": "/var/spool/slurmd",
    }


def state_save(layout: Layout) -> Path:
    return layout.slurmctld


def slurmctld_log(layout: Layout) -> Path:
    return layout.log / "slurmctld.log"


def _power_saving(
    cluster: Cluster, layout: Layout, version: tuple[int, int], keep: Iterable[str] = ()
) -> Settings:
    batch, timing, programs = slurm_of(cluster), cluster.timing, layout.programs
    settings = {
        "ResumeProgram": str(programs / "resume"),
        "SuspendProgram": str(programs / "suspend"),
        "ResumeFailProgram": str(programs / "resume-fail"),
        "RebootProgram": str(programs / "reboot"),
        "PrologSlurmctld": str(programs / "prolog"),
        # We give up on a node first, and give it back with a better reason than Slurm has.
        "ResumeTimeout": _seconds(timing.start + PATIENCE_S),
        "SuspendTimeout": _seconds(timing.stop),
        "SuspendTime": _seconds(timing.idle),
        "ResumeRate": str(batch.resume_rate),
        "SuspendRate": str(batch.suspend_rate),
        "SlurmctldParameters": ",".join(_control_options(cluster, version)),
        # Nodes do not know each other's addresses: slurmctld speaks to each one itself.
        "TreeWidth": str(WIDEST_TREE),
    }
    if not batch.hide_off:
        settings["PrivateData"] = "cloud"  # see hides_nodes
    if staying := [*_foreign(cluster), *cluster.always_up, *keep]:
        settings["SuspendExcNodes"] = fold(staying)
    return settings


def _control_options(cluster: Cluster, version: tuple[int, int]) -> list[str]:
    """Not idle_on_node_suspend, though many have it: it ends an admin's drain."""
    # A node that registers before its address was told would have slurmctld look up its
    # name again and again with its locks held; cloud_reg_addrs takes it from the message.
    addresses = ["cloud_reg_addrs"] if version < LEARNS_ADDRESSES else []
    often = ["power_save_interval=1", "power_save_min_interval=0"]
    fetched = ["enable_configless"] if cluster.remote else []
    return [*addresses, *often, "reboot_from_controller", *fetched]


def _actions(
    cluster: Cluster, layout: Layout, version: tuple[int, int], theirs: Iterable[str] = ()
) -> str:
    """Of a Slurm that is there without us, nobody knows how old the rest of it is."""
    batch = slurm_of(cluster)
    wanted = batch.attach is None if batch.actions is None else batch.actions
    lines = slurm_actions.lines(layout.programs, theirs)
    if version < slurm_actions.SINCE or not wanted or not lines:
        return ""
    return "\n".join(["# power actions", *lines])


def _foreign(cluster: Cluster) -> list[str]:
    """Nodes on premises, which are not ours to suspend."""
    return [
        name
        for group in cluster.groups
        if _is_foreign(cluster, group)
        for name in cluster.names(group)
    ]


def _is_foreign(cluster: Cluster, group: str) -> bool:
    return cluster.provider_of(group).kind == "none"


def _seconds(duration_s: float) -> str:
    """Slurm counts whole seconds, and 0 may mean never."""
    return str(max(1, ceil(duration_s)))


def _nodes_and_jobs(cluster: Cluster) -> Settings:
    gres = {one.partition(":")[0] for flavor in cluster.flavors.values() for one in flavor.gres}
    alone = cluster.remote and len(cluster.remote) == len(cluster.groups)
    return {
        "ReturnToService": "2",
        # Containers show all of this machine, whatever their flavor.
        **({} if alone else {"SlurmdParameters": "config_overrides"}),
        **({"GresTypes": ",".join(sorted(gres))} if gres else {}),
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerParameters": "batch_sched_delay=0,bf_interval=1,sched_interval=5",
        "PriorityType": "priority/multifactor",
        "PriorityWeightPartition": "100000",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
    }


def _health(cluster: Cluster, layout: Layout) -> Settings:
    """Not in a Slurm that is there without us: it would run on nodes that do not have it."""
    if cluster.health is None:
        return {}
    return {"HealthCheckProgram": str(layout.health), "HealthCheckInterval": str(HEALTH_S)}


def _accounting(cluster: Cluster, site: Site, layout: Layout) -> Settings:
    """An address: the control host's name leads elsewhere on itself."""
    if not (accounting := slurm_of(cluster).accounting):
        return {}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": site.control_address,
        "AccountingStoragePort": str(accounting.port),
        "AccountingStoragePass": str(layout.munge_socket),
        "JobAcctGatherType": "jobacct_gather/linux",
    }


# Nodes and partitions


def _machines(
    cluster: Cluster, times: Mapping[str, str] | None = None, default: bool = True
) -> list[str]:
    nodes = [_node_line(cluster, group) for group in cluster.groups if cluster.names(group)]
    partitions = [_partition_line(cluster, name, times, default) for name in cluster.partitions]
    # A node of several partitions stays as long as the most patient of them lets it.
    rebuilds = [_line({**line, **(times or {})}) for line in slurm_rebuild.settings(cluster)]
    return [
        "\n".join(["# nodes", *(nodes or [_placeholder(cluster)])]),
        "\n".join(["# partitions", *partitions, *rebuilds]),
    ]


def _node_line(cluster: Cluster, group: str) -> str:
    """A node may become any of its group's flavors, so it promises what all of them have."""
    flavors = [cluster.flavor(name) for name in cluster.groups[group].flavors]
    shared = [f for f in flavors[0].features if all(f in other.features for other in flavors)]
    features = dict.fromkeys([*cluster.groups[group].features, *shared])
    weight = cluster.groups[group].weight
    settings = {
        "NodeName": fold(cluster.names(group)),
        "CPUs": str(min(flavor.cpus for flavor in flavors)),
        **_topology(flavors),
        "RealMemory": str(min(flavor.memory for flavor in flavors)),
        **({"Gres": ",".join(gres)} if (gres := _gres(flavors)) else {}),
        **({"Weight": str(weight)} if weight is not None else {}),
        **({"Feature": ",".join(features)} if features else {}),
        "State": "UNKNOWN" if _is_foreign(cluster, group) else "CLOUD",
    }
    return _line(settings)


def _topology(flavors: Sequence[Flavor]) -> Settings:
    """Sockets, cores and threads, where all flavors tell the same of a node that has them."""
    told = {(flavor.cpus, flavor.sockets, flavor.threads) for flavor in flavors}
    cpus, sockets, threads = next(iter(told))
    if len(told) > 1 or threads is None or cpus % ((sockets or 1) * threads):
        return {}
    return {
        "Sockets": str(sockets or 1),
        "CoresPerSocket": str(cpus // ((sockets or 1) * threads)),
        "ThreadsPerCore": str(threads),
    }


def _gres(flavors: Sequence[Flavor]) -> list[str]:
    """What all of them have."""
    return [one for one in flavors[0].gres if all(one in other.gres for other in flavors)]


def _placeholder(cluster: Cluster) -> str:
    """Without any node slurmctld does not start; a future one is shown to nobody."""
    return _line({"NodeName": f"{cluster.cluster}-none", "State": "FUTURE"})


def _partition_line(
    cluster: Cluster, name: str, times: Mapping[str, str] | None, default: bool
) -> str:
    partition = cluster.partitions[name]
    nodes = [node for group in partition.groups for node in cluster.names(group)]
    changed = {key.lower() for key in partition.parameters}
    return _line(
        {
            "PartitionName": name,
            **({"Nodes": fold(nodes)} if nodes else {}),
            "Default": "YES" if partition.default and default else "NO",
            **({ALONE: "EXCLUSIVE"} if is_fresh(partition, cluster.groups) else {}),
            **{key: value for key, value in (times or {}).items() if key.lower() not in changed},
            **partition.parameters,
        }
    )


# Text


def _merged(ours: Settings, theirs: Mapping[str, str], lists: frozenset[str]) -> Settings:
    """Our settings with theirs, whose keys are lower case: lists grow, other values change."""
    merged = dict(ours)
    for key, value in ours.items():
        name = key.lower()
        if name in theirs:
            merged[key] = _extended(value, theirs[name]) if name in lists else theirs[name]
    return merged


def _added(lists: Mapping[str, str], parameters: Mapping[str, str]) -> Settings:
    """Parameters with those of lists that stand elsewhere before their own."""
    return {
        key: _extended(lists[key.lower()], value) if key.lower() in lists else value
        for key, value in parameters.items()
    }


def _extended(ours: str, theirs: str) -> str:
    options = [*ours.split(","), *theirs.strip('"').split(",")]
    by_name = {option.partition("=")[0].lower(): option for option in options if option}
    return ",".join(by_name.values())


def _document(sections: Iterable[str]) -> str:
    head = "# Written by Springtide from the cluster file: change that, not this."
    return "\n\n".join([head, *filter(None, sections)]) + "\n"


def _section(title: str, settings: Settings) -> str:
    if not settings:
        return ""
    return "\n".join([f"# {title}", *(f"{key}={value}" for key, value in settings.items())])


def _line(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def needs_restart(old: str, new: str) -> bool:
    """Whether a running slurmctld must be restarted to take the change, or can reread it."""
    changed = set(old.splitlines()) ^ set(new.splitlines())
    keys = {line.partition("=")[0].lower() for line in changed if line and line[0] != "#"}
    return not keys <= _REREAD
