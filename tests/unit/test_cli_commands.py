"""The commands against a daemon with its API on a socket; cloud and batch system are fakes."""

import json
import os
import random
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from springtide.cli.client import Client
from springtide.cli.endings import Exit
from springtide.cli.events import _to_come
from springtide.ports import InstanceState, NoCapacity
from tests.unit.cli_world import LIMIT_S, LONG_S, SPEC, World, heard, run, served, wait_until

UNWELL = "health check failed"


@pytest.fixture
def world() -> Iterator[World]:
    with served() as world:
        yield world


def states(world: World) -> dict[str, str]:
    answer = json.loads(world.run("nodes", "--json").out)
    return {node["name"]: node["state"] for node in answer["nodes"]}


# --- looking -----------------------------------------------------------------------------


@pytest.mark.accepts("C18")
def test_every_configured_node_is_listed_with_all_its_states(world: World) -> None:
    assert world.run("resume", "c[1-2]").code == 0
    lines = [line.split() for line in world.run("nodes").out.splitlines()]
    assert " ".join(lines[0]) == "NODES GROUP STATE SLURM INSTANCE ADDRESS CHANGED REASON"
    assert lines[1][:5] == ["c[1-2]", "general", "ready", "IDLE+CLOUD", "running"]
    assert lines[2][:5] == ["c[3-4]", "general", "off", "IDLE+CLOUD+POWERED_DOWN", "-"]
    assert lines[3][0] == "metal[1-2]"
    each = world.run("nodes", "-1").out.splitlines()
    assert [line.split()[0] for line in each[1:]] == ["c1", "c2", "c3", "c4", "metal1", "metal2"]


def test_some_nodes_can_be_looked_at(world: World) -> None:
    assert world.run("nodes", "c[2-3]").out.splitlines()[1].split()[0] == "c[2-3]"
    assert world.run("nodes", "metal1").out.splitlines()[1].startswith("metal1")


def test_what_a_silent_batch_system_would_know_is_said_to_be_missing(world: World) -> None:
    world.batch.unavailable = True
    done = world.run("nodes")
    assert done.code == 0
    assert "incomplete: the fake batch system was told not to answer" in done.err
    assert "fake does not answer" in world.run("status").out


def test_the_status_counts_nodes_and_names_what_runs(world: World) -> None:
    assert world.run("resume", "c1").code == 0
    world.faults.delete_s = LONG_S
    world.run("suspend", "c1", "--no-wait")
    wait_until(lambda: "delete instances (1 of 2)" in world.run("status").out)
    assert "nodes        4: 3 off, 1 deleting" in world.run("status").out


# --- changing ----------------------------------------------------------------------------


@pytest.mark.accepts("E27")
def test_nodes_are_resumed_and_suspended_by_hand(world: World) -> None:
    world.faults.boot_s = LONG_S
    done = world.run_until("resume c[1-3]: 3 joining", world.boot, "resume", "c[1-3]")
    assert (done.code, done.out) == (0, "c[1-3]: ready\n")
    done = world.run("suspend", "c[1-2]")
    assert (done.code, done.out) == (0, "c[1-2]: off\n")
    assert [states(world)[name] for name in ("c1", "c2", "c3", "c4")] == [
        "off",
        "off",
        "ready",
        "off",
    ]


def test_asking_twice_is_done_at_once(world: World) -> None:
    assert world.run("suspend", "c1").out == "c1: off\n"
    assert world.run("resume", "c1").out == "c1: ready\n"
    assert world.run("resume", "c1").out == "c1: ready\n"
    [node] = json.loads(world.run("nodes", "c1", "--json").out)["nodes"]
    assert [instance["generation"] for instance in node["instances"]] == [1]


def test_a_node_that_fell_out_is_named_with_its_reason(world: World) -> None:
    world.faults.refused_nodes = {"c2": NoCapacity("no host has 64 cpus")}
    done = world.run("resume", "c[1-2]")
    assert (done.code, done.out) == (Exit.PARTLY, "c1: ready\n")
    assert "tide: c2: the provider is full: no host has 64 cpus" in done.err
    assert done.err.endswith("tide: `tide why c2` tells more\n")
    done = world.run("resume", "c2")
    assert (done.code, done.out) == (Exit.FAILED, "")


def test_each_node_that_did_not_come_up_is_named_with_the_cause_that_was_found(
    world: World,
) -> None:
    async def die() -> None:
        world.faults.before_s = 1.0  # one looks several times until the console is read
        for instance in world.cloud.alive():
            world.cloud.die(instance.id, InstanceState.BROKEN)

    world.faults.boot_s = LONG_S
    world.cloud.said |= {"c1": f"{UNWELL}: GPU 3 is off\n", "c2": f"{UNWELL}: no disk\n"}
    ends = partial(world.call, die)
    done = world.run_until("resume c[1-2]: 2 joining", ends, "resume", "c[1-2]")
    assert done.code == Exit.FAILED
    for name, why in (("c1", "GPU 3 is off"), ("c2", "no disk")):
        assert re.search(f"tide: {name}: its instance died .*{UNWELL}: {why}\n", done.err)


