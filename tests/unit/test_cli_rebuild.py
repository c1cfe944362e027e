"""`tide rebuild` and `tide update`: what nodes run becomes what the file wants, and is seen so."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from springtide.cli.client import Client
from springtide.cli.course import render_done
from springtide.cli.endings import Exit
from springtide.cli.images import render_images
from springtide.cli.rebuild_jobs import CANCELLED, count_idle, decide_rebuilt
from springtide.configure.fake import FakeConfigurator
from springtide.engine.course import Course
from springtide.model import PLANS, Kind, Operation, Request
from springtide.ports import Rejected
from tests.unit.cli_world import (
    LIMIT_S,
    LONG_S,
    SPEC,
    Result,
    World,
    heard,
    run,
    served,
    wait_until,
)

UP = SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 3, image: host')
NOW = 1_000_000.0


@pytest.fixture
def world() -> Iterator[World]:
    """Three nodes are up, with the image that the file wanted when they started."""
    with served(UP) as world:
        yield world


def bump(world: World) -> None:
    """The file wants another image."""
    world.file.write_text(world.file.read_text().replace("image: host", "image: new"))
    done = world.run("apply", "--yes")
    assert done.code == 0, done.err


def images(world: World) -> dict[str, str]:
    """What runs where, if anything does."""
    rows = world.rows()
    return {n: i["image"] for n in ("c1", "c2", "c3") for i in rows[n]["instances"]}


def watched(world: World, rounds: Sequence[str], *arguments: str) -> Result:
    """A command that is told of each round before the next may begin."""
    may_go, between = threading.Semaphore(0), Course._between_rounds

    async def hold(course: Course, before: Operation) -> None:
        await between(course, before)
        await asyncio.to_thread(may_go.acquire, timeout=LIMIT_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Course, "_between_rounds", hold)
        with world.begun(*arguments) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            err = ""
            for said in rounds:
                err += heard(process.stderr, said)
                may_go.release()
            err += process.stderr.read()
            out = process.stdout.read()
    return Result(process.returncode, out, err)


# --- rebuild -------------------------------------------------------------------------------


def test_a_file_that_was_edited_and_not_applied_is_mentioned(world: World) -> None:
    """Else it would be believed that all nodes run what it wants."""
    bump(world)
    world.run("rebuild", "--yes")
    applied = world.file.read_text()
    for text, news in (
        (applied.replace("image: new", "image: host"), "was changed since it was applied: run"),
        (applied.replace("image: new", "image: ["), "and is wrong now"),
        (f"{applied}# a comment\n", ""),
    ):
        world.file.write_text(text)
        for words in (("rebuild",), ("nodes", "--images"), ("status",)):
            done = world.run(*words)
            assert done.code == 0
            assert (news in done.err) if news else done.err == ""


@pytest.mark.accepts("A11")
def test_the_second_rebuild_rebuilds_nothing(world: World) -> None:
    bump(world)
    first = world.run("rebuild", "--yes")
    assert first.code == 0, first.err
    assert "c[1-3]: image host instead of new" in first.err
    assert set(images(world).values()) == {"new"}
    before = world.operations()
    second = world.run("rebuild", "--yes")
    assert (second.code, second.err) == (0, "")
    assert second.out == "all nodes in service run what the file wants: nothing was changed\n"
    assert world.operations() == before


def test_nodes_are_rebuilt_in_batches_and_it_is_told_how_far_it_is(world: World) -> None:
    bump(world)
    seen = ["(1 of 3)", "(2 of 3)"]
    done = watched(world, seen, "rebuild", "--batch", "1", "--pause", "0.1s", "--yes")
    assert done.code == 0, done.err
    told = [line for line in done.err.splitlines() if line.startswith("✓")]
    assert [line.partition(" (")[2] for line in told] == ["1 of 3)", "2 of 3)", "3 of 3)"]
    assert set(images(world).values()) == {"new"}
    assert world.operations()[0]["options"] == {"via": "reboot", "batch": 1, "pause": 0.1}


@pytest.mark.parametrize("how", [[], ["--via", "reboot"], ["--direct"]])
def test_only_named_nodes_are_rebuilt(world: World, how: list[str]) -> None:
    bump(world)
    assert world.run("rebuild", "c2", *how, "--yes").code == 0
    assert images(world) == {"c1": "host", "c2": "new", "c3": "host"}


def test_a_node_can_be_given_an_image_of_its_own(world: World) -> None:
    assert world.run("rebuild", "c3", "--image", "new", "--yes").code == 0
    assert images(world) == {"c1": "host", "c2": "host", "c3": "new"}
    again = world.run("rebuild", "c3", "--image", "new", "--yes")
    assert again.out == "all nodes in service run image new: nothing was changed\n"


def test_a_node_that_does_not_come_back_is_named_with_what_to_do(world: World) -> None:
    bump(world)
    world.faults.refused_nodes["c2"] = Rejected("no such disk")
    done = world.run("rebuild", "c[1-2]", "--yes")
    assert done.code == Exit.PARTLY
    assert "c2 did not come back and takes no jobs (see `" in done.err
    assert "then `tide resume c2`" in done.err


def test_the_plan_of_rebuild_jobs_tells_of_the_jobs(shared: World) -> None:
    done = shared.run("rebuild", "c[1-2]", "--via", "jobs", "--force", "--dry-run")
    steps = [line for line in done.out.splitlines() if line.startswith("step ")]
    assert "submit a job for each node, ahead of all others" in steps[0]
    assert "drain" in steps[1]


def test_it_asks_and_a_dry_run_only_shows(world: World) -> None:
    bump(world)
    before = world.operations()
    done = world.run("rebuild", "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed\n")
    assert "c[1-3]: image host instead of new" in done.out
    assert "nobody can be asked here: say --yes" in world.run("rebuild").err
    code, said = world.answered(b"no\n", "rebuild", "c1")
    assert (code, "type yes to rebuild c1" in said) == (Exit.FAILED, True)
    assert world.operations() == before


def test_a_node_that_differs_in_its_configuration_alone_is_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild would leave it as it is, and silence would say that all is well."""
    monkeypatch.setattr(FakeConfigurator, "user_data", lambda *_: "of now")
    advice = "no rebuild is needed for that, `tide update` configures them again"
    for words in (["--dry-run"], ["--yes"]):
        done = world.run("rebuild", *words)
        assert (done.code, done.out) == (
            0,
            "no node has to be rebuilt: nothing was changed\n"
            f"c[1-3]: another configuration than the file's; {advice}\n",
        )
    assert "c2: another configuration" in world.run("rebuild", "c2", "--dry-run").out
    some = world.run("rebuild", "c3", "--image", "new", "--dry-run").out
    assert "c3: image host instead of new" in some
    assert "another configuration" not in some, "it gets that, too"
    assert world.run("update", "--yes").code == 0
    assert "all nodes in service run what the file wants" in world.run("rebuild").out


