"""What a machine is, against what Slurm is told of it and would take from it. Pure."""

from springtide.batch.slurm_versions import Release, oldest_node, ordinal
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
    node, ours = _release(machine.slurm), _release(control)
    if node is None or ours is None:
        return ""
    behind = (ordinal(ours) or 0) - (ordinal(node) or 0)
    if 0 <= behind <= oldest_node(ours):
        return ""
    which = "newer than" if behind < 0 else "too old for"
    return (
        f"its slurmd {machine.slurm} is {which} slurmctld {control}: use an image with "
        f"Slurm {control}"
    )


def _release(version: str) -> Release | None:
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return None
    found = int(parts[0]), int(parts[1])
    return None if ordinal(found) is None else found