def test_one_need_not_wait(world: World) -> None:
    done = world.run("resume", "c1", "--no-wait")
    assert done.code == 0
    assert "the batch system was asked to resume c1" in done.out
    wait_until(lambda: states(world)["c1"] == "ready")
    assert "c1: nothing to do" in world.run("resume", "c1", "--no-wait").out


def test_one_can_wait_for_a_limited_time(world: World) -> None:
    world.faults.boot_s = LONG_S
    world.run("resume", "c1", "--no-wait")
    wait_until(lambda: states(world)["c1"] == "joining")
    done = world.run("resume", "c1", "--timeout", "0.5s")
    assert done.code == Exit.FAILED
    assert "c1: not ready in time (1 joining); it goes on in the daemon" in done.err


def test_nodes_with_jobs_are_waited_for_and_it_is_said(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: states(world)["c1"] == "ready")
    said = "c1: the batch system lets them go when their jobs have ended; see `tide nodes c1`"
    done = world.run_past_job(said, "suspend", "c[1-2]")
    assert (done.code, done.out) == (0, "c[1-2]: off\n")
    assert len(world.batch.finished) == 1


def test_a_dry_run_shows_the_plan_and_changes_nothing(world: World) -> None:
    done = world.run("resume", "c[1-2]", "--dry-run")
    assert done.code == 0
    assert "step 1   create instances" in done.out
    assert "nothing was changed" in done.err
    assert world.run("suspend", "c1", "--dry-run").code == 0
    assert world.run("destroy", "--dry-run").code == 0
    assert set(states(world).values()) == {"off", None}


def test_ctrl_c_ends_the_watching_and_not_the_work(world: World) -> None:
    world.faults.boot_s = LONG_S
    with world.begun("resume", "c1") as process:
        wait_until(lambda: states(world)["c1"] == "joining")
        assert process.stderr is not None
        heard(process.stderr, "operation")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == Exit.INTERRUPTED
    assert "the operation goes on in the daemon; see `tide operations 2`" in rest
    assert "Traceback" not in rest
    world.boot()
    wait_until(lambda: states(world)["c1"] == "ready")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_stranger_may_look_but_not_change(world: World) -> None:
    assert world.as_user("nobody", "nodes").returncode == 0
    refused = world.as_user("nobody", "resume", "c1")
    assert refused.returncode == Exit.FAILED
    assert "user nobody may not change this cluster; root, slurm may" in refused.stderr
    for words in (
        ["suspend", "c1"],
        ["kill", "c1", "--yes"],
        ["drain", "c1", "--reason", "mine"],
        ["undrain", "c1"],
        ["start"],
        ["operations", "1", "--cancel"],
    ):
        refused = world.as_user("nobody", *words)
        assert (refused.returncode, "may not change" in refused.stderr) == (Exit.FAILED, True)


# --- operations --------------------------------------------------------------------------


def test_an_operation_is_shown_with_its_steps(world: World) -> None:
    world.faults.refused_nodes = {"c2": NoCapacity("full up")}
    world.run("resume", "c[1-2]")
    wait_until(lambda: "partly done" in world.run("operations").out)
    text = world.run("operations", "2").out
    assert "done     create instances" in text
    assert "fallen   c2: the provider is full: full up" in text
    listed = json.loads(world.run("operations", "--json").out)["operations"]
    assert [one["kind"] for one in listed][-2:] == ["resume", "deploy"]


def test_an_operation_can_be_cancelled(world: World) -> None:
    world.faults.boot_s = LONG_S
    world.run("resume", "c1", "--no-wait")
    wait_until(lambda: states(world)["c1"] == "joining")
    done = world.run("operations", "2", "--cancel")
    assert done.code == 0
    assert "cancelled by root" in done.out
    again = world.run("operations", "2", "--cancel")
    assert (again.code, again.err) == (Exit.FAILED, "tide: operation 2 is not running\n")


# --- events ------------------------------------------------------------------------------


def test_events_tell_the_story_in_order(world: World) -> None:
    world.run("resume", "c[1-3]")
    lines = world.run("events", "--operation", "2").out.splitlines()
    story = [line.split("  ")[-1] for line in lines]
    assert story[:3] == [
        "operation started: resume c[1-3]",
        "c[1-3] node requested: generation 1",
        "c[1-3] instance created …",
    ]
    raw = [json.loads(line) for line in world.run("events", "c2", "--json").out.splitlines()]
    assert {event["node"] for event in raw} == {"c2"}
    assert [event["id"] for event in raw] == sorted(event["id"] for event in raw)


