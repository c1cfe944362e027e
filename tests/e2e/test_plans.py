"""Every operation can be seen before it is begun, and does then what was seen, on a real Slurm."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from springtide.cli.endings import Complaint
from springtide.model import PLANS, Kind
from tests.e2e.by_hand import instances, started, tide
from tests.e2e.real import LIMIT_S, RealCluster, cluster, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

SPEC = """
cluster: seen
batch: {kind: slurm, port: 16987, node_port: 16988}
provider: {kind: containers, mounts: [SHARED]}
flavors: {small: {cpus: 1, memory: 256M, price: 0.25}}
groups:
  general: {nodes: "p-[1-6]", min: 3, flavors: [small]}
timing: {idle: 3600s, start: 120s, stop: 30s}
"""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    with cluster(SPEC) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def job(real: RealCluster) -> str:
    """It runs on p-2 all the time."""
    return started(real, "sleep 600", "-w", "p-2")


def known(real: RealCluster) -> tuple[list[Json], list[Json], dict[str, str], str]:
    """All that an operation would change; what befalls the batch system meanwhile is no part."""
    operations = real.client.get("/operations", limit=1000)["operations"]
    events = [event for event in real.events() if event["operation"] or event["node"]]
    return operations, events, instances(real), real.file.read_text()


def plans(real: RealCluster, *arguments: str) -> list[Json]:
    """What `tide plan … --json` answers: one plan, or all that follow from another file."""
    done = real.tide("plan", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    found: list[Json] = answer.get("plans", [answer])
    return found


def fates(plan: Json) -> dict[str, str]:
    return {job["id"]: job["fate"] for job in plan["jobs"]}


@pytest.mark.accepts("X6", "C27")
@pytest.mark.parametrize(
    ("words", "kind", "nodes", "fate", "prices"),
    [
        (["resume", "p-5"], "resume", "p-5", None, (0.25, 0.25)),
        (["suspend", "p-2"], "suspend", "p-2", "waited for", (0.25, -0.25)),
        (["resize", "general=5"], "enlarge", "p-[4-5]", None, (0.5, 0.5)),
        (["resize", "general=1"], "shrink", "p-[2-3]", "waited for", (0.5, -0.5)),
        (["rebuild", "p-[2-3]", "--force"], "rebuild", "p-[2-3]", "waited for", (0.5, 0.0)),
        (["update"], "update", "p-[1-3]", "waited for", (0.75, 0.0)),
        (["stop"], "stop", "p-[1-6]", "waited for", (1.5, -0.75)),
        (["stop", "--now"], "stop", "p-[1-6]", "put back into the queue", (1.5, -0.75)),
        (["kill", "p-2"], "suspend", "p-2", "put back into the queue", (0.25, -0.25)),
        (["destroy"], "destroy", "p-[1-6]", "lost", (1.5, -0.75)),
        (["deploy"], "deploy", "p-[1-3]", None, (0.75, 0.0)),
    ],
)
def test_a_plan_tells_nodes_steps_jobs_and_price_and_changes_nothing(
    real: RealCluster,
    job: str,
    words: list[str],
    kind: str,
    nodes: str,
    fate: str | None,
    prices: tuple[float, float],
) -> None:
    before = known(real)
    (plan,) = plans(real, *words)
    assert plan["nodes"] == nodes
    assert plan["steps"] == [step.value for step in PLANS[Kind(kind)]]
    assert fates(plan) == ({job: fate} if fate else {})
    assert (plan["price_per_hour"], plan["price_change_per_hour"]) == prices

    file = [str(real.file)] if words == ["deploy"] else []
    for shown in (tide(real, "plan", *words), tide(real, *words, *file, "--dry-run")):
        assert nodes in shown
        assert all(step in shown for step in plan["steps"])
        assert f"{prices[0]:g} per hour" in shown
        assert (f"1 {fate}: {job} of root on p-2" if fate else "step") in shown
    assert known(real) == before


COMMANDS = [
    (["resume", "p-5"], []),
    (["suspend", "p-5"], []),
    (["resize", "general=4"], ["--yes"]),
    (["resize", "general=3"], ["--yes"]),
    (["rebuild", "p-[1-2]", "--force"], ["--yes"]),
    (["rebuild", "p-3", "--force"], ["--direct", "--yes"]),
    (["update", "p-[1-3]"], ["--batch", "2", "--yes"]),
    (["kill", "p-3"], ["--yes"]),
    (["stop"], ["--yes"]),
    (["start"], []),
]


@pytest.mark.accepts("E23", "E24")
def test_each_operation_takes_exactly_the_steps_of_its_plan(real: RealCluster) -> None:
    """The last one here: at its end the cluster is destroyed."""
    real.slurm("scancel", "--user", "root")
    until(lambda: not real.slurm("squeue", "-h").strip())
    told: dict[str, list[Json]] = {}
    for words, answers in COMMANDS:
        foreseen = {plan["operation"]: plan["nodes"] for plan in plans(real, *words)}
        opened = [one for one in done_by(real, *words, *answers) if one["kind"] in foreseen]
        assert {one["kind"]: one["nodes"] for one in opened} == foreseen
        assert {one["state"] for one in opened} == {"done"}
        told |= {one["kind"]: real.events(operation=one["id"]) for one in opened}
        for kind, story in told.items():
            assert [e["what"] for e in story][:: len(story) - 1] == [
                "operation started",
                "operation ended",
            ], kind
    with heard(real) as last_words:
        tide(real, "destroy", "--yes")
    told["destroy"] = of_destroy(last_words)

    assert told.keys() == {*Kind} - {Kind.REPAIR}
    for kind, story in told.items():
        steps, table = steps_of(story), [step.value for step in PLANS[Kind(kind)]]
        rounds = 2 if kind == "update" else 1
        assert steps == table * rounds, kind
        assert [e["at"] for e in story] == sorted(e["at"] for e in story)
        assert len({e["operation"] for e in story}) == 1


def done_by(real: RealCluster, *words: str) -> list[Json]:
    """The operations of a command, at their end: the first of each kind since, for Slurm may ask
    for the same once more when nodes are powered down. `tide suspend` and `tide resume` wait for
    nodes, which are off or ready before the last step."""
    (last,) = real.client.get("/operations", limit=1)["operations"]
    tide(real, *words)
    newest = real.client.get("/operations", limit=10)["operations"]
    firsts: dict[str, Json] = {one["kind"]: one for one in newest if one["id"] > last["id"]}
    return [real.ended(one["id"]) for one in firsts.values()]


def of_destroy(events: list[Json]) -> list[Json]:
    """What belongs to it; Slurm may still ask for something when nodes are powered down."""
    begun = (e for e in events if e["what"] == "operation started")
    (id,) = (e["operation"] for e in begun if e["detail"].startswith("destroy "))
    return [e for e in events if e["operation"] == id]


def steps_of(story: list[Json]) -> list[str]:
    return [e["detail"] for e in story if e["what"] == "step done"]


@contextmanager
def heard(real: RealCluster) -> Iterator[list[Json]]:
    """What the daemon tells meanwhile, until it is gone with its record; before that, the last that
    it told before, which shows that somebody listens."""
    lines = real.client.lines("/events", after=real.events()[-1]["id"] - 1, follow=1)
    events: list[Json] = []

    def listen() -> None:
        with suppress(Complaint):
            events.extend(lines)

    thread = threading.Thread(target=listen)
    thread.start()
    until(lambda: events)
    yield events
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "the daemon tells on and on"
