"""Power actions: names by which an admin has Slurm rebuild a node, or only reboot it. Pure.

`scontrol reboot action=NAME` runs that action's program instead of RebootProgram, and tells it
nothing but the nodes; so each has a program of its own. Slurm forgets the name of a reboot that
waits when it is restarted or reconfigured, and runs RebootProgram, which goes by the reason.
Called by `slurm_conf` for the lines, and by `slurm_nodes`.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

REBUILD = "rebuild"
PROGRAMS = {REBUILD: "rebuild", "reboot": "reboot-only"}
"""The program of each, which is what the hook is called as."""


def lines(programs: Path, theirs: Iterable[str] = ()) -> list[str]:
    """For slurm.conf. `theirs` are names that stand there already, in whatever case."""
    taken = {name.lower() for name in theirs}
    return [
        f"PowerAction={name} Location=slurmctld Program={programs / program}"
        for name, program in PROGRAMS.items()
        if name not in taken
    ]


def chosen(conf: str) -> Collection[str]:
    """What `scontrol reboot` is told besides, by a Slurm that runs with this."""
    known = any(line.startswith(f"PowerAction={REBUILD} ") for line in conf.splitlines())
    return [f"action={REBUILD}"] if known else []
