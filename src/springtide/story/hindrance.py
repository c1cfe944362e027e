"""What keeps a node from coming up that is still on its way: words, pure.

The API gathers what the node told and how the join port is; `underway` tells it.
"""

from collections.abc import Iterable, Sequence

from springtide.model import Event, Phase
from springtide.story.telling import Told, clock
from springtide.timeline import BEGINNINGS, EARLY_S

AGAIN = "it tries again by itself until that is mended"
MEND = "mend that on the control host; nodes ask again by themselves"


def present_boot(phases: Iterable[Phase], events: Iterable[Event], generation: int) -> list[Phase]:
    """What a node told of its boot under way; a reboot is another boot of the same instance."""
    began_at = max((one.at for one in events if one.what in BEGINNINGS), default=0.0)
    ours = (one for one in phases if one.generation == generation)
    return [one for one in ours if one.at >= began_at - EARLY_S]


def shut_out(node: str, why: str, until: float, now: float, updates: bool) -> Told:
    """Ansible waits until it can log in to a node, `until` that time; `updates` if it served
    before."""
    end = "it goes back to service as it is" if updates else "it is removed, and tried again later"
    return Told(
        f"Ansible waits to log in to it by ssh: {why}",
        f"that is tried again every second; if it fails until {clock(until, now)} (timing.start), "
        f"{end}",
        f"mend that; `tide log {node}` shows what it said while it booted",
    )


def hindrance(
    node: str, phases: Sequence[Phase], gave_up: str = "", lacks: str = "", closed: str = ""
) -> Told | None:
    """None if all goes well. `phases` are those of its present boot; `lacks` is what the control
    host has not to let it in, `closed` why it lets nobody in."""
    more = f"`tide timeline {node}` shows how far it came"
    if gave_up:
        return Told(f"its boot has failed for good: {gave_up}", "it waits for nothing more", more)
    if lacks:
        return Told(
            f"it cannot join, because the control host lacks something: {lacks}", AGAIN, MEND
        )
    if phases and phases[-1].detail:
        last = phases[-1]
        why = last.detail.removeprefix("failed: ")  # as nodes say it
        return Told(f"{last.name} has failed so far: {why}", AGAIN, f"mend that; {more}")
    if closed and not phases:
        return Told(f"it cannot join, as no node can: {closed}", AGAIN, MEND)
    return None
