"""Why a job waits, or what became of it. Pure; called by the API."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from springtide.model import STARTING, Kind, NodeState, Operation
from springtide.nodeset import expand, fold
from springtide.ports import Job
from springtide.story.case import JobCase
from springtide.story.past import is_booted, told
from springtide.story.queue import WAITS
from springtide.story.telling import (
    MOST_TOLD,
    Story,
    Told,
    build,
    by,
    causes,
    clock,
    held,
    held_alone,
    jobs_of,
    lasting,
    loss,
    named,
    sentence,
    setback,
    since,
)
from springtide.story.troubles import due_words
from springtide.story.waiting import lacking, unneeded
from springtide.triage import Repair

LAUNCH_S = 30.0
"""slurmctld may take so long to launch a job whose nodes are there."""


def is_for(operation: Operation, job: str) -> bool:
    """Whether an operation was asked for on behalf of a job, among others perhaps."""
    return job in jobs_of(operation)


def nodes_asked(operation: Operation, job: str) -> tuple[tuple[str, ...], bool]:
    """The nodes that it was to start for a job; and whether some may be for other jobs."""
    wide = operation.options.get("wide", {})
    if job in wide:
        return tuple(expand(wide[job])), False
    if len(jobs_of(operation)) < 2:
        return operation.nodes, False
    others = {name for nodes in wide.values() for name in expand(nodes)}
    rest = tuple(name for name in operation.nodes if name not in others)
    return rest, len(rest) > 1


def job_story(now: float, case: JobCase, most: int | None = MOST_TOLD) -> Story:
    """The story of a job."""
    known = {operation.id: operation for operation in case.operations}
    tale = _tell(case, now)
    past = told(case.events, known, most)
    return Story(f"job {case.id}", sentence(tale.now), past, sentence(tale.next), tale.do)


def _tell(case: JobCase, now: float) -> Told:
    if case.job is None:
        return _unseen(case, now)
    match case.job.state:
        case "PENDING":
            return _pending(case, case.job, now)
        case "CONFIGURING":
            return _configuring(case, case.job, now)
        case "RUNNING":
            return _running(case, case.job, now)
        case "COMPLETING":
            return _completing(case, case.job)
        case other:
            return _shown_as(case, other)


def _shown_as(case: JobCase, state: str) -> Told:
    return Told(
        f"Slurm shows job {case.id} as {state}",
        "that is Slurm's to decide",
        f"`scontrol show job {case.id}` tells more",
    )


ENDS: Mapping[str, str] = {
    "BOOT_FAIL": "failed, as its nodes did not boot",
    "CANCELLED": "was cancelled",
    "COMPLETED": "completed",
    "DEADLINE": "was ended at its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "failed with a node of it",
    "OUT_OF_MEMORY": "was killed because it used too much memory",
    "PREEMPTED": "was ended for another job",
    "REVOKED": "was revoked, as it runs in another cluster",
    "TIMEOUT": "was ended at its time limit",
}
"""What the states mean of jobs that are over."""


def _over(case: JobCase, job: Job, ours: str, now: float) -> Told:
    """Slurm keeps it for a while; why it failed is said, why it had waited is not."""
    if job.state not in ENDS:
        return _shown_as(case, job.state)
    at = f" at {clock(job.ended_at, now)}" if job.ended_at else ""
    why = f" (Slurm: {job.reason})" if job.reason and job.state == "FAILED" else ""
    where = f" on {job.nodes}" if job.nodes else ""
    return Told(
        _joined(f"job {case.id} {ENDS[job.state]}{at}{where}{why}", ours),
        "nothing",
        f"`scontrol show job {case.id}` tells more, as long as Slurm keeps it",
    )


def _unseen(case: JobCase, now: float) -> Told:
    """Slurm does not tell of it."""
    last = case.last
    ours = f"the last that Springtide did for it is {named(last)}, {last.state}" if last else ""
    if case.closed:
        known = f"; {ours}" if ours else ""
        return Told(f"no job runs: {case.closed}{known}", "jobs that wait stay in the queue")
    if case.silent:
        known = ours or "nothing in our record was done for it"
        away = case.outage or Told("Slurm does not answer")
        stands = f"{away.now}, so how job {case.id} stands is not known; {known}"
        return Told(stands, away.next, away.do)
    if case.over is not None:
        return _over(case, case.over, ours, now)
    if "_" in case.id:
        return Told(
            f"Springtide knows the tasks of arrays by numbers of their own, not as {case.id}",
            "",
            f"`squeue -h -j {case.id} -o %A` prints the number; ask with that",
        )
    return Told(
        f"Slurm knows no job {case.id} any more; "
        + (ours or "no node was started for it: it is over, or never was"),
        "nothing",
        f"`sacct -j {case.id}` knows more, if an account of jobs is kept",
    )


def _completing(case: JobCase, job: Job) -> Told:
    """It has ended, or lost a node and goes back to the queue: Slurm shows both alike."""
    where = f" on {job.nodes}" if job.nodes else ""
    if lost := _setback(case, replace(job, reason="")):
        return Told(
            f"{lost}; Slurm still cleans up{where}",
            "it is in the queue again when that is done, within seconds as a rule",
            _boot_log(case),
        )
    return Told(
        f"job {case.id} has stopped; Slurm cleans up after it{where}",
        "then it is over, or in the queue again if it was put back there",
    )


HOLDS = "`tide holds` tells what is not tried for now and why, and lifts it"

# --- waiting in the queue ------------------------------------------------------------------------


def _pending(case: JobCase, job: Job, now: float) -> Told:
    """Slurm's reason, a start that failed, and groups that are held, whichever there are."""
    if case.wait is not None and (settled := unneeded(case, job, case.wait)):
        return settled
    wait = _awaited(case, job, now)
    setback = _setback(case, job)
    stands = f"{setback or f'job {case.id} waits: {wait.now}'}{_by_calendar(case)}"
    look = build(case.unbuilt) if case.unbuilt else _boot_log(case)
    advice = look or (HOLDS if setback and case.held else wait.do)
    if case.closed:
        return Told(f"{stands}; nothing is started: {case.closed}", "nothing until then")
    ours = {group: hold for group, hold in case.held.items() if group in case.groups}
    holds = [held(group, hold.why, hold.until, now) for group, hold in ours.items()]
    free = [group for group in case.groups if group not in ours]
    if not holds:
        return _with_held_nodes(case, Told(stands, wait.next, advice), look, now)
    if free:
        elsewhere = f"; Slurm may start it on {', '.join(free)}"
        return Told(stands, "; ".join(holds) + elsewhere, advice)
    keys = [hold.key or group for group, hold in ours.items()]
    lift = f"when the cause is gone, `tide holds --lift {keys[0]}` has one node tried at once"
    return Told(stands, "; ".join(holds), _joined(look, lift))


