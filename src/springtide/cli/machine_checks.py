"""Whether nodes are as big as the file tells Slurm: by what they said when they joined.

For `tide check`. Slurm drains a node that has less memory or fewer CPUs than its line says.
"""

from collections.abc import Iterable

from springtide.cli.client import Away, Json, Refused
from springtide.cli.subject import Check, Subject
from springtide.configure.membership import told
from springtide.spec import Cluster, Queued


def look_at_machines(subject: Subject) -> Iterable[Check]:
    if subject.status is None:
        return ()
    try:
        rows = subject.daemon.get("/machines")["machines"]
    except (Away, Refused):
        return ()
    known = [row for row in rows if row["group"] in subject.spec.groups]
    return [decide_size(subject.spec, row) for row in known]


def decide_size(spec: Cluster, row: Json) -> Check:
    """Of a group, against the smallest of its nodes."""
    group, cpus, memory = row["group"], row["cpus"], row["memory"]
    told_cpus, told_memory = told(spec, group)
    names = " or ".join(f"flavors.{name}" for name in spec.groups[group].flavors)
    who = "the batch system" if isinstance(spec.batch, Queued) else "Slurm"
    has = f"its nodes report {cpus} CPUs and {memory} MiB"
    if told_memory > memory:
        text = f"{who} is told {told_memory} MiB"
        todo = f"set memory of {names} to {memory}M or less"
    elif told_cpus > cpus:
        text, todo = f"{who} is told {told_cpus} CPUs", f"set cpus of {names} to {cpus} or less"
    else:
        return Check(f"size of {group}", True, f"{has}, which is what {who} is told, or more")
    return Check(f"size of {group}", False, f"{has}, but {text}", todo)
