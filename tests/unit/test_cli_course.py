"""What is said of deploys, suspends and destroys that do not go smoothly."""

from pathlib import Path
from typing import Any

import pytest

from springtide.cli.client import Client
from springtide.cli.course import follow, render_done, render_said
from springtide.cli.destroy import Doomed, render_in_batch
from springtide.cli.endings import Exit
from springtide.cli.progress import Progress
from springtide.cli.rising import render_left
from springtide.model import PLANS, Kind
from springtide.ports import InstanceState, NoCapacity
from tests.unit.cli_world import LONG_S, SPEC, World, served, wait_until

STEPS = [step.value for step in PLANS[Kind.DEPLOY]]
ALWAYS_UP = SPEC.replace('nodes: "c[1-4]"', 'nodes: "c[1-4]", min: 1')


def deployed(done: int, ended: bool = False, **fallen: str) -> dict[str, Any]:
    return {
        "nodes": "c[1-2]",
        "steps": STEPS,
        "steps_done": done,
        "fallen": fallen,
        "done": "",
        "later": "",
        "ended_at": 1.0 if ended else None,
    }


# --- the steps of an operation -----------------------------------------------------------


def test_a_step_is_marked_if_nodes_fell_out_in_it() -> None:
    lines = list(render_done(deployed(1), deployed(2, c1="full up")))
    assert lines == ["✗ create instances: c1: full up"]
    assert list(render_done(deployed(2, c1="full up"), deployed(3, c1="full up"))) == [
        "✓ wait reachable"
    ]


def test_what_happened_to_a_node_is_said_with_its_name() -> None:
    assert render_said("c1", "ansible: failed") == "c1: ansible: failed"
    assert render_said(None, "ansible: task Look") == "ansible: task Look"


def test_steps_that_had_no_node_left_are_not_said_to_be_done() -> None:
    lost = {"c1": "full up", "c2": "full up"}
    assert list(render_done(deployed(0), deployed(len(STEPS), ended=True, **lost))) == [
        "✓ prepare site",
        "✗ create instances: c[1-2]: full up",
        "- wait reachable: no node is left",
        "- refresh inventory, write hosts: no node is left",
        "✓ configure software",
        "✓ write batch config, reload",
        "- wait registered: no node is left",
    ]


def test_what_could_not_be_configured_is_told_at_that_step() -> None:
    lost = {"c1": "Ansible could not configure it: no room"}
    assert list(render_done(deployed(3), deployed(len(STEPS), ended=True, **lost))) == [
        "✓ refresh inventory, write hosts",
        "✗ configure software: c1: Ansible could not configure it: no room",
        "✓ write batch config, reload",
        "✓ wait registered",
    ]
    assert list(
        render_done(deployed(4, ended=False, **lost), deployed(5, ended=False, **lost))
    ) == ["✗ configure software: c1: Ansible could not configure it: no room"]


def test_the_step_that_an_operation_failed_at_is_marked() -> None:
    assert list(render_done(deployed(0), deployed(0, ended=True))) == ["✗ prepare site"]


def test_a_deploy_is_followed_with_what_fell_out(capsys: pytest.CaptureFixture[str]) -> None:
    with served(ALWAYS_UP) as world:
        world.faults.refused_nodes = {"c1": NoCapacity("no host has 64 cpus")}
        assert world.run("suspend", "c1").code == 0  # and the daemon tries at once to have it up
        daemon = Client(world.layout.state)
        [opened] = daemon.post("/operations", {"operation": "deploy"})["operations"]
        operation = follow(daemon, opened["id"], Progress())
    assert operation is not None
    assert operation["state"] == "failed"
    assert "✗ create instances: c1: the provider is full: no host has" in capsys.readouterr().err


def test_a_failed_deploy_says_what_stays_and_what_to_do() -> None:
    state = Path("/var/lib/springtide/blue")
    bare = {"control_address": None, "batch": {"problem": "down"}}
    assert render_left(bare, state).startswith("the daemon stays: correct what is wrong")
    up = {"control_address": "10.77.0.1", "batch": {"problem": None}}
    text = render_left(up, state)
    assert text.startswith("the daemon, the network of 10.77.0.1, slurmctld stay: ")
    assert "run `tide deploy --cluster blue` again" in text
    assert "`tide destroy --cluster blue`" in text
    theirs = render_left({**up, "file": "/root/blue.yaml"}, state)
    assert "run `tide deploy /root/blue.yaml` again" in theirs, "not of whatever file is there"


# --- suspend -----------------------------------------------------------------------------


def test_who_suspends_one_of_min_is_told_how_it_comes_back() -> None:
    with served(ALWAYS_UP) as world:
        done = world.run("suspend", "c[1-2]")
        assert done.code == 0
        assert "c1: one of the `min` that are always up, so it comes back by itself" in done.err
        assert "min" not in world.run("suspend", "c2").err


def test_a_dead_node_with_a_job_is_told_with_the_way_out() -> None:
    with served() as world:
        busy(world)
        world.call(lambda: die(world, "c1"))
        done = world.run("suspend", "c1", "--timeout", "0.1s")
    assert "c1: the instance is dead, but the batch system" in done.err
    assert "`tide kill c1`" in done.err
    assert "when their jobs have ended" not in done.err


def busy(world: World) -> None:
    world.submit(1, seconds=LONG_S)
    wait_until(lambda: "ready" in (row := world.run("nodes", "c1").out) and "ALLOCATED" in row)


async def die(world: World, node: str) -> None:
    """As a machine whose death Slurm has not heard of."""
    world.cloud.on_stopped.clear()
    [instance] = [one for one in world.cloud.alive() if one.node == node]
    world.cloud.die(instance.id, leaves=InstanceState.BROKEN)


def test_what_a_destroy_leaves_in_a_batch_system_is_said_with_how_to_remove_it() -> None:
    def said(kind: str, silent: bool = True) -> str:
        return render_in_batch(Doomed("sim", False, {"nodes": "c[1-3]"}, True, kind, silent))

    rest = (
        " it still has what it had of c[1-3], and shows jobs on them as running; when it is back, "
        'remove them there: `qmgr -c "delete node NAME"`'
    )
    assert said("torque") == f"Torque did not answer:{rest}"
    assert said("torque", silent=False) == f"if Torque did not answer,{rest}"
    assert "`qconf -de NAME`" in said("gridengine")
    assert "slurm" not in said("gridengine").lower()
    assert "`scontrol update nodename=NAME state=down" in said("slurm")


# --- the question of destroy -------------------------------------------------------------


def test_ctrl_c_at_the_question_is_no_and_an_interruption() -> None:
    with served() as world:
        code, said = world.answered(b"\x03", "destroy")
        assert code == Exit.INTERRUPTED
        assert "jobs run on" not in said
        assert world.run("status").code == 0


def test_the_question_mentions_running_jobs() -> None:
    with served() as world:
        busy(world)
        code, said = world.answered(b"no\n", "destroy")
        assert code == Exit.FAILED
        assert "jobs run on c1 and would be lost; type yes to destroy cluster sim" in said
