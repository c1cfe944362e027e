"""What people see: times, tables, folded nodes and events, plans and operations."""

from typing import Any

import pytest

from springtide.cli import output
from springtide.cli.events import recent, render_events
from springtide.cli.nodes import render_rows
from springtide.cli.operations import render_fallen, render_operation, row
from springtide.cli.parameters import parse_duration
from springtide.cli.plan import render_steps
from springtide.cli.status import render_status
from springtide.model import PLANS, Step
from tests.unit.cli_world import run

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (9.4, "9s"), (59, "59s"), (180, "3m"), (7200, "2h"), (200_000, "2d"), (-5, "0s")],
)
def test_ages_are_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert output.render_age(NOW - seconds, NOW) == f"{text} ago"


def test_what_never_happened_has_no_age() -> None:
    assert output.render_age(0, NOW) == output.render_age(None, NOW) == ""
    assert output.render_ages([0.0, 0.0], NOW) == ""


def test_ages_of_several_go_from_the_youngest_to_the_oldest() -> None:
    assert output.render_ages([NOW - 60, NOW - 7200, 0.0], NOW) == "1m–2h ago"
    assert output.render_ages([NOW - 60, NOW - 61], NOW) == "1m ago"


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        assert output.render_time(0.1) == "1970-01-01 12:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_plain_table_has_nothing_but_columns() -> None:
    text = output.render_plain(("id", "name"), [["1", "a"], ["100", "b c"]])
    assert text.splitlines() == ["ID   NAME", "1    a", "100  b c"]


