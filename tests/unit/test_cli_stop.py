"""`tide stop` and `tide start`: a whole cluster, and its queue kept meanwhile."""

import json
import os
from collections.abc import Iterator

import pytest

from springtide.batch.fake import FakeBatch
from springtide.cli.endings import Exit
from springtide.steps import registration
from tests.unit.cli_world import LONG_S, SPEC, World, run, served, wait_until

UP = SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 2')


@pytest.fixture
def world() -> Iterator[World]:
    with served(UP) as world:
        yield world


def busy(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: bool(world.rows()["c1"]["batch"]["busy"]))


def is_stopped(world: World) -> bool:
    stopped: bool = json.loads(world.run("status", "--json").out)["stopped"]
    return stopped


def test_a_stopped_cluster_comes_back_with_its_nodes(world: World) -> None:
    done = world.run("stop", "--yes")
    assert done.code == 0, done.err
    again = f"`tide start --state {world.layout.state}` starts it"
    assert done.out == f"cluster sim is stopped; {again}\n"
    assert world.states("c1", "c2", "c3") == ["off"] * 3
    assert "control   stopped; run `tide start`" in world.run("status").out
    refused = world.run("resume", "c1")
    assert (refused.code, "sim is stopped; run `tide start` first" in refused.err) == (1, True)

    started = world.run("start")
    assert started.code == 0, started.err
    assert started.out.startswith("cluster sim is up: started; c[1-2] started\n")
    assert "control address 127.64.0.1, 2 of 4 nodes ready" in started.out
    assert not is_stopped(world)


def test_a_second_stop_and_a_second_start_change_nothing(world: World) -> None:
    assert "nothing had to be changed" in world.run("start").out
    assert world.run("stop", "--yes").code == 0
    before = world.operations()
    done = world.run("stop", "--yes")
    assert (done.code, done.out) == (0, "cluster sim is stopped already: nothing was changed\n")
    assert world.operations() == before


@pytest.mark.parametrize(
    ("join_s", "open_s", "there"),
    [(0.3, LONG_S, {"c1", "c2"}), (LONG_S, 0.0, set())],
    ids=["when nodes have registered", "when they take long"],
)
def test_jobs_that_waited_may_start(
    world: World, monkeypatch: pytest.MonkeyPatch, join_s: float, open_s: float, there: set[str]
) -> None:
    """A Slurm that is not ours runs on while the cluster is stopped; its partitions are closed."""
    registered: list[set[str]] = []

    async def reopen(batch: FakeBatch) -> None:
        nodes = await batch.nodes()
        registered.append({name for name, node in nodes.items() if node.registered})

    monkeypatch.setattr(FakeBatch, "reopen", reopen)
    monkeypatch.setattr(registration, "OPEN_S", open_s)
    assert world.run("stop", "--yes").code == 0
    world.timing.join_s = join_s
    world.call(lambda: world.daemon.people.deploy("test"))
    wait_until(lambda: bool(registered))
    assert registered[0] == there


def test_jobs_end_first(world: World) -> None:
    busy(world)
    done = world.run_past_job("1 waited for: 1 on c1", "stop", "--yes")
    assert done.code == 0, done.err
    assert len(world.batch.finished) == 1


def test_who_cannot_wait_has_jobs_go_back_to_the_queue(world: World) -> None:
    busy(world)
    code, said = world.answered(b"no\n", "stop", "--now")
    assert code == Exit.FAILED
    assert "jobs run on c1 and would start again from the queue; type yes to stop" in said
    assert world.run("stop", "--now", "--yes").code == 0
    assert list(world.batch.killed_jobs) == ["1"]
    assert is_stopped(world)


def test_jobs_that_do_not_end_in_time_keep_the_cluster_up(world: World) -> None:
    busy(world)
    done = world.run("stop", "--deadline", "0.5s", "--yes")
    assert done.code == Exit.FAILED
    assert "c1: its jobs did not end within" in done.err
    assert not is_stopped(world)
    wait_until(lambda: world.states("c1", "c2") == ["ready", "ready"])


def test_a_dry_run_stops_nothing(world: World) -> None:
    for command in ("stop", "start"):
        done = world.run(command, "--dry-run")
        assert (done.code, done.err) == (0, "nothing was changed\n")
        assert f" {command}\n" in done.out
    assert len(world.operations()) == 1


@pytest.mark.accepts("A23")
def test_a_protected_cluster_wants_its_name() -> None:
    with served(UP + "protected: true\n") as world:
        done = world.run("stop", "--yes")
        assert done.code == Exit.WRONG
        assert "sim is protected; nobody can be asked here: say --yes-really sim" in done.err
        code, said = world.answered(b"yes\n", "stop")
        assert (code, "sim is protected; type sim to stop cluster sim" in said) == (1, True)
        assert len(world.operations()) == 1
        assert world.answered(b"sim\n", "stop")[0] == Exit.DONE
        assert is_stopped(world)


def test_another_file_counts_from_the_next_start(world: World) -> None:
    assert world.run("stop", "--yes").code == 0
    world.file.write_text(world.file.read_text().replace("min: 2", "min: 3"))
    done = world.run("apply", "--yes")
    assert done.code == 0, done.err
    assert f"`tide start --state {world.layout.state}` does what follows" in done.out
    assert "c[1-3] started" in world.run("start").out


@pytest.mark.parametrize("command", ["stop", "start"])
def test_no_daemon_is_exit_code_4(command: str) -> None:
    assert run("--state", "/nowhere", command).code == Exit.AWAY


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_stranger_may_not_stop_it(world: World) -> None:
    done = world.as_user("nobody", "stop", "--yes")
    assert done.returncode == Exit.FAILED
    assert "nobody may not change this cluster" in done.stderr


def test_a_time_that_is_none_is_told(world: World) -> None:
    done = world.run("stop", "--deadline", "soon", "--yes")
    assert (done.code, "'soon' is no time" in done.err) == (Exit.WRONG, True)
