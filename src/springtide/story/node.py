"""Why a node is as it is. Pure; called by the API.

Each situation is a function that tells how it stands, what comes next and what can be done.
"""

from collections.abc import Callable
from dataclasses import replace

from springtide.batch.slurm_reason import UNHEALTHY
from springtide.failures import is_unconfigured
from springtide.model import NodeState
from springtide.ports import OURS, InstanceState, Power
from springtide.story.case import Due, NodeCase
from springtide.story.drained import drain_of, drained_once, persons, reason_of
from springtide.story.off import has_failed, kept, off_situation
from springtide.story.past import told
from springtide.story.telling import MOST_TOLD, Story, Told, clock, lasting, sentence, since
from springtide.story.troubles import due_words
from springtide.story.underway import in_operation, jobs, state
from springtide.triage import Owner, Repair

AGAIN = "its last start failed, and is tried again"


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
        return off_situation(case)
    if case.state is NodeState.READY:
        return _ready_situation(case)
    return _abandoned


def _ready_situation(case: NodeCase) -> Callable[[NodeCase, float], Told]:
    seen = case.seen
    if seen is None:
        return _silent if _is_dead(case) else drained_once if drain_of(case) else _in_service
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
    then = due_words(_due(case), case.rest, now)
    if not then:
        return tale
    kept = case.rest is not None and not case.rest.ends
    do = case.rest.do if case.rest and (kept or not tale.do) else tale.do
    return replace(tale, next=then, do=_persons_part(case) or do)


def _due(case: NodeCase) -> Due | None:
    """No request was lost of a node whose last start failed."""
    due = case.due
    if due is None or due.rule.repair is not Repair.RESUME or not has_failed(case):
        return due
    return replace(due, rule=replace(due.rule, why=AGAIN))


def _persons_part(case: NodeCase) -> str:
    """What the table of troubles has a person do: other advice would not go with it."""
    if case.due is None or case.due.rule.owner is not Owner.PERSON:
        return ""
    advice = case.due.rule.why.partition("; ")[2]
    return advice.replace("`tide kill`", f"`tide kill {case.name}`")


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
    elif case.seen.power is Power.DOWN and not case.seen.flags:
        said = ""  # it is read, and has nothing to say of a node that is off
    else:
        said = f"Slurm shows {'+'.join([case.seen.state, *sorted(case.seen.flags)])}"
    return replace(
        tale, now=sentence(f"{tale.now}; {said}" if said else tale.now), next=sentence(tale.next)
    )


# --- situations ----------------------------------------------------------------------------------


def _unmanaged(case: NodeCase, now: float) -> Told:
    who = f"; {case.wish}: {reason_of(case)}" if case.person else ""
    return Told(
        f"{case.name} is a machine that Springtide neither makes nor removes{who}",
        "nothing by Springtide: its provider is 'none'",
        f"`scontrol show node {case.name}` tells what Slurm knows of it",
    )


def _closed(case: NodeCase, now: float) -> Told:
    return Told(f"{state(case, now)}; nothing is started: {case.closed}", "nothing until then", "")


def _in_service(case: NodeCase, now: float) -> Told:
    """Busy or idle; perhaps not as the file says."""
    runs = f", and has {jobs(case)}" if case.jobs else ", and idle" if _is_idle(case) else ""
    if case.seen and case.seen.drained:
        runs = f"{runs}, but takes no new jobs, by Springtide ({reason_of(case)})"
    if case.always_up:
        then = f"nothing: it is one of the nodes that are {kept(case)}"
    elif case.jobs or (case.seen and case.seen.busy):
        then = f"when its jobs have ended and none comes for {_idle(case)}, Slurm gives it up"
    else:
        then = f"Slurm gives it up when it has been idle for {_idle(case)}"
    stands = f"{case.name} is in service {since(case.changed_at, now)}{runs}"
    return _with_drift(case, _with_lack(case, Told(stands, then)))


def _with_lack(case: NodeCase, tale: Told) -> Told:
    """An update gives back also those that it could not configure."""
    reason = case.node.reason if case.node else ""
    if not is_unconfigured(reason):
        return tale
    do = f"when the cause is gone, `tide update {case.name}` configures it"
    return Told(f"{tale.now}, but not as it should be: {reason}", tale.next, do)