def test_jobs_are_named_before_and_waited_for(world: World) -> None:
    bump(world)
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: world.rows()["c1"]["batch"]["busy"])
    done = world.run_past_job("1 waited for: 1 on c1", "rebuild", "c1", "--yes")
    assert (done.code, images(world)["c1"]) == (0, "new")
    assert len(world.batch.finished) == 1


def test_jobs_that_do_not_end_keep_their_nodes(world: World) -> None:
    bump(world)
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: world.rows()["c1"]["batch"]["busy"])
    done = world.run("rebuild", "--deadline", "0.5s", "--yes")
    assert done.code == Exit.PARTLY
    assert "takes no jobs" not in done.err, "its job goes on"
    assert "c1: its jobs did not end within" in done.err
    assert images(world) == {"c1": "host", "c2": "new", "c3": "new"}


def test_one_need_not_wait(world: World) -> None:
    bump(world)
    done = world.run("rebuild", "--yes", "--no-wait")
    assert (done.code, "see `tide operations" in done.out) == (0, True)
    wait_until(lambda: images(world) == dict.fromkeys(("c1", "c2", "c3"), "new"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--image", "new"],
            "--image needs a HOSTLIST; for all nodes set the image of",
        ),
        (["c1", "--image", "gone"], "there is no image gone; the cluster file has host, new"),
        (["--via", "magic"], "--via is reboot or jobs, not 'magic'"),
        (["--via", "jobs", "--direct"], "give --via or --direct, not both"),
        (["--command", "true"], "--command is for --via jobs"),
        (["c1", "--via", "jobs", "--image", "new"], "leave out --image"),
        (["--via", "jobs", "--batch", "2"], "leave out --batch, --pause and --deadline"),
        (["--batch", "few"], "--batch is a whole number from 0, not 'few'"),
        (["--pause", "soon"], "'soon' is no time"),
        (["--deadline", "-1"], "'-1' is no time"),
        (["x9"], "unknown node x9"),
        ([""], "empty host list"),
        (["metal1"], "never created, deleted or suspended"),
        (["--partition", "gone"], "there is no partition 'gone'; known are main"),
        (["c1,x9", "--partition", "main"], "x9 is not in partition main"),
    ],
)
def test_wrong_usage_is_told(shared: World, words: list[str], said: str) -> None:
    done = shared.run("rebuild", *words, "--yes")
    assert done.code == Exit.WRONG
    assert said in done.err
    assert len(shared.operations()) == 1


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """For commands that change nothing."""
    with served(UP) as world:
        yield world


