"""`tide drain` and `tide undrain`: whose wish it is counts."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from springtide.cli.drain import render_drain, render_undrain
from springtide.cli.endings import Exit
from tests.unit.cli_world import LONG_S, SPEC, World, run, served, wait_until

UP = SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 2') + "admin_group: nogroup\n"


@pytest.fixture
def world() -> Iterator[World]:
    with served(UP) as world:
        yield world


def drained(world: World) -> dict[str, str]:
    """Who drained which nodes."""
    rows = world.rows().values()
    return {row["name"]: row["batch"]["owner"] for row in rows if row["batch"]["drained"]}


def test_drained_nodes_take_no_jobs_until_they_are_undrained(world: World) -> None:
    done = world.run("drain", "c[1-2]", "--reason", "bad fan")
    assert (done.code, done.out, done.err) == (0, "c[1-2]: drained\n", "")
    assert drained(world) == {"c1": "root", "c2": "root"}
    assert "bad fan" in world.run("nodes", "c1").out
    done = world.run("undrain", "c[1-3]")
    assert (done.code, done.out) == (0, "c[1-2]: takes jobs again\nc3: not drained\n")
    assert drained(world) == {}


def test_running_jobs_go_on_and_it_is_said(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: bool(world.rows()["c1"]["batch"]["busy"]))
    done = world.run("drain", "c[1-2]", "--reason", "bad fan")
    assert done.out.splitlines() == [
        "c[1-2]: drained",
        "c1: its jobs go on to their end; see `squeue -w c1`",
    ]
    assert world.batch.killed_jobs == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_what_somebody_else_drained_needs_force(world: World) -> None:
    assert world.as_user("nobody", "drain", "c1", "--reason", "mine").returncode == 0
    again = world.run("drain", "c[1-2]", "--reason", "no, mine")
    assert again.out.splitlines() == ["c2: drained", "c1: drained already, by nobody: mine"]
    assert drained(world) == {"c1": "nobody", "c2": "root"}
    refused = world.run("undrain", "c1")
    assert refused.code == Exit.FAILED
    assert "c1 drained by nobody; say --force to undrain all the same" in refused.err
    assert drained(world) == {"c1": "nobody", "c2": "root"}
    assert world.run("undrain", "c1", "--force").out == "c1: takes jobs again\n"
    assert drained(world) == {"c2": "root"}


def test_a_dry_run_drains_nothing(world: World) -> None:
    done = world.run("drain", "c1", "--reason", "bad fan", "--dry-run")
    assert (done.code, done.out, done.err) == (
        0,
        "c1: would be drained\n",
        "nothing was changed\n",
    )
    assert drained(world) == {}
    world.run("drain", "c1", "--reason", "bad fan")
    done = world.run("undrain", "c[1-2]", "--dry-run")
    assert done.out.splitlines() == [
        "c1: drained by root: bad fan; would take jobs again",
        "c2: not drained",
    ]
    assert drained(world) == {"c1": "root"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drain", "c1"], "Missing option '--reason'"),
        (["drain", "c1", "--reason", " "], "say why: --reason TEXT"),
        (["drain", "", "--reason", "x"], "empty host list"),
        (["drain", "x9", "--reason", "x"], "unknown node x9"),
        (["drain", "metal1", "--reason", "x"], "never created, deleted or suspended"),
        (["undrain", "x9"], "unknown node x9"),
        (["undrain", "c[1"], "this '[' is never closed"),
    ],
)
def test_wrong_usage_is_told(world: World, words: list[str], said: str) -> None:
    done = world.run(*words)
    assert done.code == Exit.WRONG
    assert said in done.err


@pytest.mark.parametrize("words", [["drain", "c1", "--reason", "x"], ["undrain", "c1"]])
def test_no_daemon_is_exit_code_4(words: list[str]) -> None:
    assert run("--state", "/nowhere", *words).code == Exit.AWAY


def seen(name: str, **batch: Any) -> dict[str, Any]:
    return {"name": name, "batch": {"drained": True, "reason": "r", "busy": False, **batch}}


def test_what_an_operation_drained_becomes_that_of_who_drains_it() -> None:
    rows = [seen("c1", owner="springtide", reason="rebuild"), {"name": "c2", "batch": None}]
    assert render_drain(rows, "drained") == [
        "c[1-2]: drained",
    ]
    assert render_undrain(rows, "root") == [
        "c1: drained by springtide: rebuild; --force would undo it",
        "c2: not drained",
    ]
    assert render_undrain(rows, None)[0].endswith("; would take jobs again")


@pytest.mark.parametrize(
    ("kind", "see"),
    [
        ("slurm", "squeue -w c1"),
        ("torque", "qstat -t"),
        ("gridengine", "qstat"),
        ("fake", "squeue -w c1"),
    ],
)
def test_the_commands_are_those_of_the_batch_system(kind: str, see: str) -> None:
    (_, line) = render_drain([{"name": "c1", "batch": {"busy": True}}], "drained", kind)
    assert line == f"c1: its jobs go on to their end; see `{see}`"
