"""Slurm's reasons why a job waits, in plain words: a table, for `job`."""

from collections.abc import Mapping

from springtide.story.telling import Told

_SHOW = "`scontrol show job JOB` tells more"
_FREE = "Slurm starts it when nodes are free, or can be started"
_LIMIT = "Slurm starts it when other jobs have ended"
_CHANGE = "never, unless the job or the limit is changed"

WAITS: Mapping[str, Told] = {
    "": Told("Slurm has not looked at it yet", "Slurm looks at it within seconds"),
    "None": Told("Slurm has not looked at it yet", "Slurm looks at it within seconds"),
    "Priority": Told(
        "jobs with a higher priority come before it",
        "Slurm starts it when its turn comes and nodes are free",
        "`sprio -j JOB` tells of its priority",
    ),
    "Resources": Told("the nodes that it needs are in use, or not there yet", _FREE),
    "Nodes required for job are DOWN": Told(
        "nodes that it needs are down, drained or reserved",
        "Slurm starts it when enough of them take jobs again",
        "`sinfo -R` says which nodes are out of service, and why",
    ),
    "ReqNodeNotAvail": Told(
        "a node that it asks for by name or feature is down, drained or reserved",
        "Slurm starts it when that node takes jobs again",
        "`sinfo -R` says why; or submit it without that node",
    ),
    "BeginTime": Told(
        "it may not begin yet: its begin time is to come, or it was put back into the queue a "
        "moment ago",
        "Slurm starts it when that time has come; after a requeue within two minutes",
        "`scontrol update jobid=JOB starttime=now` starts it at once",
    ),
    "Dependency": Told("other jobs must end before it", "Slurm starts it after them", _SHOW),
    "DependencyNeverSatisfied": Told(
        "a job that it depends on ended otherwise than asked", "never", "`scancel JOB`"
    ),
    "JobHeldUser": Told(
        "its owner holds it", "nothing until it is released", "`scontrol release JOB`"
    ),
    "JobHeldAdmin": Told(
        "an admin holds it", "nothing until it is released", "ask an admin: `scontrol release JOB`"
    ),
    "job requeued in held state": Told(
        "it was put back into the queue and is held",
        "nothing until it is released",
        "`scontrol release JOB`",
    ),
    "launch failed requeued held": Told(
        "its launch failed on a node, so Slurm holds it",
        "nothing until it is released",
        "`scontrol show job JOB`, then `scontrol release JOB`",
    ),
    "PartitionConfig": Told(
        "it asks for what its partition does not allow", _CHANGE, "`scontrol show partition`"
    ),
    "PartitionNodeLimit": Told(
        "it asks for more nodes than its partition allows, or has", _CHANGE, "ask for fewer nodes"
    ),
    "PartitionTimeLimit": Told(
        "it asks for more time than its partition allows", _CHANGE, "ask for less time"
    ),
    "PartitionDown": Told(
        "its partition starts no jobs", "nothing until that is opened", "`scontrol show partition`"
    ),
    "PartitionInactive": Told(
        "its partition takes no jobs", "nothing until that is opened", "`scontrol show partition`"
    ),
    "BadConstraints": Told("no node is as it asks", "never", "change its constraints"),
    "Reservation": Told("it waits for its reservation", "Slurm starts it then", _SHOW),
    "Licenses": Told("licenses that it needs are in use", _LIMIT, _SHOW),
    "JobArrayTaskLimit": Told("as many tasks of its array run as it allows itself", _LIMIT),
    "Prolog": Told("its prolog runs", "Slurm starts it when that has ended"),
    "Cleaning": Told(
        "Slurm cleans up after its last start", "Slurm starts it when that is done", _SHOW
    ),
    "NodeDown": Told("a node that it needs is down", _FREE, "`sinfo -R` says why"),
    "SystemFailure": Told("Slurm failed", "nothing by itself", "an admin should look at its log"),
    "InvalidAccount": Told("its account is not known", "never", "submit it with another account"),
    "InvalidQOS": Told("its QOS is not known", "never", "submit it with another QOS"),
}
"""By the first word or words of the reason; JOB is the job's id. Others are shown as Slurm says."""
