"""Nodes that somebody drained: whose wish that is, and who ends it. Pure.

`node` and `off` call it.
"""

from springtide.batch.slurm_reason import SOMEBODY
from springtide.model import NodeState
from springtide.story.case import NodeCase
from springtide.story.telling import Told


def drain_of(case: NodeCase) -> str:
    """Who drained it by a command of ours, and why: said while no batch system tells."""
    asked = [one for one in case.events if one.what in ("drain asked", "undrain asked")]
    last = asked[-1] if asked else None
    return last.detail if case.silent and last and last.what == "drain asked" else ""


def drained_once(case: NodeCase, now: float) -> Told:
    who, _, why = drain_of(case).partition(": ")
    at = "off" if case.state is NodeState.OFF else "up"
    return Told(
        f"{case.name} is {at}, and as far as is known takes no new jobs: {who} drained it",
        f"nothing: {who} drained it ({why}); `tide undrain {case.name}` ends that",
        f"`tide undrain {case.name}` gives it back to service",
    )


def persons(case: NodeCase) -> tuple[str, str]:
    """What people took out of service is theirs to give back."""
    reason = f" ({reason_of(case)})" if reason_of(case) else ""
    unknown = case.seen is not None and case.seen.owner == SOMEBODY  # so it is nobody's own
    command = f"`tide undrain {case.name}{' --force' if unknown else ''}`"
    others = "" if unknown else "; what others took out of it needs --force"
    return (
        f"nothing: {case.wish}{reason}; {command} ends that",
        f"{command} gives it back to service{others}",
    )


def reason_of(case: NodeCase) -> str:
    return case.seen.reason if case.seen else ""
