"""Partitions and jobs that rebuild nodes: pure, for `slurm_conf` and `slurm`.

A rebuild partition is root's alone and its jobs go before all others, so a rebuild begins on a
node when the jobs that it has are over, and no user's job comes between. A job itself does
nothing: when it starts, its prolog asks the daemon, which has Slurm drain the node and reboot it
after the job. (`sbatch --reboot` would do on 22.05 alone: later ones reboot no cloud nodes for it.)
"""

import re
from collections.abc import Collection, Iterable, Mapping
from math import ceil

from springtide.batch.slurm_text import shorten
from springtide.batch.slurm_versions import Release, one_job_at_a_time
from springtide.batch.unread import UnreadableError
from springtide.nodeset import fold
from springtide.ports import Unavailable
from springtide.spec import Cluster
from springtide.spec.rebuilds import DEFAULT, REBUILD_JOB

HIGHEST_FACTOR = 65533

_JOB = re.compile(rf"(\d+)\|{REBUILD_JOB}(\S+)")
_TRIAL = "try-"


def partitions(cluster: Cluster) -> dict[str, list[str]]:
    """The rebuild partitions and their nodes, of which we can rebuild only our own."""
    named = cluster.rebuild.partitions
    if not named:
        return {DEFAULT: [*cluster.managed]} if cluster.managed else {}
    ours = frozenset(cluster.managed)
    found = {key: _nodes_of(cluster, listed) for key, listed in named.items()}
    return {key: [name for name in names if name in ours] for key, names in found.items()}


def _nodes_of(cluster: Cluster, listed: Iterable[str]) -> list[str]:
    groups = [group for name in listed for group in cluster.partitions[name].groups]
    return [node for group in dict.fromkeys(groups) for node in cluster.names(group)]


def settings(
    cluster: Cluster, version: Release, theirs: Mapping[str, str] | None = None
) -> list[dict[str, str]]:
    """What stands on the lines of these partitions in slurm.conf; `theirs` are the settings of one
    that is not ours."""
    tier = {} if theirs is None else _tier(theirs)
    minutes = str(ceil(cluster.rebuild.max_time / 60))
    return [
        {
            "PartitionName": name,
            **({"Nodes": fold(nodes)} if nodes else {}),
            "Default": "NO",
            "PriorityJobFactor": str(HIGHEST_FACTOR),
            **tier,
            "Hidden": "YES",
            "RootOnly": "YES",
            "DisableRootJobs": "NO",
            "PreemptMode": "OFF",
            **one_job_at_a_time(version),
            "MaxTime": minutes,
        }
        for name, nodes in partitions(cluster).items()
    ]


def _tier(theirs: Mapping[str, str]) -> dict[str, str]:
    """What puts jobs ahead where partitions have no weight, as in a Slurm that nobody tuned.

    Not where jobs of a higher tier preempt others: no rebuild may end a job.
    """
    weighs = theirs.get("prioritytype", "").lower() == "priority/multifactor"
    if weighs and theirs.get("priorityweightpartition", "0") != "0":
        return {}
    if theirs.get("preempttype", "").lower() == "preempt/partition_prio":
        return {}
    return {"PriorityTier": str(HIGHEST_FACTOR)}


# Jobs


def partition_of(cluster: Cluster) -> dict[str, str]:
    """The partition in which each node's job would run; some may have none."""
    return {node: name for name, nodes in partitions(cluster).items() for node in nodes}


def placed(cluster: Cluster, nodes: Iterable[str]) -> dict[str, str]:
    """The rebuild partition of each node; refuses all if one has none."""
    where = partition_of(cluster)
    wanted = list(dict.fromkeys(nodes))
    if outside := [name for name in wanted if name not in where]:
        raise Unavailable(
            f"{fold(outside)}: in no rebuild partition, so no job can rebuild it; leave it out, "
            "or add its partition to rebuild.partitions of the cluster file"
        )
    return {name: where[name] for name in wanted}


def submission(node: str, partition: str, command: str | None) -> list[str]:
    """The command that submits a node's job.

    A rebuild goes back into the queue if the daemon is away when it starts. A trial does not if
    its node fails: that would only be tried again.
    """
    prefix = REBUILD_JOB if command is None else _TRIAL
    job = [f"--job-name={prefix}{node}", f"--nodelist={node}", f"--partition={partition}"]
    quiet = ["--output=/dev/null", "--chdir=/"]
    again = "--requeue" if command is None else "--no-requeue"
    body = f"--wrap={'true' if command is None else command}"
    return ["sbatch", "--parsable", "--exclusive", "--nodes=1", again, *job, *quiet, body]


def parse_submitted(text: str) -> str:
    """The id, which a Slurm of several clusters adds the cluster to."""
    id = text.strip().partition(";")[0]
    if not id.isdecimal():
        raise UnreadableError(f"sbatch printed {shorten(text)!r} instead of a job id")
    return id


def queue_of(partitions: Collection[str]) -> list[str]:
    listed = ",".join(sorted(partitions))
    return ["squeue", "--all", "--noheader", f"--partition={listed}", "-o", "%A|%j"]


def parse_queue(text: str) -> Mapping[str, str]:
    """The jobs of nodes that are not over."""
    return {match[2]: match[1] for match in map(_JOB.fullmatch, text.splitlines()) if match}
