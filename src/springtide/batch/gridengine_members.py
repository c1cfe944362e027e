"""What Grid Engine is told of hosts, queues and jobs, checked before it is told. Pure."""

import re
from collections.abc import Iterable, Mapping

from springtide.batch.gridengine_conf import ClusterQueue, Complex
from springtide.batch.names import matching, node_names
from springtide.ports import Member, Unavailable

_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_FEATURE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?:=[A-Za-z0-9_.+-]+)?")
_RANGE = r"\d{1,10}(?:-\d{1,10}(?::\d{1,10})?)?"
_JOB = re.compile(rf"\d{{1,10}}(?:\.{_RANGE}(?:,{_RANGE})*)?")
_TEXT = 400
"""Characters that are told to the owner of a job."""

HOST = """\
hostname {name}
load_scaling NONE
complex_values {has}
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""


def render_host(member: Member, complexes: Mapping[str, Complex]) -> str:
    """As `qconf -Ae` reads it. Only resources that the site has defined can be told."""
    values = []
    for feature in member.features:
        name, _, value = feature.partition("=")
        if name in complexes and (value or complexes[name].type == "BOOL"):
            values.append(f"{name}={value or 'TRUE'}")
    if member.cores:
        values.append(f"slots={member.cores}")
    return HOST.format(name=member.name, has=",".join(values) or "NONE")


def require_queues(queues: Mapping[str, ClusterQueue], names: Iterable[str]) -> None:
    """Jobs of a queue that is not shown would seem to be no demand, and its nodes idle."""
    if missing := [name for name in names if name not in queues]:
        raise Unavailable(
            f"Grid Engine has no queue {missing[0]}; create it (qconf -aq {missing[0]}), or name "
            "another one under partitions"
        )


def group_of(queues: Mapping[str, ClusterQueue], name: str) -> str:
    """The hostgroup of a queue."""
    require_queues(queues, [name])
    group = queues[name].group
    if group is None:
        raise Unavailable(
            f"queue {name} has no hostgroup that hosts could come and go in; make one "
            f"(qconf -ahgrp @cloud), and have the queue use it (qconf -mattr queue hostlist @cloud "
            f"{name})"
        )
    return group


def context_of(text: str) -> str:
    """A value of a job's context: a comma would begin another."""
    line = " ".join(text.replace(",", ";").split())
    plain = line.encode("ascii", "replace").decode()
    return f"springtide={plain[:_TEXT].removeprefix('springtide: ')}"


def checked(members: Iterable[Member]) -> list[Member]:
    listed = list(members)
    node_names(member.name for member in listed)
    matching(
        _QUEUE, (name for member in listed for name in member.queues), "a queue of Grid Engine"
    )
    matching(
        _FEATURE,
        (name for member in listed for name in member.features),
        "a feature of Grid Engine",
    )
    return listed


def jobs_of(jobs: Iterable[str]) -> list[str]:
    return matching(_JOB, jobs, "a job of Grid Engine")
