"""`tide why` and `GET /why/…`: the daemon gathers what is known, and tells the story of it."""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from springtide.cli.client import Client, Refused
from springtide.cli.endings import Exit
from springtide.cli.why import render_story
from springtide.model import Kind, Request
from springtide.ports import InstanceState, Job, NoCapacity
from springtide.steps import census
from tests.unit.cli_world import LONG_S, SPEC, World, run, served, wait_until

FULL = "no large in zone-a"


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        _name_jobs(world)
        yield world


def _name_jobs(world: World) -> None:
    """Have the batch system say for which jobs it asks, as Slurm does."""

    def resume(nodes: Sequence[str], jobs: Sequence[Job]) -> None:
        ids = tuple(job.id for job in jobs)
        request = Request(f"j{time.time()}", "resume", tuple(nodes), time.time(), ids)
        tasks.append(world.loop.create_task(world.daemon.receive(request)))

    tasks: list[Any] = []
    world.batch.on_resume[:] = [resume]


def why(world: World, what: str, *options: str) -> dict[str, Any]:
    done = world.run("why", what, "--json", *options)
    assert done.code == 0, done.err
    answer: dict[str, Any] = json.loads(done.out)
    return answer


def test_a_node_that_is_off_says_who_starts_it(world: World) -> None:
    done = world.run("why", "c1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "now   c1 is off and has no instance; Slurm shows IDLE+CLOUD+POWERED_DOWN.",
        "next  Slurm starts it when a job needs it.",
        "do    `tide resume c1` starts it by hand",
    ]


def test_a_node_that_does_not_start_any_more_says_until_when(world: World) -> None:
    holding = world.daemon.parts.holding
    for _ in range(3):
        world.call(lambda: holding.failed_boots({"c1": "health check failed"}, world.spec))
    assert [hold.key for hold in holding.current] == ["node:c1"]
    world.call(lambda: world.batch.drain(["c1"], "node c1 does not start any more"))
    told = why(world, "c1")
    assert told["next"].startswith("c1 is held until ")
    assert "node c1 does not start any more (health check failed); then it" in told["next"]
    lift = "when the cause is gone, `tide holds --lift node:c1` has it tried at once"
    assert told["do"].endswith(lift)


def test_a_job_that_waits_for_its_nodes_says_for_which_and_how_far_they_are(world: World) -> None:
    world.faults.boot_s = LONG_S
    world.submit(2, seconds=LONG_S)
    wait_until(lambda: world.states("c1", "c2") == ["joining"] * 2)
    story = why(world, "1")
    assert story["about"] == "job 1"
    assert story["now"].startswith("job 1 waits for c[1-2] to start, 0 of 2 are in service; ")
    assert "(resume by Slurm for job 1) is at work since " in story["now"]
    assert [line["text"] for line in story["past"]] == [
        "c[1-2]: start ordered by Slurm for job 1",
        "c[1-2]: instance made",
        "c[1-2]: booting; Slurm waits for slurmd to report",
    ]
    assert story["next"].startswith("it runs as soon as they are in service; ")
    told = why(world, "c2")["now"]
    assert told.startswith("c2 boots: Slurm waits for its slurmd to report since ")


def test_a_job_that_runs_and_its_node_know_of_each_other(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: world.states("c1") == ["ready"])
    wait_until(lambda: why(world, "1")["now"] == "job 1 runs on c1.")
    story = why(world, "c1")
    assert story["now"].startswith("c1 is in service since ")
    assert " ago), and has job 1; " in story["now"]
    (line,) = story["past"]
    assert re.fullmatch(r"started by Slurm for job 1; in service after \d+ s", line["text"])