def test_nobody_in_service_is_nothing_to_do(shared: World) -> None:
    done = shared.run("rebuild", "c4", "--force", "--yes")
    assert (done.code, done.out) == (0, "none of these nodes is in service: nothing was changed\n")
    done = shared.run("rebuild", "c4", "--image", "new", "--dry-run")
    assert (done.code, done.out) == (0, "none of these nodes is in service: nothing was changed\n")
    done = shared.run("update", "c4", "--yes")
    assert (done.code, done.out) == (0, "no such node is in service: nothing was changed\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("words", [["rebuild", "--force"], ["update"]])
def test_a_stranger_may_not_do_it(shared: World, words: list[str]) -> None:
    done = shared.as_user("nobody", *words, "--yes")
    assert done.returncode == Exit.FAILED
    assert "nobody may not change this cluster" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_only_root_has_jobs_run_a_command() -> None:
    """They run as root, and a member of the admin group is not root."""
    with served(UP + "admin_group: nogroup\n") as world:
        words = ("rebuild", "--via", "jobs", "--command", "id", "--yes")
        done = world.as_user("nobody", *words)
        assert done.returncode == Exit.FAILED
        assert "nobody may not run commands: rebuild jobs run as root" in done.stderr
        assert world.run(*words).code == 0


@pytest.mark.parametrize("command", ["rebuild", "update"])
def test_no_daemon_is_exit_code_4(command: str) -> None:
    assert run("--state", "/nowhere", command).code == Exit.AWAY


# --- by jobs -------------------------------------------------------------------------------


def test_jobs_rebuild_their_nodes_and_are_watched(world: World) -> None:
    bump(world)
    done = world.run("rebuild", "c[1-2]", "--via", "jobs", "--yes")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "c[1-2]: rebuilt"
    assert [line.partition(": job ")[0] for line in done.out.splitlines()[:2]] == ["c1", "c2"]
    assert images(world) == {"c1": "new", "c2": "new", "c3": "host"}


def test_who_cancels_a_job_is_not_waited_for(world: World) -> None:
    """Slurm knows nothing of it any more, and no rebuild was asked for."""
    bump(world)
    world.submit(3, LONG_S)
    wait_until(lambda: world.batch.node("c1").job is not None)
    words = ("rebuild", "c[1-2]", "--via", "jobs", "--yes")

    def act() -> None:
        rebuilds = {job.only: job.id for job in world.batch.open_jobs if job.only}
        world.cancel(rebuilds["c1"])
        world.finish("1")

    done = world.run_until("… rebuild c[1-2]: 2 ready; see `squeue`", act, *words)
    assert done.code == Exit.PARTLY, done.err
    assert f"c1: {CANCELLED}" in done.err
    assert done.out.splitlines()[-1] == "c2: rebuilt"
    assert images(world) == {"c1": "host", "c2": "new", "c3": "host"}


def test_a_job_is_told_to_wait_until_it_is_over_and_then_its_rebuild(world: World) -> None:
    """From one to the other there is no moment at which nothing is told."""
    bump(world)
    daemon = Client(world.layout.state)
    world.submit(3, LONG_S)
    wait_until(lambda: world.batch.node("c1").job is not None)
    assert daemon.get("/rebuilds") == {"jobs": [], "nodes": ""}
    world.run("rebuild", "c1", "--via", "jobs", "--yes", "--no-wait")
    assert daemon.get("/rebuilds") == {"jobs": ["2"], "nodes": ""}
    world.cancel("2")
    assert daemon.get("/rebuilds") == {"jobs": [], "nodes": ""}
    asked = Request("by-hand", "rebuild-job", ("c1",), NOW, ("2",))
    assert world.call(lambda: world.daemon.parts.record.store.receive(asked))
    assert daemon.get("/rebuilds") == {"jobs": [], "nodes": "c1"}
    world.run("rebuild", "c2", "--yes", "--no-wait")
    assert daemon.get("/rebuilds") == {"jobs": [], "nodes": "c[1-2]"}
    world.batch.unavailable = True
    assert daemon.get("/rebuilds") == {"jobs": None, "nodes": "c[1-2]"}
    world.batch.unavailable = False


@pytest.mark.parametrize(
    ("uid", "name", "rebuilt"),
    [("0", "rebuild-c1", "c1"), ("1000", "rebuild-c1", ""), ("0", "try-c1", ""), (None, None, "")],
)
def test_only_a_rebuild_job_of_roots_has_its_node_rebuilt(
    world: World, uid: str | None, name: str | None, rebuilt: str
) -> None:
    """Slurm 22.05 takes jobs of others that name root's partition beside one of theirs."""
    bump(world)
    daemon = Client(world.layout.state)
    began = {"job": "7", "nodes": "c1", "partition": "rebuild", "name": name, "uid": uid}
    daemon.post("/hook/prolog", began)
    asked = [one for one in world.operations() if one["kind"] == "rebuild"]
    assert [one["nodes"] for one in asked] == ([rebuilt] if rebuilt else [])
    assert (world.batch.node("c1").reason != "") == bool(rebuilt)


@pytest.mark.accepts("A12")
def test_a_command_is_tried_and_nothing_is_rebuilt(world: World) -> None:
    bump(world)
    before = world.rows()
    done = world.run("rebuild", "--via", "jobs", "--command", "hostname", "--yes")
    assert done.code == 0, done.err
    told = "run 'hostname' on c[1-3] by 3 jobs, one for each node; nothing is rebuilt"
    assert told in done.err.splitlines()
    assert "step 1" not in done.err, "no node is drained, deleted or made"
    assert "`scontrol show job ID` for how they ended" in done.err
    names = [line.partition(": job ")[0] for line in done.out.splitlines()]
    assert names == ["c1", "c2", "c3"]
    wait_until(lambda: len(world.batch.finished) == 3)
    assert [row["instance"] for row in world.rows().values()] == [
        row["instance"] for row in before.values()
    ]
    assert world.operations()[0]["kind"] != "rebuild"


PARTED = """
cluster: sim
batch: {kind: fake}
provider: {kind: fake}
images: {new: {path: /}}
image: host
groups:
  general: {nodes: "c[1-2]", min: 2}
  quick: {nodes: "q[1-2]", min: 2}
  spare: {nodes: "s1", min: 1}
  bare: {nodes: "metal1", provider: {kind: none}}
partitions:
  main: {groups: [general, bare], default: true}
  debug: {groups: [quick]}
  rest: {groups: [spare]}
rebuild: {partitions: {night: [main], again: [debug]}}
timing: {start: 10m, stop: 10m, gather: 5ms}
"""


@pytest.fixture(scope="module")
def parted() -> Iterator[World]:
    """Two partitions for rebuild jobs, and a node that is in none of them."""
    with served(PARTED) as world:
        yield world


@pytest.mark.accepts("A31")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["q[1-2]", "--partition", "night"], "q[1-2] are not in partition night, but in again"),
        (["c1,q1", "--partition", "again"], "c1 is not in partition again, but in night"),
        (["s1", "--partition", "again"], "s1 is not in partition again, nor in any other"),
        (["q1", "--partition", "main"], "q1 is not in partition main, but in debug"),
        (["x9", "--partition", "night"], "x9 is not in partition night\n"),
        (["--partition", "rebuild"], "known are main, debug, rest, night, again"),
    ],
)
def test_a_node_of_another_rebuild_partition_is_refused(
    parted: World, words: list[str], said: str
) -> None:
    done = parted.run("rebuild", *words, "--via", "jobs", "--force", "--yes")
    assert done.code == Exit.WRONG
    assert said in done.err
    assert not parted.batch.finished