def _with_held_nodes(case: JobCase, tale: Told, look: str, now: float) -> Told:
    """Of several, the first to be tried again."""
    found = sorted(case.held_nodes.items(), key=lambda one: one[1].until)
    if not found:
        return tale
    (name, hold), more = found[0], len(found) - 1
    others = f"; {more} more {'is' if more == 1 else 'are'} held too" if more else ""
    then = f"{held_alone(name, hold.why, hold.until, now)}{others}"
    lift = f"when the cause is gone, `tide holds --lift {hold.key}` has it tried at once"
    rest = tale.next and f"otherwise {tale.next}"
    return Told(tale.now, _joined(then, rest), _joined(look, lift))


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _by_calendar(case: JobCase) -> str:
    """That there may be no more nodes for it now."""
    told = [
        f"{group} has {case.calendar[group]}" for group in case.groups if group in case.calendar
    ]
    return f"; by the calendar {', '.join(told)}" if told else ""


def _awaited(case: JobCase, job: Job, now: float) -> Told:
    """What it waits for: Slurm says it itself, of a polled batch system we decide."""
    if case.wait is None:
        return _exhausted(case, job) or _in_plain_words(job)
    if case.wait.starting and not case.wait.short:
        return _coming(case, case.wait.starting, now)
    return lacking(job, case.wait)


def _coming(case: JobCase, names: Sequence[str], now: float) -> Told:
    """Nodes start for it that it has not got yet."""
    stands = f"{fold(names)} must start first; {_step(case, now)}"
    return Told(stands, _arrival(case, now), f"`tide why {names[0]}` tells more")


def _exhausted(case: JobCase, job: Job) -> Told | None:
    """Every node that may exist is there and in use; nothing can be started for it."""
    if job.reason != "Resources" or not case.pools or set(case.pools) != set(case.groups):
        return None
    pools = ", ".join(f"the pool of {count} of {group}" for group, count in case.pools.items())
    key = next(iter(case.pools))
    return Told(
        f"{pools} is exhausted, all nodes are up and in use (Slurm: {job.reason})",
        "Slurm starts it when other jobs have ended",
        f"more names in groups.{key}.nodes, and `tide apply`, make room for more nodes",
    )


def _boot_log(case: JobCase) -> str:
    """Where the cause of a failed boot may be found; of a node that broke there is none."""
    fallen = {} if _broken(case) else _fallen(case)
    name = next((name for name in fallen if is_booted(case.events, name)), None)
    return f"`tide log {name}` shows what {name} said while it booted" if name else ""


def _in_plain_words(job: Job) -> Told:
    """Slurm's reason; what follows a comma or colon in it is particular, such as names of nodes."""
    word = job.reason.partition(",")[0].partition(":")[0].strip()
    known = WAITS.get(word)
    if known is None:
        said = job.reason or "Slurm has not said why yet"
        return Told(said, "Slurm starts it when that has changed", f"`scontrol show job {job.id}`")
    slurms = f" (Slurm: {job.reason})" if job.reason else ""
    return Told(f"{known.now}{slurms}", known.next, known.do.replace("JOB", job.id))


