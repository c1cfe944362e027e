"""What the batch system and its commands are called, by the kind that the daemon tells."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from springtide.cli.client import Json

if TYPE_CHECKING:
    from springtide.story.voice import Terms

SLURM = "slurm"
OTHERS = ("torque", "openpbs", "gridengine")


def kind_of(nodes: Json) -> str:
    """Of an answer of /nodes; a daemon of before has Slurm."""
    return str(nodes.get("batch_kind") or SLURM)


def terms(kind: str) -> "Terms":
    from springtide.story.voice import TERMS

    return TERMS.get(kind, TERMS[SLURM])


def jobs_on(kind: str, names: str) -> str:
    """The command that lists jobs of nodes, or all where there is none."""
    return f"squeue -w {names}" if kind not in OTHERS else terms(kind).list_jobs


_LEFT: Mapping[str, str] = {
    "torque": 'remove them there: `qmgr -c "delete node NAME"`',
    "openpbs": 'remove them there: `qmgr -c "delete node NAME"`',
    "gridengine": (
        "remove them there: `qdel -f JOB`, `qconf -dattr hostgroup hostlist NAME @GROUP`, "
        "`qconf -de NAME`"
    ),
}


def left_in(kind: str) -> str:
    """What to do about nodes of a cluster that is gone; slurm.conf is not ours to write."""
    slurm = "`scontrol update nodename=NAME state=down reason=gone` gives their jobs back"
    return _LEFT.get(kind, slurm)


def try_out(kind: str, queue: str = "") -> tuple[str, str]:
    """The commands that show a cluster, and give it a job, in a queue that need not be the usual
    one."""
    if kind not in OTHERS:
        where = f"-p {queue} " if queue else ""
        return "sinfo", f"sbatch {where}-N1 --wrap hostname"
    return terms(kind).show_queues, f"echo hostname | qsub -q {queue or 'QUEUE'}"
