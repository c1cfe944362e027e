"""Who mends what is wrong, when, and what keeps it from being mended: words, pure.

The stories of nodes and jobs use them, and so does the API for the cluster at a glance.
"""

from collections.abc import Iterable, Mapping, Sequence

from springtide.nodeset import fold
from springtide.story.case import Due, Rest
from springtide.story.telling import Told, by, clock, lasting
from springtide.triage import Batch, Cloud, Owner, Repair, View

REPAIRS: Mapping[Repair, str] = {
    Repair.REST: "",
    Repair.REPORT: "nothing by itself: it needs a person",
    Repair.ADOPT: "Springtide takes it into its record as it is",
    Repair.FORGET: "Springtide counts its start as failed and removes what it left",
    Repair.RETURN: "Springtide counts it as in service again",
    Repair.RELEASE: "Springtide tells Slurm that it may be started again",
    Repair.UNDRAIN: "Springtide ends the drain",
    Repair.PRUNE: "Springtide deletes its other instances",
    Repair.RESUME: "Springtide starts it",
    Repair.SUSPEND: "Springtide deletes its instance",
    Repair.REPAIR: "Springtide removes it and gives its jobs back to the queue",
}
"""What the reconciler does, in plain words."""
SILENCE = (
    "nothing by itself until Slurm gives it up, when SlurmdTimeout is over (300 s, unless set "
    "otherwise): then Springtide removes it and gives its jobs back to the queue"
)
FEW = Rest("Springtide gives up only few nodes that run at once")

_HEARD = (Batch.SERVING, Batch.BUSY)
_GONE = (Cloud.NONE, Cloud.GOING, Cloud.STOPPED, Cloud.BROKEN)


def due_words(due: Due | None, rest: Rest | None, now: float) -> str:
    """What becomes of a trouble; nothing, if it is none."""
    if due is None or not (repair := REPAIRS[due.rule.repair]):
        return ""
    if due.rule.repair is Repair.REPORT:
        return _for_people(due, now)
    when = "" if due.at is None else f"{by(due.at, now)} "
    then = f"{when}{repair}, because {due.rule.why}"
    if rest is None:
        return then
    after = f"after that {then}" if rest.ends else "it needs a person"
    return f"nothing for now: {rest.why}; {after}"


def _for_people(due: Due, now: float) -> str:
    """What nobody mends but a person; at first it is the batch system's turn, perhaps."""
    later = due.at is not None and due.at > now
    person = f"it needs a person if it lasts until {clock(due.at or now, now)} (timing.start)"
    if due.rule.owner is not Owner.BATCH:
        return f"{REPAIRS[Repair.REPORT]}, because {due.rule.why}"
    if Batch.SILENT in due.rule.batch:
        return f"{SILENCE}; {person if later else 'it needs a person'}"
    return (
        f"nothing for now, though {due.rule.why}; {person}"
        if later
        else (f"{REPAIRS[Repair.REPORT]}, because {due.rule.why}")
    )


# --- what keeps repairs ------------------------------------------------------------------------


def maintained(who: str, reason: str, since: float, now: float) -> Rest:
    return Rest(
        f"maintenance since {clock(since, now)} by {who} ({reason})",
        do="`tide maintenance off` has it repaired",
    )


def braked(views: Mapping[str, View]) -> dict[str, Rest]:
    """Why a brake keeps each of these nodes."""
    doubted = [name for name, view in views.items() if is_doubted(view)]
    disbelief = disbelieved(doubted) if doubted else FEW
    return {name: disbelief if name in doubted else FEW for name in views}


def is_doubted(view: View) -> bool:
    """Whether batch system and provider differ on whether a node is there."""
    _, batch, _, cloud = view
    return batch in _HEARD and cloud in _GONE


def disbelieved(names: Sequence[str]) -> Rest:
    listed = fold(names)
    return Rest(
        f"their provider lists no instance of {listed} that runs, but Slurm hears from them; so "
        "many at once are not believed, and nothing is removed",
        ends=False,
        do=f"look whether the provider is well; what is really gone, `tide kill {listed}` removes",
    )


# --- the batch system, and the file --------------------------------------------------------------


def outage(missing: str, rest: Rest | None, every_s: float) -> Told:
    """What becomes of a batch system that does not answer; `missing` is what of it is ours to run
    and does not, in words."""
    if not missing:
        return Told(
            "Slurm does not answer",
            "jobs that run go on; none starts until slurmctld answers",
            "`tide check` finds out what does not run",
        )
    none = ", none starts" if rest is not None else ""
    return _restart(missing, rest, every_s, f"jobs that run go on{none}")


def lacking(missing: str, rest: Rest | None, every_s: float) -> Told:
    """The same of one that answers without it: all that may be away then is the account of jobs."""
    meanwhile = "jobs start and run all the same, and what has to be accounted for is kept"
    return _restart(missing, rest, every_s, meanwhile)


def _restart(missing: str, rest: Rest | None, every_s: float, meanwhile: str) -> Told:
    if rest is not None:
        return Told(
            missing,
            f"nothing by itself: {rest.why}; {meanwhile}",
            "`tide deploy` starts it; or `tide maintenance off`",
        )
    return Told(
        missing,
        f"Springtide starts it again by itself, within {lasting(every_s)} (timing.reconcile), "
        f"after tries in vain more seldom; {meanwhile}",
        "if it does not come back, `tide deploy` tells why",
    )


def drifted(what: str, node: str, hours: Iterable[str] | None, stopped: bool) -> Told:
    """A node that is not as the file says; `hours` are when it may be replaced, None is never."""
    by_hand = "update" if what.startswith("another configuration") else "rebuild"
    do = f"`tide {by_hand} {node}` mends it by hand"
    if hours is None:
        return Told(what, "", do)
    if stopped:
        return Told(
            what,
            "it stays so: nothing more is replaced, as a replacement failed with this file; "
            "another file lets it go on (drift.replace)",
            "`tide operations` shows what failed; then mend the file and `tide apply`",
        )
    if times := ", ".join(hours):
        return Told(
            what,
            f"Springtide replaces it in the hours for that: {times} "
            "(drift.hours, this machine's clock)",
            do,
        )
    return Told(what, "Springtide replaces it, few nodes at once (drift.at_once)", do)