@pytest.mark.accepts("X5")
def test_a_job_whose_node_could_not_start_hears_the_same_from_both_sides(world: World) -> None:
    world.faults.refused_nodes = {"c1": NoCapacity(FULL)}
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: bool(world.batch.told))
    wait_until(lambda: world.operations()[0]["ended_at"] is not None)
    job, comment = world.batch.told[0]
    story = why(world, job)
    assert comment == f"c1 could not start, so the job waits again: the provider is full: {FULL}"
    assert comment in story["now"]
    texts = [line["text"] for line in story["past"]]
    assert texts[0] == f"c1: could not start: the provider is full: {FULL}"
    node = why(world, "c1")
    assert f"its last start failed: the provider is full: {FULL}" in node["now"]
    assert node["next"].startswith("group general is held until ")
    assert node["next"] == story["next"]


def test_what_a_person_drained_is_that_persons_to_give_back(world: World) -> None:
    world.run("drain", "c3", "--reason", "bad\x1b[31m fan")
    done = world.run("why", "c3")
    assert "next  nothing: root drained it (bad\\x1b[31m fan); `tide undrain c3` ends" in done.out
    assert "drained by root: bad\\x1b[31m fan" in done.out
    assert "\x1b" not in done.out


def test_what_will_be_repaired_is_told_with_its_time_unless_the_reconciler_rests() -> None:
    with served(SPEC.replace("timing: {", "timing: {grace: 1h, ")) as world:
        world.run("resume", "c1")
        world.call(lambda: _die(world, "c1"))
        broken = "c1 should be in service, but its instance is broken, and "
        wait_until(lambda: why(world, "c1")["now"].startswith(broken))
        story = why(world, "c1")
        assert story["next"].startswith("at ")
        assert (
            "Springtide removes it and gives its jobs back to the queue, because its instance died"
            in (story["next"])
        )
        assert world.run("maintenance", "on", "--reason", "new switch").code == 0
        told = why(world, "c1")["next"]
        assert told.startswith("nothing for now: maintenance since ")
        assert "by root (new switch); after that at " in told


async def _die(world: World, name: str) -> None:
    (instance,) = [one for one in world.cloud.alive() if one.node == name]
    world.cloud.die(instance.id, InstanceState.BROKEN)


@pytest.mark.accepts("X5")
def test_a_job_is_told_of_the_repair_of_its_node_before_and_afterwards() -> None:
    with served(SPEC.replace("timing: {", "timing: {reconcile: 50ms, grace: 1h, ")) as world:
        _name_jobs(world)
        world.timing.requeue_s = LONG_S
        world.submit(1, seconds=LONG_S)
        wait_until(lambda: why(world, "1")["now"] == "job 1 runs on c1.")
        world.call(lambda: _die(world, "c1"))

        def is_foretold() -> bool:
            told = why(world, "1")
            comes = "Springtide removes it and gives its jobs back to the queue"
            return "c1 is not well: its instance died" in told["now"] and comes in told["next"]

        wait_until(is_foretold)
        world.file.write_text(world.file.read_text().replace("grace: 1h", "grace: 100ms"))
        assert world.run("apply", "--yes").code == 0
        wait_until(lambda: bool(_losses(world, "1")))
        assert why(world, "1")["now"].startswith("c1 broke, so the job goes back to the queue: ")
        assert _losses(world, "1") == [f"c1: {line}" for line in _losses(world, "c1")]
        world.call(lambda: _may_start_again(world))
        wait_until(lambda: why(world, "1")["now"].startswith("job 1 runs on "))
        (line,) = _losses(world, "1")
        assert line.startswith("c1: broke; removed, and its jobs put back into the queue, by op")
        assert line.endswith(", because its instance died")


async def _may_start_again(world: World) -> None:
    for job in world.batch.open_jobs:
        job.held = False
    await world.batch.open()


def _losses(world: World, what: str) -> list[str]:
    return [one["text"] for one in why(world, what)["past"] if "broke; " in one["text"]]


def test_a_machine_on_premises_is_no_business_of_ours(world: World) -> None:
    assert "metal1 is a machine that Springtide neither makes" in world.run("why", "metal1").out


