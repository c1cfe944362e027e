"""Why a node is as it is. Pure; called by the API.

Each situation is a function that tells how it stands, what comes next and what can be done.
"""

from collections.abc import Callable
from dataclasses import replace

from springtide.model import NodeState
from springtide.ports import OURS, InstanceState, Power
from springtide.story.case import NodeCase
from springtide.story.past import is_booted, told
from springtide.story.telling import MOST_TOLD, Story, Told, held, lasting, sentence, since
from springtide.story.troubles import due_words
from springtide.story.underway import in_operation, jobs, state


def node_story(now: float, case: NodeCase, most: int | None = MOST_TOLD) -> Story:
    """The story of a node."""
    tale = _with_repair(case, _situation(case)(case, now), now)
    tale = _with_views(case, _with_outage(case, tale))
    past = told(case.events, case.operations, most, about=case.name)
    return Story(f"node {case.name}", tale.now, past, tale.next, tale.do)


def _situation(case: NodeCase) -> Callable[[NodeCase, float], Told]:
    """The first that fits."""
    if case.node is None:
        return _unmanaged
    if case.closed:
        return _closed
    if case.operation is not None:
        return in_operation
    if case.state is NodeState.OFF:
        return _off_situation(case)
    if case.state is NodeState.READY:
        return _ready_situation(case)
    return _abandoned


def _off_situation(case: NodeCase) -> Callable[[NodeCase, float], Told]:
    if case.person:
        return _off_and_drained
    if case.held is not None:
        return _off_and_held
    power = case.seen.power if case.seen else None
    if power is Power.GOING_UP:
        return _off_and_wanted
    if power is Power.GOING_DOWN:
        return _off_and_leaving
    return _off_though_always_up if case.always_up else _off


def _ready_situation(case: NodeCase) -> Callable[[NodeCase, float], Told]:
    seen = case.seen
    if seen is None:
        return _silent if _is_dead(case) else _in_service
    if case.person:
        return _drained
    if seen.power in (Power.DOWN, Power.GOING_DOWN):
        return _leaving
    if not seen.registered or _is_dead(case):
        return _silent
    if "FAIL" in seen.flags:
        return _failing
    return _unfit if seen.drained and seen.owner != OURS else _in_service


def _is_dead(case: NodeCase) -> bool:
    dead = (InstanceState.BROKEN, InstanceState.STOPPED)
    return any(instance.state in dead for instance in case.instances)


# --- what is added to every situation ----------------------------------------------------------


def _with_repair(case: NodeCase, tale: Told, now: float) -> Told:
    """What the reconciler will do comes first, unless it rests; then that is said."""
    then = due_words(case.due, case.rest, now)
    if not then:
        return tale
    kept = case.rest is not None and not case.rest.ends
    do = case.rest.do if case.rest and (kept or not tale.do) else tale.do
    return replace(tale, next=then, do=do)


def _with_outage(case: NodeCase, tale: Told) -> Told:
    """A batch system that is away comes first: nothing else happens until it is back."""
    if case.outage is None:
        return tale
    return replace(tale, next=f"{case.outage.next}; then {tale.next}", do=case.outage.do)


def _with_views(case: NodeCase, tale: Told) -> Told:
    """What Slurm shows, word for word; or that nobody could ask it."""
    if case.silent:
        away = case.outage.now if case.outage else "Slurm does not answer"
        said = f"{away}, so this is our record alone"
    elif case.seen is None:
        said = "" if case.closed else "Slurm does not know it"
    else:
        said = f"Slurm shows {'+'.join([case.seen.state, *sorted(case.seen.flags)])}"
    return replace(
        tale, now=sentence(f"{tale.now}; {said}" if said else tale.now), next=sentence(tale.next)
    )


# --- situations ----------------------------------------------------------------------------------


def _unmanaged(case: NodeCase, now: float) -> Told:
    who = f"; {case.wish}: {_reason(case)}" if case.person else ""
    return Told(
        f"{case.name} is a machine that Springtide neither makes nor removes{who}",
        "nothing by Springtide: its provider is 'none'",
        f"`scontrol show node {case.name}` tells what Slurm knows of it",
    )


def _closed(case: NodeCase, now: float) -> Told:
    return Told(f"{state(case, now)}; nothing is started: {case.closed}", "nothing until then", "")


def _off(case: NodeCase, now: float) -> Told:
    listed = ", ".join(f"{one.id}, {one.state}" for one in case.instances)
    has = f", but its provider lists an instance ({listed})" if listed else " and has no instance"
    return Told(
        f"{case.name} is off{has}{_failure(case)}",
        "Slurm starts it when a job needs it",
        f"{_log(case)}`tide resume {case.name}` starts it by hand",
    )


def _failure(case: NodeCase) -> str:
    return f"; its last start failed: {case.node.reason}" if case.node and case.node.reason else ""


def _log(case: NodeCase) -> str:
    """Where the cause of a failed boot may be found."""
    failed = case.node is not None and case.node.reason and is_booted(case.events, case.name)
    return f"`tide log {case.name}` shows what it said while it booted; " if failed else ""


def _off_though_always_up(case: NodeCase, now: float) -> Told:
    then = f"Springtide starts it by itself within {lasting(case.timing.reconcile)}"
    if case.rest is not None:
        then = f"nothing for now: {case.rest.why}; after that {then}"
    return Told(
        f"{_off(case, now).now}, though the cluster file wants it always up",
        f"{then} (timing.reconcile)",
        f"{_log(case)}`tide resume {case.name}` starts it at once",
    )


def _off_and_drained(case: NodeCase, now: float) -> Told:
    return Told(f"{case.name} is off, and {case.wish}", *_persons(case))