def _setback(case: JobCase, job: Job) -> str:
    """That nodes could not start, or broke, and why: in the words that it was told itself."""
    broken = _broken(case)
    fallen = broken or _fallen(case)
    if not fallen:
        return ""
    names, why = list(fallen), next(iter(fallen.values()))
    slurms = f" (Slurm: {job.reason})" if job.reason else ""
    if broken:
        return f"{loss(names, why)}{slurms}"
    if case.shared:
        others = "nodes that were asked for, for it and other jobs"
        return f"job {case.id} waits; of {others}, {fold(names)} could not start: {why}{slurms}"
    return f"{setback(names, why)}{slurms}"


def _broken(case: JobCase) -> dict[str, str]:
    """Nodes that were repaired under it, and why: the reason of a repair lists it by nodes."""
    last, ours = case.last, {node.name for node in case.nodes}
    if last is None or last.kind is not Kind.REPAIR:
        return {}
    reasons = causes(last)
    return {name: why for name, why in reasons.items() if name in ours and name in last.standing}


def _fallen(case: JobCase) -> dict[str, str]:
    """Nodes of its last start that could not start; their events know of causes found later."""
    last, ours = case.last, {node.name for node in case.nodes}
    if last is None:
        return {}
    causes = {
        event.node: event.detail
        for event in case.events
        if event.what == "node failed" and event.operation == last.id
    }
    fallen = {name: why for name, why in last.fallen.items() if name in ours}
    return {name: causes.get(name) or why for name, why in fallen.items()}


# --- its nodes start -------------------------------------------------------------------------


def _configuring(case: JobCase, job: Job, now: float) -> Told:
    missing = [node.name for node in case.nodes if node.state is not NodeState.READY]
    if not missing and (ill := _ill(case)):
        return _endangered(case, f"job {case.id} has its nodes ({job.nodes})", ill, now)
    if not missing:
        return Told(
            f"job {case.id} has its nodes ({job.nodes}), and all are in service",
            f"Slurm launches it, at the latest {LAUNCH_S:.0f} s after the last node came",
        )
    count = len(case.nodes)
    of = f", {count - len(missing)} of {count} are in service" if count > 1 else ""
    return Told(
        f"job {case.id} waits for {fold(missing)} to start{of}; {_step(case, now)}",
        _arrival(case, now),
        f"`tide why {missing[0]}` tells more",
    )


def _step(case: JobCase, now: float) -> str:
    """Since when, and how far that is."""
    last = case.last
    if last is None or last.state.finished:
        return "no operation is at it"
    if last.started_at is None:
        return f"{named(last)} waits for its turn {since(last.created_at, now)}"
    step = f", at `{last.step}`" if last.step else ""
    return f"{named(last)} is at work {since(last.started_at, now)}{step}"


def _arrival(case: JobCase, now: float) -> str:
    """When its nodes are expected, and what if they do not come."""
    began = min((n.changed_at for n in case.nodes if n.state in STARTING), default=now)
    last = case.last
    asked_at = began if last is None else last.created_at
    usual = "it runs as soon as they are in service"
    if case.usual_s is not None:
        due = by(asked_at + case.usual_s, now)
        usual = f"{usual}, {due}: a start takes {lasting(case.usual_s)} as a rule"
    late = clock(asked_at + case.start_s, now)
    return f"{usual}; nodes that are not by {late} (timing.start) are removed, and it waits again"


def _running(case: JobCase, job: Job, now: float) -> Told:
    at = f" {since(case.running_since, now)}" if case.running_since else ""
    gone = [n.name for n in case.nodes if n.state in (NodeState.FAILED, NodeState.DELETING)]
    if gone:
        why = _broken(case).get(gone[0], "")
        return Told(
            f"job {case.id} runs on {job.nodes}{at}, but {fold(gone)} is going{why and f': {why}'}",
            "Slurm puts it back into the queue when it misses the node",
            f"`tide why {gone[0]}` tells more",
        )
    if ill := _ill(case):
        return _endangered(case, f"job {case.id} runs on {job.nodes}{at}", ill, now)
    return Told(
        f"job {case.id} runs on {job.nodes}{at}",
        "nothing by Springtide: its nodes stay until it has ended",
    )


_PARTING = (Repair.REPAIR, Repair.SUSPEND, Repair.REPORT)


def _ill(case: JobCase) -> list[str]:
    """Nodes of it with a trouble that may end it; those with the same as the first."""
    found = [name for name, due in case.dues.items() if due.rule.repair in _PARTING]
    return [name for name in found if case.dues[name].rule is case.dues[found[0]].rule]


def _endangered(case: JobCase, stands: str, ill: Sequence[str], now: float) -> Told:
    """What is told of its node is told of it."""
    due, rest = case.dues[ill[0]], case.rests.get(ill[0])
    return Told(
        f"{stands}, but {fold(ill)} is not well: {due.rule.why}",
        f"{ill[0]}: {due_words(due, rest, now)}",
        f"`tide why {ill[0]}` tells more",
    )