def test_every_node_tells_in_which_partition_a_job_would_rebuild_it(parted: World) -> None:
    told = {name: row["rebuild_partition"] for name, row in parted.rows().items()}
    rest = {"s1": None, "metal1": None}
    assert told == {"c1": "night", "c2": "night", "q1": "again", "q2": "again"} | rest


@pytest.mark.accepts("A31")
def test_jobs_of_a_rebuild_partition_rebuild_its_nodes_alone() -> None:
    with served(PARTED) as world:
        bump(world)
        done = world.run("rebuild", "--via", "jobs", "--partition", "again", "--yes")
        assert (done.code, done.out.splitlines()[-1]) == (0, "q[1-2]: rebuilt")
        runs = {name: row["image"] for name, row in world.rows().items() if name != "metal1"}
        assert runs == {"c1": "host", "c2": "host", "q1": "new", "q2": "new", "s1": "host"}


def row(state: str, **changes: Any) -> dict[str, Any]:
    seen = {"name": "c1", "state": state, "generation": 1, "rebuilds": 0, "reason": ""}
    return {**seen, "outdated": None, "batch": {"boot_at": 5.0}, **changes}


def test_a_node_is_rebuilt_when_it_runs_what_the_file_wants() -> None:
    old = {"c1": row("ready", outdated="image a instead of b")}
    assert decide_rebuilt(old, [row("ready", outdated="image a instead of b")]).waiting
    assert decide_rebuilt(old, [row("joining", generation=2)]).waiting == {"c1": "joining"}
    assert decide_rebuilt(old, [row("ready", generation=2)]).done == ("c1",)
    assert decide_rebuilt(old, [row("off")]).done == ("c1",)