def test_text_from_outside_cannot_disturb_a_terminal() -> None:
    assert output.printable("broken\n  \x1b[31mred\x00") == "broken \\x1b[31mred\\x00"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5m", 90), ("2h", 7200), (None, None)]
)
def test_durations_have_units(text: str | None, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


# --- nodes -------------------------------------------------------------------------------


def node(name: str, **changes: Any) -> dict[str, Any]:
    batch = {"state": "IDLE", "flags": ["CLOUD", "POWERED_DOWN"], "reason": ""}
    seen = {"name": name, "group": "g", "state": "off", "address": None, "reason": ""}
    return {**seen, "changed_at": 0.0, "batch": batch, "instances": [], **changes}


def test_nodes_that_look_the_same_share_a_row() -> None:
    found = [node(f"c{number:03}") for number in range(1, 200)]
    found[9]["state"] = "ready"
    rows = render_rows(found, each=False, now=NOW)
    assert [row[0] for row in rows] == ["c[001-009,011-199]", "c010"]
    assert rows[0][1:5] == ["g", "off", "IDLE+CLOUD+POWERED_DOWN", ""]


def test_each_node_has_a_row_if_one_asks_for_it() -> None:
    rows = render_rows([node("c1"), node("c2")], each=True, now=NOW)
    assert [row[0] for row in rows] == ["c1", "c2"]


def test_a_row_of_several_shows_the_first_and_the_last_address() -> None:
    found = [node(f"c{n}", address=f"10.0.0.{n}") for n in (10, 9, 2)]
    assert render_rows(found, each=False, now=NOW)[0][5] == "10.0.0.2…10.0.0.10"


def test_two_addresses_are_shown_both_in_the_order_of_their_nodes() -> None:
    found = [node("c2", address="10.0.0.2"), node("c1", address="10.0.0.9")]
    row = render_rows(found, each=False, now=NOW)[0]
    assert (row[0], row[5]) == ("c[1-2]", "10.0.0.9,10.0.0.2")


def test_both_reasons_are_shown_once() -> None:
    drained = {"state": "IDLE", "flags": ["DRAIN"], "reason": "bad disk"}
    row = render_rows([node("c1", reason="the provider is full", batch=drained)], True, NOW)[0]
    assert row[7] == "the provider is full; Slurm: bad disk"
    given_back = {**drained, "reason": "the provider is full"}
    row = render_rows([node("c1", reason="the provider is full", batch=given_back)], True, NOW)[0]
    assert row[7] == "the provider is full"
    ours = {**drained, "reason": "springtide: the provider is full"}
    row = render_rows([node("c1", reason="the provider is full", batch=ours)], True, NOW)[0]
    assert row[7] == "the provider is full"


def test_a_reason_in_a_row_is_no_longer_than_helps() -> None:
    row = render_rows([node("c1", reason="`qconf -aattr` failed: " + "x" * 500)], True, NOW)[0]
    assert row[7].startswith("`qconf -aattr` failed: xxx")
    assert (len(row[7]), row[7][-1]) == (160, "…")


def test_nothing_is_shown_of_a_node_that_is_off_in_a_batch_system_that_is_read() -> None:
    read = {"state": "IDLE", "flags": [], "reason": "", "power": "powered down"}
    assert render_rows([node("c1", batch=read)], True, NOW)[0][3] == ""
    up = {**read, "power": "up"}
    assert render_rows([node("c1", batch=up)], True, NOW)[0][3] == "IDLE"


# --- events ------------------------------------------------------------------------------


def event(at: float, what: str, node: str | None, operation: int = 1, detail: str = "") -> Any:
    return {"id": 1, "at": at, "what": what, "node": node, "operation": operation, "detail": detail}


def texts(*found: Any, each: bool = False) -> list[str]:
    return [line.split("  ")[-1] for line in render_events(found, each)]


def test_equal_events_of_an_operation_share_a_line() -> None:
    found = [
        event(1 + n / 100, "instance created", f"c00{n}", detail=f"i-{n}") for n in range(1, 5)
    ]
    assert texts(*found) == ["c[001-004] instance created …"]
    assert len(texts(*found, each=True)) == 4


def test_only_events_of_the_last_time_are_shown_if_one_asks_for_that() -> None:
    found = [event(NOW - 700, "old", "c1"), event(NOW - 60, "new", "c1")]
    assert [one["what"] for one in recent(found, NOW - 600)] == ["new"]
    wrong = run("events", "--since", "yesterday", "--state", "/nowhere")
    assert (wrong.code, "'yesterday' is no time; write 90s" in wrong.err) == (2, True)


def test_different_reasons_are_never_folded_away() -> None:
    found = [
        event(1, "node failed", "c1", detail="full"),
        event(1, "node failed", "c2", detail="x"),
    ]
    assert texts(*found) == ["c1 node failed: full", "c2 node failed: x"]


def test_events_of_other_operations_or_times_keep_their_line() -> None:
    assert len(texts(event(1, "a", "c1"), event(1, "a", "c2", operation=2))) == 2
    assert len(texts(event(1, "a", "c1"), event(60, "a", "c2"))) == 2
    assert len(texts(event(1, "step done", None), event(1, "step done", None))) == 2


# --- operations, plans, status -----------------------------------------------------------


def operation(**changes: Any) -> dict[str, Any]:
    one = {"id": 7, "kind": "resume", "nodes": "c[1-2]", "state": "running", "step": "b"}
    one |= {"steps": ["a", "b", "c"], "steps_done": 1, "fallen": {}, "asked_by": "root"}
    times = {"created_at": NOW - 9, "started_at": NOW - 8, "ended_at": None}
    return {**one, "reason": "", "done": "", "later": "", **times, **changes}


def test_an_operation_shows_its_batches() -> None:
    lines = render_operation(operation(nodes="c[1-4]", done="c1", later="c[3-4]"), NOW)
    assert "nodes      c[1-4]\ndone       c1\nlater      c[3-4]\n" in lines


def test_an_operation_shows_what_is_done_now_and_next() -> None:
    lines = render_operation(operation(), NOW).splitlines()
    assert lines[-3:] == ["done     a", "now      b", "next     c"]
    lines = render_operation(operation(state="failed", step=None, ended_at=NOW), NOW).splitlines()
    assert lines[-3:] == ["done     a", "not done b", "not done c"]


def test_an_operation_and_its_nodes_that_failed_for_one_reason_say_it_once() -> None:
    why = "the server is away"
    failed = operation(reason=why, fallen={"c1": why, "c2": why}, waits_for="")
    assert row(failed, NOW)[-1] == why
    assert row({**failed, "fallen": {"c1": why, "c2": "late"}}, NOW)[-1] == f"{why}; c2: late"
    assert len(row({**failed, "reason": why * 50}, NOW)[-1]) < 250


def test_nodes_that_fell_for_the_same_reason_are_named_together() -> None:
    fallen = {"c1": "full", "c2": "full", "c3": "late"}
    assert render_fallen(fallen) == ["c[1-2]: full", "c3: late"]


def test_the_plan_is_printed_from_the_code() -> None:
    rows = render_steps()
    assert [row[0] for row in rows] == [step.value for step in Step]
    for column, steps in enumerate(PLANS.values(), start=1):
        assert [row[0] for row in rows if row[column] == "x"] == [step.value for step in steps]


def test_the_table_needs_no_daemon() -> None:
    done = run("--state", "/nowhere", "plan")
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["STEP", *(kind.upper() for kind in PLANS)]


def test_a_silent_batch_system_is_said_in_the_status() -> None:
    answer: dict[str, Any] = {"cluster": "blue", "state_directory": "/s", "control_address": None}
    answer |= {"batch": {"kind": "slurm", "version": None, "problem": "port taken"}}
    answer |= {"file": None, "applied": False, "stopped": False, "control": "here"}
    answer |= {"maintenance": None, "held": {}, "holds": 0, "boots": [], "troubles": {}}
    answer["calendar"] = []
    answer |= {"record": {"problem": None}, "attached": False}
    text = render_status({**answer, "nodes": {"off": 0}, "operations": [operation()]}, NOW)
    assert "slurm does not answer: port taken" in text
    assert "not deployed; run `tide deploy FILE`" in text
    assert "operation 7  resume c[1-2]: b (2 of 3), 9s ago" in text