def test_events_can_be_followed(world: World) -> None:
    with world.begun("events", "--follow", "--json") as process:
        assert process.stdout is not None
        heard(process.stdout, "operation ended")
        world.run("resume", "c[1-4]", "--no-wait")
        seen: list[Any] = []
        while not seen or seen[-1]["what"] != "operation ended":
            seen.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
    assert process.returncode == Exit.INTERRUPTED
    assert sum(event["what"] == "node registered" for event in seen) == 4


class Quiet(Client):
    """Of which nothing comes; who listens is interrupted, and not who waits for what is heard."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.left, self.waited_in_vain = threading.Event(), False

    def lines(self, path: str, **query: object) -> Iterator[Any]:
        self.left.wait(0.5)  # until it waits; if it does not yet, it hears of it at once
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        self.waited_in_vain = not self.left.wait(LIMIT_S / 4)
        yield from ()


def test_a_follower_hears_of_an_interruption_that_did_not_wake_it(tmp_path: Path) -> None:
    """As of one that comes after Python's last look and before it waits."""
    quiet = Quiet(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(_to_come(quiet, 0, {}))
    finally:
        quiet.left.set()
        signal.signal(signal.SIGINT, before)
    assert not quiet.waited_in_vain


def test_a_follower_is_told_when_the_daemon_stops(world: World) -> None:
    with world.begun("events", "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        world.server.should_exit = True
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == Exit.AWAY
    assert "Traceback" not in errors


def test_a_reader_that_leaves_ends_the_command_quietly(world: World) -> None:
    with world.begun("events", "--follow", "-1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        world.run("resume", "c1")
        errors = process.stderr.read()
    assert (process.returncode, errors) == (Exit.PIPE_CLOSED, "")


# --- wrong usage -------------------------------------------------------------------------


@pytest.mark.accepts("E25")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resume", ""], "empty host list: give at least one node name"),
        (["suspend", " "], "empty host list"),
        (["nodes", ""], "empty host list"),
        (["plan", "resume", ""], "empty host list"),
        (["plan", "resume"], "resume needs a host list"),
        (["resume", "c[1"], "this '[' is never closed"),
        (["resume", "x9"], "unknown node x9; the cluster has c[1-4] (general)"),
        (["nodes", "x9"], "unknown node x9"),
        (["events", "x9"], "unknown node x9"),
        (["events", "c[1-2]"], "name one node"),
        (["events", "--operation", "99"], "there is no operation 99"),
        (["plan", "explode"], "there is no operation 'explode'; known are deploy, resume"),
        (["explode"], "No such command 'explode'"),
        (["operations", "99"], "there is no operation 99"),
        (["operations", "99", "--cancel"], "there is no operation 99"),
        (["operations", "--cancel"], "--cancel needs the ID"),
        (["operations", "x"], "is a whole number from 1, not 'x'"),
        (["operations", "9" * 23], "the ID of an operation cannot be so large: 999"),
        (["rebuild", "--batch", "9" * 23], "--batch cannot be so large: 999"),
        (["why", " "], "name a job or a node"),
        (["operations", "--limit", "0"], "--limit is a whole number from 1"),
        (["resume", "c1", "--timeout", "soon"], "'soon' is no time"),
        (["resume", "metal1"], "never created, deleted or suspended"),
        (["destroy"], "nobody can be asked here: say --yes"),
        (["destroy", "--yes-really", "other"], "--yes-really names other, this is sim"),
    ],
)
def test_wrong_usage_is_told_clearly(shared: World, arguments: list[str], said: str) -> None:
    done = shared.run(*arguments)
    assert done.code == Exit.WRONG
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """For commands that change nothing."""
    with served() as world:
        yield world


@pytest.mark.accepts("A23")
def test_a_protected_cluster_must_be_named() -> None:
    with served(SPEC + "protected: true\n") as world:
        done = world.run("destroy", "--yes")
        assert done.code == Exit.WRONG
        assert "sim is protected; nobody can be asked here: say --yes-really sim" in done.err
        assert json.loads(world.run("status", "--json").out)["operations"] == []


def test_where_nothing_is_nothing_can_be_destroyed(tmp_path: Path) -> None:
    done = run("destroy", "--yes", "--state", str(tmp_path))
    assert done.code == Exit.AWAY
    assert done.err == f"tide: there is no cluster in {tmp_path}: nothing to destroy\n"
    (tmp_path / "record.db").touch()
    done = run("destroy", "--yes", "--state", str(tmp_path))
    assert done.code == Exit.AWAY
    assert "has no copy of the cluster's file: serve it with `tide daemon FILE`" in done.err


def test_garbage_on_the_socket_harms_nobody(shared: World) -> None:
    garbage = random.Random(1).randbytes(1 << 20)
    for start in (b"", b"POST /operations HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT_S)
            connection.connect(str(shared.layout.socket))
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(start + garbage)
                assert b" 400 " in connection.recv(4096)
        assert shared.run("status").code == 0