def _with_drift(case: NodeCase, tale: Told) -> Told:
    drift = case.drift
    if drift is None:
        return tale
    then = drift.next
    if then and case.rest is not None:
        then = f"nothing for now: {case.rest.why}; after that {then}"
    return Told(f"{tale.now}, with {drift.now}", then or tale.next, tale.do or drift.do)


def _is_idle(case: NodeCase) -> bool:
    return case.seen is not None and not case.seen.busy


def _idle(case: NodeCase) -> str:
    return f"{lasting(case.timing.idle)} (timing.idle)"


def _drained(case: NodeCase, now: float) -> Told:
    assert case.seen is not None
    if case.seen.state == "DOWN":
        return Told(f"{case.name} is out of service: {case.wish}", *persons(case))
    on = f"; {jobs(case)} may run to the end" if case.jobs else ""
    return Told(f"{case.name} is up but takes no new jobs: {case.wish}{on}", *persons(case))


def _failing(case: NodeCase, now: float) -> Told:
    on = f"; {jobs(case)} may run to the end" if case.jobs else ""
    said = f" ({reason_of(case)})" if reason_of(case) else ""
    return Told(
        f"{case.name} is up but takes no new jobs: somebody set it to FAIL in Slurm{said}{on}",
        "nothing by itself: whoever set it so ends it",
        f"`scontrol update nodename={case.name} state=resume` gives it back to service",
    )


def _leaving(case: NodeCase, now: float) -> Told:
    return Told(f"Slurm has let go of {case.name}", "its instance is deleted, and then it is off")


def _silent(case: NodeCase, now: float) -> Told:
    """In our record it serves, but it does not."""
    then = "Springtide repairs it" if case.outage else "Springtide looks again within seconds"
    return Told(f"{case.name} should be in service, but {_trouble(case)}", then, _end(case, now))


def _end(case: NodeCase, now: float) -> str:
    """What may pass by itself is not to be ended by a person before its limit."""
    at = case.due.at if case.due else None
    if at is not None and at <= now:
        return f"`tide kill {case.name}` gives its jobs back and removes it at once"
    when = "in a few seconds" if at is None else f"after {clock(at, now)}"
    return f"look again {when}, with `tide why {case.name}`: it may pass by itself"


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
    said = f": {reason_of(case)}" if reason_of(case) else ""
    if case.seen.state == "DOWN":
        heard = f"Slurm has given it up{said}"
    elif case.seen.registered:
        return f"{has}, and Slurm has not missed it yet"
    else:
        heard = f"Slurm does not hear from it{said}"
    runs = any(one.state is InstanceState.RUNNING for one in case.instances)
    return f"{heard}, though its instance runs" if runs else f"{has}, and {heard}"


def _unfit(case: NodeCase, now: float) -> Told:
    if reason_of(case).startswith(UNHEALTHY):
        return _ill(case)
    return Told(
        f"{case.name} is up but takes no new jobs: Slurm itself drained it: {reason_of(case)}",
        "Springtide replaces it when its jobs have ended and nobody has mended it within "
        f"{lasting(case.timing.grace)} (timing.grace)",
        f"if it is fit after all, `tide undrain {case.name} --force`",
    )


def _ill(case: NodeCase) -> Told:
    """Its health check drained it, and ends that."""
    return Told(
        f"{case.name} is up but takes no new jobs: it is drained, as its {reason_of(case)}",
        "Springtide replaces it when its jobs have ended, unless the check has passed again "
        f"within {lasting(case.timing.grace)} (timing.grace)",
        "mend what the check found: it ends the drain by itself when it passes again",
    )


def _abandoned(case: NodeCase, now: float) -> Told:
    """On its way, and no operation has it."""
    why = f": {case.node.reason}" if case.node and case.node.reason else ""
    return Told(
        f"{state(case, now)}{why}; no operation is at it",
        "Springtide removes what is left of it, and it may be started again",
        f"`tide events {case.name}` tells more",
    )
