"""What a machine is, against what Slurm is told of it and would take from it. Pure."""

from springtide.batch.slurm_versions import EARLIER, Change
from springtide.configure.membership import told
from springtide.joining.asked import Machine
from springtide.spec import Cluster, Queued


def remarks(spec: Cluster, group: str, machine: Machine, control: str) -> dict[str, str]:
    """Events that a machine deserves, with their details."""
    found = {"node smaller than told": _smaller(spec, group, machine)}
    slurm = "slurmd" in spec.gets(group)
    if slurm and machine.slurm and control and machine.slurm != control:
        versions = f"its slurmd is {machine.slurm}, slurmctld is {control}"
        found["version differs"] = f"{versions}; use an image with {control}"
    return {what: detail for what, detail in found.items() if detail}


def _smaller(spec: Cluster, group: str, machine: Machine) -> str:
    cpus, memory = told(spec, group)
    names = ", ".join(spec.groups[group].flavors)
    who = "the batch system" if isinstance(spec.batch, Queued) else "Slurm"
    less = []
    if 0 < machine.memory < memory:
        less.append(
            f"it has {machine.memory} MiB of memory and {who} is told {memory}: set memory of "
            f"flavor {names} to {machine.memory}M or less"
        )
    if 0 < machine.cpus < cpus:
        less.append(
            f"it has {machine.cpus} CPUs and {who} is told {cpus}: set cpus of flavor {names} to "
            f"{machine.cpus}"
        )
    return "; ".join(less)


def refused_by_slurm(machine: Machine, control: str) -> str:
    """Why slurmctld would not talk to its slurmd; empty if it would, or nobody knows."""
    node, ours = release(machine.slurm), release(control)
    if node is None or ours is None or 0 <= ours[1] - node[1] <= _window(ours[0]):
        return ""
    which = "newer than" if node[1] > ours[1] else "too old for"
    return (
        f"its slurmd {machine.slurm} is {which} slurmctld {control}: use an image with "
        f"Slurm {control}"
    )


def _window(control: tuple[int, int]) -> int:
    return 3 if Change.TAKES_THREE_OLDER.applies(control) else 2


def release(version: str) -> tuple[tuple[int, int], int] | None:
    """Year and month, and how many releases after another it came; None if it is no release."""
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return None
    year, month = int(parts[0]), int(parts[1])
    if (year, month) in EARLIER:
        return (year, month), EARLIER.index((year, month))
    if (year, month) > EARLIER[-1]:
        return (year, month), len(EARLIER) + 2 * (year - 24) + (month > 5)
    return None
