"""Slurm parameters that Springtide writes itself, and what to use instead of them.

`checks` refuses them in a cluster file; keys are lower case, for Slurm minds no case.
"""

from collections.abc import Mapping

_HOOK = "it must be Springtide's own program"
_SOCKET = "it names the cluster's own munge socket"
_BATCH_FILES = "the batch system's files are kept below `state`"

SLURM: Mapping[str, str] = {
    "authinfo": f"{_SOCKET}; leave it out",
    "authtype": "nodes join with munge; leave it out",
    "clustername": "set `cluster` instead",
    "controladdr": "set batch.host instead",
    "controlmachine": "set batch.host instead",
    "include": "write its lines as parameters instead",
    "nodename": "set `groups` instead",
    "nodeset": "set `groups` and `partitions` instead",
    "partitionname": "set `partitions` instead",
    "prologslurmctld": f"{_HOOK}; set batch.prolog instead, which runs after it",
    "rebootprogram": f"{_HOOK}; leave it out",
    "resumefailprogram": f"{_HOOK}; leave it out",
    "resumeprogram": f"{_HOOK}; leave it out",
    "resumerate": "set batch.resume_rate instead",
    "resumetimeout": "set timing.start instead",
    "slurmctldhost": "set batch.host instead",
    "slurmctldpidfile": f"{_BATCH_FILES}; leave it out",
    "slurmctldport": "set batch.port instead",
    "slurmdpidfile": f"{_BATCH_FILES}; leave it out",
    "slurmdport": "set batch.node_port instead",
    "slurmuser": "set batch.user instead",
    "statesavelocation": f"{_BATCH_FILES}; set `state` instead",
    "suspendexcnodes": "set `min` of a group instead",
    "suspendprogram": f"{_HOOK}; leave it out",
    "suspendrate": "set batch.suspend_rate instead",
    "suspendtime": "set timing.idle instead",
    "suspendtimeout": "set timing.stop instead",
}

_OWN_ACCOUNT = "it names the cluster's own slurmdbd"

ACCOUNTING: Mapping[str, str] = {
    "accountingstoragehost": f"{_OWN_ACCOUNT}; leave it out",
    "accountingstoragepass": f"{_SOCKET}; leave it out",
    "accountingstorageport": "set batch.accounting.port instead",
    "accountingstoragetype": f"{_OWN_ACCOUNT}; leave it out, or batch.accounting to use another",
}
"""Only with batch.accounting; without it a cluster may use a slurmdbd that is there."""

HEALTH: Mapping[str, str] = {
    "healthcheckprogram": "it runs the program of `health`; leave one of them out",
}
"""Only with `health`; without it a cluster may have a HealthCheckProgram of its own."""

PARTITION: Mapping[str, str] = {
    "default": "set `default` of the partition instead",
    "nodes": "set `groups` of the partition instead",
    "partitionname": "it is the partition's key; leave it out",
}