def test_without_an_answer_of_the_batch_system_the_record_is_told(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: _is_resumed(world.operations()[0]))
    world.batch.unavailable = True
    node, job = world.run("why", "c1"), world.run("why", "1")
    assert (node.code, job.code) == (0, 0)
    assert "tide: incomplete: the fake batch system was told not to answer" in node.err
    assert "c1 is in service since " in node.out
    assert "Slurm does not answer, so this is our record alone" in node.out
    assert "Slurm does not answer, so how job 1 stands is not known; the last that" in job.out
    assert "(resume by Slurm for job 1), done" in job.out
    assert "c1: started by Slurm for job 1" in job.out


def _is_resumed(newest: dict[str, Any]) -> bool:
    """The job's own operation: before it comes, all that there are have ended."""
    return newest["kind"] == Kind.RESUME and newest["ended_at"] is not None


def test_who_asks_again_and_again_costs_no_further_lists_of_the_cloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody may ask, and clouds throttle all who ask too often together."""
    monkeypatch.setattr(census, "FRESH_S", LONG_S)
    with served(SPEC.replace("timing: {", "timing: {reconcile: 1h, ")) as world:
        why(world, "c1")
        before = dict(world.cloud.calls), dict(world.batch.calls)
        for name in ("c1", "c2", "c3", "c4", "c1"):
            why(world, name)
        lists = world.cloud.calls["list"] - before[0]["list"]
        assert lists <= 1, "but for the first pass of the reconciler"
        for question in ("nodes", "jobs"):
            assert world.batch.calls[question] - before[1][question] <= 6


def test_the_past_is_cut_unless_all_of_it_is_wanted(world: World) -> None:
    for number in range(9):
        world.run("drain", "c3", "--reason", f"fan {number}")
        world.run("undrain", "c3")
    assert len(why(world, "c3")["past"]) == 15
    assert len(why(world, "c3", "--all")["past"]) == 18


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("c01", "unknown node c01; the cluster has c[1-4] (general), metal[1-2] (bare); did you"),
        ("c[1-2]", "name one job or one node; c[1-2] are 2"),
        ("", "name a job or a node"),
        ("c[1", "this '[' is never closed"),
        ("a/b", "'/' is not allowed"),
        ("9" * 30, "unknown node"),
    ],
)
def test_wrong_names_are_told(world: World, what: str, said: str) -> None:
    done = world.run("why", what)
    assert done.code == Exit.WRONG
    assert said in done.err


def test_a_job_that_nobody_knows_is_over_or_never_was(world: World) -> None:
    assert "it is over, or never was" in why(world, "4711")["now"]
    assert "`squeue -h -j 17_3 -o %A`" in why(world, "17_3")["do"]


def test_the_daemon_takes_no_name_that_is_none(world: World) -> None:
    daemon = Client(world.layout.state)
    for path in ("/why/c9%5Bx", "/why/%F0%9F%90%9F", "/why/" + "c" * 5000, "/why/c1/x", "/why/"):
        with pytest.raises(Refused) as caught:
            daemon.get(path)
        assert caught.value.status == 404


def test_no_daemon_is_exit_code_4() -> None:
    assert run("--state", "/nowhere", "why", "c1").code == Exit.AWAY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_everybody_may_ask(world: World) -> None:
    done = world.as_user("nobody", "why", "c1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("now   c1 is off")


def test_a_node_that_is_always_up_says_so() -> None:
    with served(SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 1')) as world:
        assert why(world, "c1")["next"] == "nothing: it is one of the nodes that are always up."
        assert world.run("stop", "--yes").code == 0
        story = why(world, "c1")
        assert "nothing is started: the cluster is stopped; run `tide start`" in story["now"]
        assert why(world, "1")["now"].startswith("no job runs: the cluster is stopped")


def test_what_comes_from_outside_cannot_harm_a_terminal() -> None:
    story = {
        "now": "job 17 waits:\n\x1b]0;owned\x07",
        "past": [{"at": 1.0, "text": "x\ty"}],
        "next": "",
        "do": "",
    }
    assert next(render_story(story)) == "now   job 17 waits: \\x1b]0;owned\\x07"
    assert [line[:6] for line in render_story(story)] == ["now   ", "past  "]
