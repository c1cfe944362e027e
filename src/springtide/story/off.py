"""Why a node is off, and what would start it. Pure; `node` calls it."""

from collections.abc import Callable

from springtide.failures import UNCONFIGURED, is_unconfigured
from springtide.model import NodeState
from springtide.ports import Power
from springtide.story.case import NodeCase
from springtide.story.drained import drain_of, drained_once, persons
from springtide.story.past import is_booted
from springtide.story.telling import Told, build, held, held_alone, lasting
from springtide.story.underway import jobs

RUNS = "the newest `ansible/run-*` of the state directory has all that Ansible said"


def off_situation(case: NodeCase) -> Callable[[NodeCase, float], Told]:
    """The first that fits."""
    if case.person:
        return _off_and_drained
    if drain_of(case):
        return drained_once
    if case.held is not None:
        return _off_and_held
    if case.too_many:
        return _off_by_calendar
    power = case.seen.power if case.seen else None
    if power is Power.GOING_UP:
        return _off_and_wanted
    if power is Power.GOING_DOWN:
        return _off_and_leaving
    return _off_though_always_up if case.always_up else _off


def _off(case: NodeCase, now: float) -> Told:
    listed = ", ".join(f"{one.id}, {one.state}" for one in case.instances)
    has = f", but its provider lists an instance ({listed})" if listed else " and has no instance"
    return Told(
        f"{case.name} is off{has}{_failure(case)}",
        "Slurm starts it when a job needs it",
        f"{_log(case)}{_by_hand(case)}",
    )


def _by_hand(case: NodeCase) -> str:
    """A resume runs no Ansible."""
    resume = f"`tide resume {case.name}`"
    if _lacks_software(case):
        return f"{resume} would start it without what Ansible was to give it"
    return f"{resume} starts it by hand"


def _lacks_software(case: NodeCase) -> bool:
    return case.node is not None and is_unconfigured(case.node.reason)


def has_failed(case: NodeCase) -> bool:
    """Whether it is off because its last start failed."""
    return case.node is not None and case.state is NodeState.OFF and bool(case.node.reason)


def _failure(case: NodeCase) -> str:
    return f"; its last start failed: {case.node.reason}" if case.node and case.node.reason else ""


def _log(case: NodeCase) -> str:
    """Where the cause of a failed boot may be found, or what it lacks."""
    if case.unbuilt:
        return f"{build(case.unbuilt)}; "
    if case.node is not None and case.node.reason.startswith(UNCONFIGURED):
        return f"{RUNS}; "
    failed = case.node is not None and case.node.reason and is_booted(case.events, case.name)
    return f"`tide log {case.name}` shows what it said while it booted; " if failed else ""


def _off_though_always_up(case: NodeCase, now: float) -> Told:
    then = f"Springtide starts it by itself within {lasting(case.timing.reconcile)}"
    at_once = f"`tide resume {case.name}` starts it at once"
    if case.rest is not None:
        then = f"nothing for now: {case.rest.why}; after that {then}"
    return Told(
        f"{_off(case, now).now}, though the cluster file wants it {kept(case)}",
        f"{then} (timing.reconcile)",
        _log(case).removesuffix("; ") if _lacks_software(case) else _log(case) + at_once,
    )


def _off_and_drained(case: NodeCase, now: float) -> Told:
    return Told(f"{case.name} is off, and {case.wish}", *persons(case))


def _off_and_held(case: NodeCase, now: float) -> Told:
    assert case.held is not None
    assert case.node is not None
    group, hold = case.node.group, case.held
    what = "it is not" if hold.alone else f"no node of group {group} is"
    then = held_alone if hold.alone else held
    return Told(
        f"{case.name} is off, and {what} started now{_failure(case)}",
        then(case.name if hold.alone else group, hold.why, hold.until, now),
        f"{_log(case)}when the cause is gone, `tide holds --lift {hold.key or group}` has it "
        "tried at once",
    )


def _off_by_calendar(case: NodeCase, now: float) -> Told:
    wanted = f" ({case.calendar})" if case.calendar else ""
    soon = f"it takes jobs again within {lasting(case.timing.reconcile)} (timing.reconcile)"
    return Told(
        f"{case.name} is off, and by the calendar no further node of its group is started{wanted}",
        f"{'it may be started' if case.full else soon} after that, or when another one has gone",
        "`tide schedule show` tells what holds until when; for more nodes, change `calendar` in "
        "the cluster file and run `tide apply`",
    )


def kept(case: NodeCase) -> str:
    return f"up now by the calendar ({case.calendar})" if case.calendar else "always up"


def _off_and_wanted(case: NodeCase, now: float) -> Told:
    whom = f" for {jobs(case)}" if case.jobs else ""
    stands = f"{case.name} is off, and Slurm has asked for it{whom}{_failure(case)}"
    if has_failed(case):
        more = _log(case).removesuffix("; ") or f"`tide events {case.name}` tells more"
        return Told(stands, "Springtide tries it again by itself", more)
    return Told(
        stands,
        "Springtide starts it within seconds",
        "if nothing happens, `tide check` finds out whether Slurm's programs run",
    )


def _off_and_leaving(case: NodeCase, now: float) -> Told:
    return Told(
        f"{case.name} is off; Slurm still counts it as powering down",
        f"Slurm counts it as off at the latest {lasting(case.timing.stop)} (timing.stop) after it "
        "began with that; then a job can have it",
    )