def test_a_node_that_does_not_come_back_is_told_with_its_reason() -> None:
    old = {"c1": row("ready", outdated="image a instead of b")}
    standing = decide_rebuilt(old, [row("failed", reason="no boot")])
    assert (standing.fallen, standing.exit) == ({"c1": "no boot"}, Exit.FAILED)


def test_a_node_that_was_right_before_must_boot_again() -> None:
    right = {"c1": row("ready")}
    assert decide_rebuilt(right, [row("ready")]).waiting == {"c1": "ready"}
    assert decide_rebuilt(right, [row("ready", batch={"boot_at": 9.0})]).done == ("c1",)


def test_a_node_whose_rebuild_failed_before_it_was_touched_is_not_waited_for() -> None:
    why = "Slurm did not reboot it within 60 s"
    for outdated in ("image a instead of b", None):
        old = {"c1": row("ready", outdated=outdated)}
        back = decide_rebuilt(old, [row("ready", outdated=outdated, reason=why)])
        assert (back.fallen, back.exit) == ({"c1": why}, Exit.FAILED)
        known = {"c1": row("ready", outdated=outdated, reason=why)}
        assert decide_rebuilt(known, known.values()).waiting == {"c1": "ready"}
    new = row("ready", generation=2, reason=why)
    assert decide_rebuilt(old, [new]).done == ("c1",)


@pytest.mark.parametrize("outdated", ["image a instead of b", None])
def test_a_node_that_nobody_is_about_to_rebuild_is_not_waited_for(outdated: str | None) -> None:
    old = {"c1": row("ready", outdated=outdated)}
    assert decide_rebuilt(old, old.values(), ["c1"]).fallen == {"c1": CANCELLED}
    assert decide_rebuilt(old, old.values(), ["c2"]).waiting == {"c1": "ready"}
    assert decide_rebuilt(old, [row("joining")], ["c1"]).waiting == {"c1": "joining"}
    assert decide_rebuilt(old, [row("ready", generation=2)], ["c1"]).done == ("c1",)