def _off_and_held(case: NodeCase, now: float) -> Told:
    assert case.held is not None
    assert case.node is not None
    group = case.node.group
    return Told(
        f"{case.name} is off, and no node of group {group} is started now{_failure(case)}",
        held(group, case.held.why, case.held.until, now),
        f"{_log(case)}when the cause is gone, `tide holds --lift {case.held.key or group}` has it "
        "tried at once",
    )


def _off_and_wanted(case: NodeCase, now: float) -> Told:
    whom = f" for {jobs(case)}" if case.jobs else ""
    return Told(
        f"{case.name} is off, and Slurm has asked for it{whom}",
        "Springtide starts it within seconds",
        "if nothing happens, `tide check` finds out whether Slurm's programs run",
    )


def _off_and_leaving(case: NodeCase, now: float) -> Told:
    return Told(
        f"{case.name} is off; Slurm still counts it as powering down",
        f"Slurm counts it as off at the latest {lasting(case.timing.stop)} (timing.stop) after it "
        "began with that; then a job can have it",
    )


def _in_service(case: NodeCase, now: float) -> Told:
    """Busy or idle; perhaps not as the file says."""
    runs = f" and has {jobs(case)}" if case.jobs else " and idle" if _is_idle(case) else ""
    if case.seen and case.seen.drained:
        runs = f"{runs} but takes no new jobs, by Springtide ({_reason(case)})"
    if case.always_up:
        then = "nothing: it is one of the nodes that are always up"
    elif case.jobs or (case.seen and case.seen.busy):
        then = f"when its jobs have ended and none comes for {_idle(case)}, Slurm gives it up"
    else:
        then = f"Slurm gives it up when it has been idle for {_idle(case)}"
    stands = f"{case.name} is in service{runs}, {since(case.changed_at, now)}"
    return _with_drift(case, Told(stands, then))


def _with_drift(case: NodeCase, tale: Told) -> Told:
    drift = case.drift
    if drift is None:
        return tale
    then = drift.next
    if then and case.rest is not None:
        then = f"nothing for now: {case.rest.why}; after that {then}"
    return Told(f"{tale.now}, with {drift.now}", then or tale.next, drift.do)


def _is_idle(case: NodeCase) -> bool:
    return case.seen is not None and not case.seen.busy


def _idle(case: NodeCase) -> str:
    return f"{lasting(case.timing.idle)} (timing.idle)"


def _drained(case: NodeCase, now: float) -> Told:
    assert case.seen is not None
    if case.seen.state == "DOWN":
        return Told(f"{case.name} is out of service: {case.wish}", *_persons(case))
    on = f"; {jobs(case)} may run to the end" if case.jobs else ""
    return Told(f"{case.name} is up but takes no new jobs: {case.wish}{on}", *_persons(case))


def _failing(case: NodeCase, now: float) -> Told:
    on = f"; {jobs(case)} may run to the end" if case.jobs else ""
    said = f" ({_reason(case)})" if _reason(case) else ""
    return Told(
        f"{case.name} is up but takes no new jobs: somebody set it to FAIL in Slurm{said}{on}",
        "nothing by itself: whoever set it so ends it",
        f"`scontrol update nodename={case.name} state=resume` gives it back to service",
    )


def _persons(case: NodeCase) -> tuple[str, str]:
    """What people took out of service is theirs to give back."""
    reason, command = f" ({_reason(case)})" if _reason(case) else "", f"`tide undrain {case.name}`"
    return (
        f"nothing: {case.wish}{reason}; {command} ends that",
        f"{command} gives it back to service; what others took out of it needs --force",
    )


def _reason(case: NodeCase) -> str:
    return case.seen.reason if case.seen else ""


def _leaving(case: NodeCase, now: float) -> Told:
    return Told(f"Slurm has let go of {case.name}", "its instance is deleted, and then it is off")


def _silent(case: NodeCase, now: float) -> Told:
    """In our record it serves, but it does not."""
    then = "Springtide repairs it" if case.outage else "Springtide looks again within seconds"
    return Told(
        f"{case.name} should be in service, but {_trouble(case)}",
        then,
        f"`tide kill {case.name}` gives its jobs back and removes it at once",
    )


def _trouble(case: NodeCase) -> str:
    """What provider and batch system say of it."""
    has = (
        "whether its instance runs is not known"
        if case.unlisted
        else "its provider lists no instance"
    )
    if case.instances:
        has = f"its instance is {case.instances[0].state}"
    if case.seen is None:
        return has
    said = f": {_reason(case)}" if _reason(case) else ""
    if case.seen.state == "DOWN":
        heard = f"Slurm has given it up{said}"
    elif case.seen.registered:
        return f"{has}, and Slurm has not missed it yet"
    else:
        heard = f"Slurm does not hear from it{said}"
    runs = any(one.state is InstanceState.RUNNING for one in case.instances)
    return f"{heard}, though its instance runs" if runs else f"{has}, and {heard}"


def _unfit(case: NodeCase, now: float) -> Told:
    return Told(
        f"{case.name} is up but takes no new jobs: Slurm itself drained it: {_reason(case)}",
        "Springtide replaces it when its jobs have ended and nobody has mended it within "
        f"{lasting(case.timing.grace)} (timing.grace)",
        f"if it is fit after all, `tide undrain {case.name} --force`",
    )


def _abandoned(case: NodeCase, now: float) -> Told:
    """On its way, and no operation has it."""
    why = f": {case.node.reason}" if case.node and case.node.reason else ""
    return Told(
        f"{state(case, now)}{why}; no operation is at it",
        "Springtide removes what is left of it, and it may be started again",
        f"`tide events {case.name}` tells more",
    )
