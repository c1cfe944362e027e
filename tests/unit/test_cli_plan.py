"""`tide plan`: what every operation would do, with nothing done."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from springtide.cli import output
from springtide.cli.endings import Exit
from springtide.cli.foresight import explaining, render_changes, render_mind, render_plan
from springtide.model import PLANS, Kind, Step
from tests.unit.cli_world import LONG_S, SPEC, World, run, served, wait_until

PRICED = SPEC.replace(
    "images:", "flavors: {default: {cpus: 1, memory: 256M, price: 0.5}}\nimages:"
).replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 2')


def planned(**changes: Any) -> dict[str, Any]:
    plan = {"operation": "stop", "nodes": "c[1-2]", "count": 2, "steps": ["a"], "states": {}}
    plan |= {"jobs": [], "price_per_hour": None, "price_change_per_hour": None, "notes": []}
    return {**plan, **changes}


def job(id: int, fate: str = "waited for", **changes: Any) -> dict[str, Any]:
    one = {"id": str(id), "user": "ann", "state": "RUNNING", "nodes": f"c{id}", "fate": fate}
    return {**one, **changes}


# --- what people read ----------------------------------------------------------------------


@pytest.mark.accepts("E23")
def test_the_table_that_is_printed_is_the_one_of_the_code() -> None:
    lines = run("--state", "/nowhere", "plan").out.splitlines()
    kinds = [Kind(word.lower()) for word in lines[0].split()[1:]]
    assert kinds == list(PLANS)
    for line, step in zip(lines[1:], Step, strict=True):
        marks = line.removeprefix(step.value).split()
        assert marks == ["x" if step in PLANS[kind] else "-" for kind in kinds]
    table = json.loads(run("--state", "/nowhere", "plan", "--json").out)
    assert table["operations"] == {kind: list(steps) for kind, steps in PLANS.items()}


def test_ten_jobs_are_named_and_the_others_counted() -> None:
    text = render_plan(planned(jobs=[job(number) for number in range(1, 13)]))
    assert "jobs    12 waited for: 1 of ann on c1, 2 of ann on c2," in text
    assert text.endswith("10 of ann on c10 and 2 more")


def test_jobs_are_told_by_what_becomes_of_them() -> None:
    waits = job(3, "kept in the queue", nodes="", state="PENDING", user="")
    lines = render_plan(planned(jobs=[job(1), waits])).splitlines()
    assert lines[-2:] == [
        "jobs    1 waited for: 1 of ann on c1",
        "jobs    1 kept in the queue: 3 pending",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [(0.5, "0.5 per hour more than now"), (-2, "2 per hour less"), (0.0, "as much per hour")],
)
def test_the_price_is_told_now_and_after(change: float, said: str) -> None:
    text = render_plan(planned(price_per_hour=1.5, price_change_per_hour=change))
    assert "1.5 per hour when all of these nodes are up" in text
    assert said in text


def test_a_price_that_is_not_known_is_not_invented() -> None:
    assert "price" not in render_plan(planned(price_change_per_hour=0.0))


def test_what_others_wrote_cannot_disturb_a_terminal() -> None:
    text = render_changes({"changes": ["a: \x1b[31m → b"], "plans": [], "warnings": []})
    assert text == "change  a: \\x1b[31m → b"


def test_only_work_that_suffers_is_worth_a_second_thought() -> None:
    assert render_mind(planned(jobs=[job(1), job(2, "kept in the queue")])) == ""
    assert "c[1-2] and would be lost" in render_mind(planned(jobs=[job(1, "lost"), job(2, "lost")]))
    again = render_mind(planned(jobs=[job(1, "put back into the queue")]))
    assert again == "jobs run on c1 and would start again from the queue; "
    strange = render_mind(planned(jobs=[job(1, "lost", nodes="c[1")]))
    assert strange == "jobs run on their nodes and would be lost; "


# --- what the daemon foresees --------------------------------------------------------------


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two of four nodes are always up, and a job runs on the first."""
    with served(PRICED) as world:
        world.submit(1, seconds=LONG_S)
        wait_until(lambda: "RUNNING" in world.run("plan", "destroy", "--json").out)
        yield world


