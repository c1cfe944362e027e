"""What the demo makes of events and of what its jobs write, and what it looks for at its end."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.demo import render_intro, render_use
from springtide.cli.demo_remains import abandoned, hold, remains
from springtide.cli.demo_show import NODES, Stage
from springtide.cli.demo_timeline import (
    Burst,
    Moment,
    Phase,
    alive,
    assemble,
    count,
    fold_moments,
    parse_event,
    parse_output,
    render_latencies,
    render_moment,
    render_reuse,
    render_span,
)
from springtide.nodeset import expand
from springtide.spec import Containers, parse
from tests.e2e.real import until

STAGE = Stage("demo", Path("/var/tmp/tide-demo-1"), 5)


def event(at: float, what: str, node: str | None = None, detail: str = "") -> dict[str, Any]:
    return {"id": 1, "at": at, "what": what, "node": node, "operation": 2, "detail": detail}


def moments(at: float, phase: Phase, nodes: str) -> list[Moment]:
    """One moment for each node, as events give them."""
    return [Moment(at, phase, (node,)) for node in expand(nodes)]


FIRST = [
    Moment(10.7, Phase.HOOK, ("n0", "n1")),
    *moments(10.8, Phase.CREATED, "n[0-1]"),
    Moment(10.9, Phase.JOINED, ("n0",)),
    Moment(11.0, Phase.JOINED, ("n1",)),
    Moment(11.1, Phase.RUNNING, ("n0", "n1")),
    Moment(12.1, Phase.DONE, ("n0", "n1")),
]
SECOND = [
    Moment(20.1, Phase.RUNNING, ("n1",)),
    Moment(20.2, Phase.RUNNING, ("n0",)),
    Moment(20.5, Phase.HOOK, ("n2",)),
    Moment(20.6, Phase.CREATED, ("n2",)),
    Moment(20.7, Phase.JOINED, ("n2",)),
    Moment(20.8, Phase.RUNNING, ("n2",)),
    Moment(21.0, Phase.DONE, ("n0",)),
    Moment(21.0, Phase.DONE, ("n1",)),
    Moment(22.0, Phase.DONE, ("n2",)),
    *moments(28.0, Phase.GONE, "n[0-2]"),
]
SUBMITS = [("burst 1", 10.0), ("burst 2", 20.0)]


# Reading


def test_a_resume_that_started_is_the_hook_that_was_called() -> None:
    started = event(10.7, "operation started", detail="resume n[0-1]")
    assert parse_event(started) == Moment(10.7, Phase.HOOK, ("n0", "n1"))


@pytest.mark.parametrize(
    ("what", "phase"),
    [
        ("instance created", Phase.CREATED),
        ("node registered", Phase.JOINED),
        ("instance gone", Phase.GONE),
    ],
)
def test_events_of_nodes_are_moments_without_their_details(what: str, phase: Phase) -> None:
    assert parse_event(event(1.0, what, "n0", "detail")) == Moment(1.0, phase, ("n0",))


def test_a_node_that_could_not_start_says_why() -> None:
    given_back = event(1.0, "node given back", "n0", "it did not register")
    assert parse_event(given_back) == Moment(1.0, Phase.GIVEN_BACK, ("n0",), "it did not register")


@pytest.mark.parametrize(
    "other",
    [
        event(1.0, "operation started", detail="deploy"),
        event(1.0, "operation started", detail="suspend n0"),
        event(1.0, "step done", detail="create instances"),
        event(1.0, "address told", "n0"),
    ],
)
def test_other_events_are_no_part_of_the_story(other: dict[str, Any]) -> None:
    assert parse_event(other) is None


def test_a_job_says_when_and_where_it_ran_and_what_else_it_has_to_say() -> None:
    text = "running 11.123456789 n[0-1]\nn1\nn0\ndone 12.5 n[0-1]\n"
    stamps, said = parse_output(text)
    assert stamps == [
        Moment(11.123456789, Phase.RUNNING, ("n0", "n1")),
        Moment(12.5, Phase.DONE, ("n0", "n1")),
    ]
    assert said == ["n1", "n0"]


def test_a_line_that_is_still_being_written_is_left_for_later() -> None:
    assert parse_output("running 11.1 n0\ndone 12.0 n") == (
        [Moment(11.1, Phase.RUNNING, ("n0",))],
        [],
    )
    assert parse_output("") == ([], [])


@pytest.mark.parametrize("line", ["running now n0", "done 1.0 n[", "running 1.0", "gone 1.0 n0"])
def test_a_line_that_only_looks_like_a_stamp_is_output(line: str) -> None:
    assert parse_output(f"{line}\n") == ([], [line])


# Putting together


def test_each_moment_belongs_to_the_submit_before_it() -> None:
    first, second = assemble(SUBMITS, [*SECOND, *FIRST])
    assert first == Burst("burst 1", 10.0, tuple(FIRST))
    assert second == Burst("burst 2", 20.0, tuple(SECOND))


def test_nothing_before_the_first_submit_counts() -> None:
    early = Moment(9.0, Phase.GONE, ("n0",))
    assert assemble([("burst 1", 10.0)], [early]) == [Burst("burst 1", 10.0)]


def test_nodes_to_which_the_same_happens_share_a_line() -> None:
    apart = [*moments(2.0, Phase.CREATED, "n3"), *moments(1.0, Phase.CREATED, "n[0-2]")]
    assert fold_moments(apart) == [
        Moment(1.0, Phase.CREATED, ("n0", "n1", "n2")),
        Moment(2.0, Phase.CREATED, ("n3",)),
    ]


def test_different_reasons_do_not_share_a_line() -> None:
    told = [Moment(1.0, Phase.GIVEN_BACK, (name,), name) for name in ("n0", "n1")]
    assert fold_moments(told) == told


def test_nodes_live_from_their_creation_until_they_are_gone() -> None:
    assert alive(FIRST) == {"n0", "n1"}
    assert alive([*SECOND[:-1], *FIRST]) == {"n2"}
    assert alive([*SECOND, *FIRST]) == set()


def test_jobs_that_are_done_are_counted() -> None:
    assert count(SECOND, Phase.DONE) == 3


def test_a_node_that_could_not_start_begins_anew() -> None:
    failed = [
        Moment(0.1, Phase.HOOK, ("n0",)),
        Moment(0.2, Phase.CREATED, ("n0",)),
        Moment(0.3, Phase.GONE, ("n0",)),
    ]
    again = [Moment(moment.at + 10, moment.phase, moment.nodes) for moment in failed[:2]]
    ran = [Moment(10.5, Phase.RUNNING, ("n0",)), Moment(20.0, Phase.GONE, ("n0",))]
    path = Burst("b", 0.0, (*failed, *again, *ran)).paths["n0"]
    assert path == {
        Phase.SUBMITTED: 0.0,
        Phase.HOOK: 10.1,
        Phase.CREATED: 10.2,
        Phase.RUNNING: 10.5,
        Phase.GONE: 20.0,
    }


def test_a_node_with_several_tasks_begins_with_the_first_and_is_done_with_the_last() -> None:
    tasks = [
        Moment(float(at), phase, ("n0",))
        for at, phase in ((1, Phase.RUNNING), (2, Phase.DONE), (3, Phase.RUNNING), (4, Phase.DONE))
    ]
    path = Burst("b", 0.0, tuple(tasks)).paths["n0"]
    assert (path[Phase.RUNNING], path[Phase.DONE]) == (1.0, 4.0)


# Rendering


def test_a_line_tells_the_seconds_since_the_submit() -> None:
    assert render_moment(FIRST[0], 10.0) == ("  +0.70 s", "hook called", "Slurm asks for n[0-1]")
    told = Moment(11.0, Phase.GIVEN_BACK, ("n0",), "it is full")
    assert render_moment(told, 10.0) == ("  +1.00 s", "given back", "n0: it is full")
    assert render_moment(Moment(10.0, Phase.SUBMITTED, text="job 1"), 10.0)[2] == "job 1"


def test_idle_nodes_are_told_from_those_that_were_made() -> None:
    first, second = assemble(SUBMITS, [*FIRST, *SECOND])
    assert render_reuse(first) == "n[0-1] created for it"
    assert render_reuse(second) == "n[0-1] used again, n2 created for it"


def test_the_closing_table_has_each_step_from_the_first_node_to_the_last() -> None:
    columns, rows = render_latencies(assemble(SUBMITS, [*FIRST, *SECOND]))
    assert columns == ["latency", "burst 1, 2 new", "burst 2, 2 idle", "burst 2, 1 new"]
    assert rows == [
        ["submit → hook", "0.70 s", "", "0.50 s"],
        ["hook → created", "0.10 s", "", "0.10 s"],
        ["created → joined", "0.10–0.20 s", "", "0.10 s"],
        ["joined → running", "0.10–0.20 s", "", "0.10 s"],
        ["submit → running", "1.10 s", "0.10–0.20 s", "0.80 s"],
        ["done → gone", "", "7.00 s", "6.00 s"],
    ]


def test_times_that_look_the_same_are_told_once() -> None:
    assert render_span([]) == ""
    assert render_span([0.501, 0.502]) == "0.50 s"
    assert render_span([1.25, 0.5]) == "0.50–1.25 s"


# The stage


def test_the_demo_writes_a_right_cluster_file() -> None:
    spec = parse(STAGE.render_spec(), "demo")
    assert (spec.cluster, spec.state, spec.timing.idle) == ("demo", STAGE.state, 5)
    assert isinstance(spec.provider, Containers)
    assert spec.provider.mounts == (STAGE.shared,)
    assert spec.managed == tuple(expand(NODES))


def test_two_lines_say_what_is_going_to_happen() -> None:
    assert len(render_intro(STAGE, keep=False).splitlines()) == 2
    assert str(STAGE.state) in render_intro(STAGE, keep=True)


def test_a_kept_cluster_comes_with_the_way_to_use_and_to_remove_it() -> None:
    text = render_use(STAGE, "tide --cluster demo")
    assert "export SLURM_CONF=/var/tmp/tide-demo-1/conf/slurm.conf" in text
    assert text.endswith("tide --cluster demo destroy --yes")


# What is left


def test_a_directory_that_is_still_there_is_left_behind(tmp_path: Path) -> None:
    assert remains(tmp_path, "nosuch", ["n0"]) == [f"directory {tmp_path}"]
    assert remains(tmp_path / "gone", "nosuch", ["n0"]) == []


def test_a_process_that_knows_the_cluster_is_left_behind(tmp_path: Path) -> None:
    state = tmp_path / "gone"
    command = [sys.executable, "-c", "input()", f"{state}/slurm.conf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            left = until(
                lambda: remains(state, "nosuch", [])
            )  # it may be becoming that program yet
            assert left == [f"process {process.pid}: {' '.join(command)}"]
        finally:
            process.kill()


def test_a_directory_is_abandoned_when_nobody_holds_it(tmp_path: Path) -> None:
    held, left = tmp_path / "held", tmp_path / "left"
    for path in (held, left):
        path.mkdir()
    descriptor = hold(held)
    try:
        assert abandoned([held, left, tmp_path / "gone"]) == [left]
    finally:
        os.close(descriptor)
    assert abandoned([held]) == [held]
