"""Nodes that say themselves that their boot has failed are not waited for, and tell why."""

import asyncio
from pathlib import Path

import pytest

from springtide import decide, failures
from springtide.model import Kind, Node, NodeState, OperationState
from springtide.ports import Instance, InstanceState
from springtide.providers.fake import Faults
from springtide.steps import Parts
from springtide.steps.bootlogs import push, read_kept
from tests.sim.world import SPEC, Life, World

pytestmark = pytest.mark.looptime

WHY = "it has 900 MiB, Slurm is told 1000: correct the flavor"


def test_only_what_this_instance_said_counts() -> None:
    nodes = [Node("c1", "g", NodeState.JOINING, 2), Node("c2", "g", NodeState.JOINING, 2)]
    said = {"c1": (1, "long ago"), "c2": (2, "no slurmd")}
    assert decide.gave_up(nodes, said) == {"c2": "its boot failed: no slurmd"}


def test_its_reason_is_that_of_a_failed_boot() -> None:
    reason = f"{decide.GAVE_UP}: no slurmd"
    assert reason.startswith(failures.Trouble.GAVE_UP)
    assert failures.is_failed_boot(reason)
    assert failures.explain(reason, "its boot failed: no slurmd") == reason


def test_what_a_node_sent_explains_its_failure() -> None:
    console = "Linux version 6.1\nthe node gave up: /home is not mounted\nmount: no route"
    node = Node("c1", "g", NodeState.JOINING, 1, instance="i-1")
    instance = Instance("i-1", "sim", "c1", 1, InstanceState.RUNNING)
    found = failures.classify(node, instance, None, console)
    assert found.words == "its boot failed: /home is not mounted"


def is_joining(parts: Parts) -> bool:
    return parts.record.nodes["c1"].state is NodeState.JOINING


@pytest.mark.accepts("X16")
async def test_a_node_that_gave_up_is_given_back_long_before_its_time_is_over(
    tmp_path: Path,
) -> None:
    text = f"state: {tmp_path}\n{SPEC.format(nodes=2, lock='10m')}"
    world = World(tmp_path, nodes=2, faults=Faults(before_s=0.1, boot_s=40), text=text)
    async with world.living(Life()) as daemon:
        parts, loop = daemon.parts, asyncio.get_running_loop()
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1", "c2"], asked_by="x")
        while not is_joining(parts):
            await asyncio.sleep(0.1)
        push(daemon.layout.boots, parts.record.nodes["c1"], WHY, "the end of its log\n")
        parts.gave_up["c1"] = (1, WHY)
        began = loop.time()
        while is_joining(parts):
            await asyncio.sleep(0.1)
        assert loop.time() - began < 10, "timing.start is 120 s"
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.state is OperationState.PARTLY
        assert parts.record.nodes["c2"].state is NodeState.READY
        events = await parts.record.store.events(node="c1")
        (failed,) = [event.detail for event in events if event.what == "node failed"]
        assert failed == f"its boot failed: {WHY}"
        kept = read_kept(daemon.layout.boots, "c1", 1)
        assert kept is not None
        assert kept.text.startswith(f"its boot failed: {WHY}\n\n")
        assert kept.text.endswith(f"the node gave up: {WHY}\nthe end of its log")


@pytest.mark.accepts("X16")
async def test_a_node_that_gave_up_is_not_waited_for_after_the_daemon_was_killed(
    tmp_path: Path,
) -> None:
    """It says so once."""
    text = f"state: {tmp_path}\n{SPEC.format(nodes=1, lock='10m')}"
    world, life = World(tmp_path, faults=Faults(stuck_boots=1.0), text=text), Life()
    async with world.living(life) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        while not is_joining(daemon.parts):
            await asyncio.sleep(0.1)
        await daemon.joining.given_up.keep(daemon.parts.record.nodes["c1"], "boot-1", WHY)
        life.over.set()
    began = asyncio.get_running_loop().time()
    async with world.living(Life()) as daemon:
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.fallen == {"c1": f"its boot failed: {WHY}"}
        assert asyncio.get_running_loop().time() - began < 60, "timing.start is 120 s"