@pytest.mark.parametrize(
    ("words", "kind", "nodes", "said"),
    [
        (["deploy"], "deploy", "c[1-2]", "as much per hour as now"),
        (["start"], "deploy", "c[1-2]", "plan       start"),
        (["resume", "c[3-4]"], "resume", "c[3-4]", "1 per hour more than now"),
        (["suspend", "c1"], "suspend", "c1", "1 waited for: 1 on c1"),
        (["rebuild"], "rebuild", "", "nodes   none"),
        (["rebuild", "--force"], "rebuild", "c[1-2]", "c[1-2]: as it should be"),
        (["rebuild", "c[1-2]", "--image", "new"], "rebuild", "c[1-2]", "image host instead of new"),
        (["rebuild", "--force", "--partition", "main"], "rebuild", "c[1-2]", "1 waited for"),
        (["update"], "update", "c[1-2]", "1 waited for"),
        (["update", "c[2-4]"], "update", "c2", "configure software"),
        (["stop"], "stop", "c[1-4]", "1 waited for"),
        (["stop", "--now"], "stop", "c[1-4]", "1 put back into the queue"),
        (["kill", "--all"], "suspend", "c[1-4]", "1 put back into the queue"),
        (["kill", "c2"], "suspend", "c2", "0.5 per hour less than now"),
        (["kill", "--prefix", "c"], "suspend", "c[1-4]", "plan       kill"),
        (["destroy"], "destroy", "c[1-4]", "1 lost"),
    ],
)
def test_every_operation_can_be_foreseen(
    world: World, words: list[str], kind: str, nodes: str, said: str
) -> None:
    before = world.operations(), world.file.read_text()
    plan = json.loads(world.run("plan", *words, "--json").out)
    assert (plan["operation"], plan["nodes"]) == (kind, nodes)
    assert plan["steps"] == list(PLANS[Kind(kind)])
    assert said in world.run("plan", *words).out
    assert (world.operations(), world.file.read_text()) == before


def test_another_size_can_be_foreseen(world: World) -> None:
    before = world.operations(), world.file.read_text()
    foreseen = json.loads(world.run("plan", "resize", "general=3", "--json").out)
    assert foreseen["changes"] == ["groups.general.min: 2 → 3"]
    assert [(plan["operation"], plan["nodes"]) for plan in foreseen["plans"]] == [("enlarge", "c3")]
    smaller = json.loads(world.run("plan", "resize", "general=0", "--json").out)
    assert [(plan["operation"], plan["nodes"]) for plan in smaller["plans"]] == [
        ("shrink", "c[1-2]")
    ]
    assert smaller["plans"][0]["jobs"][0]["fate"] == "waited for"
    assert "0.5 per hour more" in world.run("plan", "resize", "general=3").out
    assert (world.operations(), world.file.read_text()) == before


def test_another_file_can_be_foreseen(world: World) -> None:
    other = world.file.with_name("next.yaml")
    other.write_text(world.file.read_text().replace("min: 2", "min: 4"))
    done = world.run("plan", "apply", str(other))
    assert done.code == 0
    assert "change  groups.general.min: 2 → 4" in done.out
    assert "c[3-4]" in done.out
    assert world.run("plan", "apply").out == "all is as the file says: nothing would change\n"
    assert json.loads(world.run("plan", "apply", "--json").out)["plans"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explode"], "known are deploy, resume, suspend, enlarge"),
        (["resume"], "resume needs a host list"),
        (["shrink"], "shrink needs a host list"),
        (["stop", "c1"], "stop is about the whole cluster; leave out c1"),
        (["suspend", "c1", "c2"], "name one host list, not 2"),
        (["apply", "a", "b"], "name one file, not 2"),
        (["apply", "/nowhere/x.yaml"], "there is no such file"),
        (["resize"], "resize needs sizes"),
        (["rebuild", "c1", "--image", "gone"], "there is no image gone; the cluster file has"),
        (["rebuild", "--partition", "gone"], "there is no partition 'gone'; known are main"),
        (["stop", "--image", "new"], "stop has no option 'image'"),
        (["kill"], "kill needs a HOSTLIST, or --all, or --prefix"),
        (["kill", "--prefix", ""], "an empty prefix would mean every node"),
    ],
)
def test_wrong_usage_is_told(world: World, words: list[str], said: str) -> None:
    done = world.run("plan", *words)
    assert done.code == Exit.WRONG
    assert said in done.err


def test_without_a_daemon_there_is_only_the_table() -> None:
    assert run("--state", "/nowhere", "plan", "stop").code == Exit.AWAY


def test_a_question_that_takes_long_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    said, answered = list[str](), threading.Event()

    def hear(text: str) -> None:
        said.append(text)
        answered.set()

    monkeypatch.setattr(output, "note", hear)
    with explaining(0.0, "… it takes its time"):
        assert answered.wait(60)
    assert said == ["… it takes its time"]
    with explaining(3600.0, "… it takes its time"):
        pass
    assert len(said) == 1


def test_an_update_without_nodes_does_not_speak_of_drains() -> None:
    steps = list(PLANS[Kind.UPDATE])
    some = render_plan(planned(operation="update", steps=steps))
    none = render_plan(planned(operation="update", steps=steps, nodes="", count=0))
    assert "drain" in some
    assert "drain" not in none
    assert "write batch config, reload" in none
