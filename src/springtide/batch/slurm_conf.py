"""slurm.conf, rendered from the spec: whole, or as the file that an existing one includes.

Pure, but for the name of this machine. Called by `slurm`. The values are those measured to
make a node usable soonest; `batch.parameters` of the spec adds to them and changes them.
"""

import socket
from collections.abc import Iterable, Mapping
from math import ceil
from pathlib import Path

from springtide.batch import slurm_actions
from springtide.batch.slurm_conf_lines import (
    Settings,
    add,
    merge,
    render_document,
    render_section,
)
from springtide.batch.slurm_conf_nodes import is_foreign, render_machines
from springtide.batch.slurm_versions import Change, Release, check_version
from springtide.layout import Layout
from springtide.nodeset import fold
from springtide.ports import Site
from springtide.spec import Cluster
from springtide.spec.parts import Slurm

WIDEST_TREE = 65533
CREDENTIALS_S = 10
"""A job that is put back into the queue waits a second longer than this."""
HEALTH_S = 90
"""Between two health checks of a node; Slurm wants more than the 60 s that one may take."""
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
_TIMES = ("SuspendTime", "SuspendTimeout", "ResumeTimeout")
"""What partitions may have of their own."""


def render(cluster: Cluster, site: Site, *, state: Path, version: Release) -> str:
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
    return render_document(
        [*_with_parameters(cluster, sections), actions, *render_machines(cluster, version)]
    )


def render_include(
    cluster: Cluster,
    *,
    state: Path,
    version: Release,
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
    merged = {"power saving": merge(settings, lists, _SITE_LISTS)}
    sections = _with_parameters(cluster, merged, lists)
    ours = _actions(cluster, layout, version, actions)
    return render_document(
        [*sections, ours, *render_machines(cluster, version, times, default, theirs)]
    )


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
    parameters = add(lists or {}, slurm_of(cluster).parameters)
    theirs = {key.lower(): value for key, value in parameters.items()}
    known = {key.lower() for settings in sections.values() for key in settings}
    others = {key: value for key, value in parameters.items() if key.lower() not in known}
    merged = {title: merge(ours, theirs, _LISTS) for title, ours in sections.items()}
    return [
        render_section(title, ours)
        for title, ours in (merged | {"batch.parameters": others}).items()
    ]


def control_host(cluster: Cluster) -> str:
    """The control host's name: the spec's, or this machine's short one."""
    return slurm_of(cluster).host or socket.gethostname().partition(".")[0]


def hides_nodes(cluster: Cluster, version: Release) -> bool:
    """Whether Slurm shows no powered-down nodes, not even to root.

    An old one does so without `cloud` in PrivateData. Then we take what it does not show to be
    powered down, and cannot see if it is down or drained as well.
    """
    if Change.SHOWS_POWERED_DOWN.applies(version):
        return False
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
    cluster: Cluster, layout: Layout, version: Release, keep: Iterable[str] = ()
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
    if not (batch.hide_off or Change.SHOWS_POWERED_DOWN.applies(version)):
        settings["PrivateData"] = "cloud"  # see hides_nodes
    if staying := [*_foreign(cluster), *cluster.sometimes_up, *keep]:
        settings["SuspendExcNodes"] = fold(staying)
    return settings


def _control_options(cluster: Cluster, version: Release) -> list[str]:
    """Not idle_on_node_suspend, though many have it: it ends an admin's drain."""
    # A node that registers before its address was told would have slurmctld look up its
    # name again and again with its locks held; cloud_reg_addrs takes it from the message.
    addresses = ["cloud_reg_addrs"] if not Change.LEARNS_ADDRESSES.applies(version) else []
    often = ["power_save_interval=1", "power_save_min_interval=0"]
    fetched = ["enable_configless"] if cluster.remote else []
    return [*addresses, *often, "reboot_from_controller", *fetched]


def _actions(cluster: Cluster, layout: Layout, version: Release, theirs: Iterable[str] = ()) -> str:
    """Of a Slurm that is there without us, nobody knows how old the rest of it is."""
    batch = slurm_of(cluster)
    wanted = batch.attach is None if batch.actions is None else batch.actions
    lines = slurm_actions.lines(layout.programs, theirs)
    if not (Change.POWER_ACTIONS.applies(version) and wanted and lines):
        return ""
    return "\n".join(["# power actions", *lines])


def _foreign(cluster: Cluster) -> list[str]:
    """Nodes on premises, which are not ours to suspend."""
    return [
        name
        for group in cluster.groups
        if is_foreign(cluster, group)
        for name in cluster.names(group)
    ]


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
    """Not in a Slurm that is there without us: it would run on nodes that do not have it.

    Nor where the file has a program of its own. Nodes take turns: together they would be a burst.
    """
    own = {name.lower() for name in slurm_of(cluster).parameters}
    if "healthcheckprogram" in own:
        return {}
    return {
        "HealthCheckProgram": str(layout.health),
        "HealthCheckInterval": str(HEALTH_S),
        "HealthCheckNodeState": "ANY,CYCLE",
    }


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