def test_looks_at_which_nobody_is_about_to_rebuild_a_node_are_counted_in_a_row() -> None:
    jobs = {"c1": "5", "c2": "6", "c3": "7"}
    once = count_idle({}, jobs, {"jobs": ["5"], "nodes": "c2"})
    assert once == {"c3": 1}
    twice = count_idle(once, jobs, {"jobs": ["9"], "nodes": ""})
    assert twice == {"c1": 1, "c2": 1, "c3": 2}
    assert count_idle(twice, jobs, {"jobs": ["7"], "nodes": ""}) == {"c1": 2, "c2": 2}
    assert count_idle(twice, jobs, {"jobs": None, "nodes": ""}) == {}


# --- update --------------------------------------------------------------------------------


def test_running_nodes_are_configured_again_and_keep_their_instance(world: World) -> None:
    before = {name: row["instance"] for name, row in world.rows().items()}
    done = watched(world, ["✓ c[1-2] (2 of 3)"], "update", "--batch", "2", "--yes")
    assert done.code == 0, done.err
    assert {name: row["instance"] for name, row in world.rows().items()} == before
    assert world.operations()[0]["kind"] == "update"


def test_an_update_asks_and_a_dry_run_only_shows(world: World) -> None:
    done = world.run("update", "c1", "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed\n")
    assert "configure software" in done.out
    code, said = world.answered(b"no\n", "update", "c1")
    assert (code, "type yes to configure c1 again" in said) == (Exit.FAILED, True)
    assert len(world.operations()) == 1


# --- how far it is ---------------------------------------------------------------------------


@pytest.mark.accepts("A14")
def test_each_node_is_listed_with_image_rebuilds_and_uptime(world: World) -> None:
    bump(world)
    assert world.run("rebuild", "c2", "--yes").code == 0
    lines = [line.split("  ") for line in world.run("nodes", "--images").out.splitlines()]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert cells[0] == ["NODES", "STATE", "IMAGE", "WANTED", "RIGHT?", "REBUILDS", "UPTIME"]
    assert cells[1][:6] == ["c[1,3]", "ready", "host", "new", "no: image host instead of new", "0"]
    assert cells[2][:6] == ["c2", "ready", "new", "new", "yes", "1"]
    assert cells[3] == ["c4", "off", "-", "new", "-", "0", "-"]
    assert cells[2][6].endswith("s")
    each = world.run("nodes", "--images", "--each", "c[1-3]").out.splitlines()
    assert [line.split()[0] for line in each[1:]] == ["c1", "c2", "c3"]
    rows = json.loads(world.run("nodes", "--images", "--json").out)["nodes"]
    assert [row["rebuilds"] for row in rows[:3]] == [0, 1, 0]


def test_what_the_record_says_counts_if_the_provider_does_not_say() -> None:
    node = {"name": "c1", "state": "ready", "generation": 1, "image": "old", "rebuilds": 2}
    node |= {"wanted_image": "old", "outdated": None, "batch": {"boot_at": NOW - 7200}}
    instance = {"generation": 1, "image": None}
    [cells] = render_images([{**node, "instances": [instance]}], each=False, now=NOW)
    assert cells == ["c1", "ready", "old", "old", "yes", "2", "2h"]


def test_machines_that_we_never_touch_have_no_image() -> None:
    assert render_images([{"name": "m1", "state": None}], each=False, now=NOW) == []


def rounds(done: str, later: str, ended: bool = False, **fallen: str) -> dict[str, Any]:
    steps = [step.value for step in PLANS[Kind.REBUILD]]
    state, at = ("partly done", 1.0) if ended else ("running", None)
    one = {"nodes": "c[1-4]", "steps": steps, "steps_done": len(steps) if ended else 2}
    return {**one, "done": done, "later": later, "fallen": fallen, "state": state, "ended_at": at}


def test_of_batches_it_is_told_who_is_through_and_who_fell_out() -> None:
    first, second = rounds("", "c[2-4]"), rounds("c[1-2]", "c4", c3="no boot")
    assert list(render_done(first, second)) == ["✓ c[1-2] (2 of 4)", "✗ c3: no boot"]
    assert list(render_done(second, rounds("c[1-2]", "", ended=True, c3="no boot"))) == [
        "✓ c4 (3 of 4)"
    ]
