"""The second in which slurmd may start: part of every boot script, and what the agent runs."""

from typing import Optional

WAIT = """\
# slurmd -b counts whole seconds since its start and so may seem to have booted one early: before it
# was asked for, if that was in the second in which it starts. Then slurmctld waits for another boot
# in vain. So it starts in a later one.
{asked}while [ "$(date +%s)" -eq {second} ]; do sleep 0.1; done
"""


def render_wait(asked_at: Optional[float] = None) -> str:
    """Shell commands for just before `slurmd -b`; in every second, if not told when it was asked.

    The time is not told where several machines get one text, or one gets it for all its boots.
    """
    if asked_at is None:
        return WAIT.format(asked="asked=$(date +%s)\n", second='"$asked"')
    return WAIT.format(asked="", second=int(asked_at))
