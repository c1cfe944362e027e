"""What an operation would do: asked of the daemon, and as people read it.

`tide plan` prints it, and every command that changes something shows it first.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer

from springtide.cli import output
from springtide.cli.client import Client, Json
from springtide.model import Kind, Step
from springtide.nodeset import NodeNameError, expand, fold

SHOWN_JOBS = 10
"""So many jobs are named; of the others it is said how many they are."""
SILENT_S = 5.0
"""Nobody is left without a word for longer."""
_HARMED = {"lost": "be lost", "put back into the queue": "start again from the queue"}
"""The fates of jobs that somebody should think twice about."""


def ask(daemon: Client, kind: Kind, names: Sequence[str] | None = None, **options: object) -> Json:
    """What the daemon would do."""
    nodes = None if names is None else fold(names)
    said = {key: 1 if value is True else value for key, value in options.items()}
    with explaining(SILENT_S, "… the daemon asks the batch system, which takes its time"):
        return daemon.get("/plan", operation=kind.value, nodes=nodes, **said)


@contextmanager
def explaining(after_s: float, why: str) -> Iterator[None]:
    """Say why nothing is seen to happen, if that lasts so long."""
    timer = Timer(after_s, output.note, [why])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def render_plan(plan: Json, title: str | None = None) -> str:
    """One operation; `title` if people know it by another name than the daemon."""
    pairs = [("plan", title or plan["operation"])]
    pairs.append(("nodes", f"{plan['count']}: {plan['nodes']}" if plan["count"] else "none"))
    pairs += [(f"now {state}", nodes) for state, nodes in plan["states"].items()]
    pairs += [(f"step {number}", step) for number, step in enumerate(_steps(plan), 1)]
    pairs += [("jobs", text) for text in render_jobs(plan["jobs"])]
    pairs += [("price", text) for text in _prices(plan)]
    pairs += [("note", text) for text in plan["notes"]]
    return output.render_pairs(pairs)


def _steps(plan: Json) -> list[str]:
    """An update without nodes only writes what others read: nothing is drained."""
    without = plan["operation"] == Kind.UPDATE and not plan["count"]
    own = (Step.CONFIGURE_SOFTWARE, Step.WRITE_BATCH_CONFIG)
    return [step for step in plan["steps"] if step in own or not without]


def render_jobs(jobs: list[Json]) -> Iterator[str]:
    """Those that share a fate together, the first few by name."""
    by_fate: dict[str, list[Json]] = {}
    for job in jobs:
        by_fate.setdefault(job["fate"], []).append(job)
    for fate, some in by_fate.items():
        named = ", ".join(_job(job) for job in some[:SHOWN_JOBS])
        more = f" and {len(some) - SHOWN_JOBS} more" if len(some) > SHOWN_JOBS else ""
        yield f"{len(some)} {fate}: {named}{more}"


def _job(job: Json) -> str:
    whose = f" of {job['user']}" if job["user"] else ""
    where = f"on {job['nodes']}" if job["nodes"] else job["state"].lower()
    return f"{job['id']}{whose} {where}"


def _prices(plan: Json) -> Iterator[str]:
    if plan["price_per_hour"] is None or not plan["count"]:
        return
    yield f"{plan['price_per_hour']:g} per hour when all of these nodes are up"
    if change := plan["price_change_per_hour"]:
        yield f"{abs(change):g} per hour {'more' if change > 0 else 'less'} than now"
    elif change is not None:
        yield "as much per hour as now"


def render_changes(foreseen: Json) -> str:
    """What another cluster file changes, and the plans that follow from it."""
    changes = "\n".join(f"change  {output.printable(line)}" for line in foreseen["changes"])
    warnings = "\n".join(f"warning  {output.printable(line)}" for line in foreseen["warnings"])
    plans = map(render_plan, foreseen["plans"])
    return "\n\n".join(filter(None, [changes, *plans, warnings]))


def render_mind(plan: Json) -> str:
    """Whose work would suffer: for the question before it."""
    harmed = [job for job in plan["jobs"] if job["nodes"] and job["fate"] in _HARMED]
    if not harmed:
        return ""
    names = fold({name for job in harmed for name in _names(job["nodes"])}) or "their nodes"
    return f"jobs run on {names} and would {_HARMED[harmed[0]['fate']]}; "


def _names(hostlist: str) -> list[str]:
    """The batch system's; what makes no sense names nobody."""
    try:
        return expand(hostlist)
    except NodeNameError:
        return []
