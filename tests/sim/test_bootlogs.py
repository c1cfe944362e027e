"""Failed boots in a cloud that misbehaves: their logs are kept, and nobody waits long for that."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from springtide.model import Kind, NodeState
from springtide.ports import InstanceState
from springtide.providers.fake import Faults
from springtide.spec import Containers
from springtide.steps.bootlogs import PATIENCE_S, keep_log, push
from springtide.steps.work import Work
from tests.sim.world import SPEC, Life, World

pytestmark = pytest.mark.looptime

LATE = "it did not register within 120 s (timing.start)"


def world_in(directory: Path, faults: Faults, nodes: int = 1) -> World:
    text = f"state: {directory}\n{SPEC.format(nodes=nodes, lock='10m')}"
    return World(directory, nodes=nodes, faults=faults, text=text)


async def until(done: Callable[[], bool], limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not done():
            await asyncio.sleep(0.25)


async def failed(world: World, name: str = "c1") -> str:
    """Why it failed."""
    assert world.daemon is not None
    events = await world.daemon.parts.record.store.events(node=name)
    return next(event.detail for event in events if event.what == "node failed")


async def test_the_log_of_a_node_that_never_ran_is_kept_when_its_instance_is_gone(
    tmp_path: Path,
) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await daemon.engine.wait(operation.id)
        assert await failed(world) == f"{LATE}; its instance does not run yet: see `tide log c1`"
        assert world.cloud.alive() == []
    assert (tmp_path / "boots" / "c1.1.log").read_text() == (
        "its instance does not run yet: see `tide log c1`\n\nc1 booted\n"
    )


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        (InstanceState.BROKEN, "its instance died while it booted: "),
        (InstanceState.STOPPED, "its instance was stopped while it booted: see `tide log c1`"),
    ],
)
async def test_an_instance_that_ends_while_it_boots_is_told_with_where_its_last_words_are(
    tmp_path: Path, leaves: InstanceState, words: str
) -> None:
    world = world_in(tmp_path, Faults(boot_s=60))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: daemon.parts.record.nodes["c1"].state is NodeState.JOINING)
        world.cloud.die(world.cloud.alive()[0].id, leaves)
        await daemon.engine.wait(operation.id)
        assert (await failed(world)).startswith(words)


async def test_of_an_instance_that_says_nothing_it_is_kept_that_nothing_was_heard(
    tmp_path: Path,
) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0))
    world.cloud.said["c1"] = ""
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await daemon.engine.wait(operation.id)
    assert (tmp_path / "boots" / "c1.1.log").read_text() == (
        "its instance does not run yet\n\n"
        "nothing was heard from it; look at the console of its machine, if it has one"
    )


async def test_who_asked_for_a_node_is_told_what_its_instance_died_of(tmp_path: Path) -> None:
    world = world_in(tmp_path, Faults(boot_s=60))
    world.cloud.said["c1"] = "health check failed: disk is full\n"
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: daemon.parts.record.nodes["c1"].state is NodeState.JOINING)
        world.cloud.die(world.cloud.alive()[0].id, InstanceState.BROKEN)
        ended = await daemon.engine.wait(operation.id)
        assert ended is not None
        assert ended.fallen == {"c1": await failed(world)}
        assert "health check failed: disk is full" in ended.fallen["c1"]


async def test_many_nodes_that_fail_together_cost_a_list_and_a_question_each_once(
    tmp_path: Path,
) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0), nodes=100)
    async with world.living(Life()) as daemon:
        names = [f"c{n}" for n in range(1, 101)]
        (operation,) = await daemon.engine.submit(Kind.RESUME, names, asked_by="x")
        await daemon.engine.wait(operation.id)
        assert world.cloud.calls["console"] == 1
        assert len(list((tmp_path / "boots").glob("*.log"))) == 100


async def test_how_far_a_container_came_is_kept_once_though_its_boot_failed(tmp_path: Path) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0))
    wanted = world.spec.model_copy(update={"provider": Containers()})
    world.cloud.said["c1"] = "springtide: phase started up 9.00\nspringtide: phase mounts up 9.50\n"
    async with world.living(Life()) as daemon:
        daemon.parts.spec = wanted
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: daemon.parts.record.nodes["c1"].state is NodeState.JOINING)
        await keep_log(Work(daemon.parts, operation, ("c1",)), ["c1"])
        await daemon.engine.wait(operation.id)
        kept = await daemon.parts.record.store.phases("c1")
    assert [(one.generation, one.name) for one in kept] == [(1, "started"), (1, "mounts")]


@pytest.mark.parametrize("fault", [{"before_s": 10_000.0}, {"denied": True}])
async def test_a_provider_that_fails_or_is_silent_holds_up_no_node_for_long(
    tmp_path: Path, fault: dict[str, Any]
) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: daemon.parts.record.nodes["c1"].state is NodeState.JOINING)
        world.cloud.faults = Faults(**fault)
        began = asyncio.get_running_loop().time()
        assert await keep_log(Work(daemon.parts, operation, ("c1",)), ["c1"]) == {}
        assert asyncio.get_running_loop().time() - began <= 2 * PATIENCE_S
        world.cloud.faults = Faults()
    assert not (tmp_path / "boots").exists()


async def test_what_a_node_sent_itself_is_kept_though_its_provider_fails(tmp_path: Path) -> None:
    world = world_in(tmp_path, Faults(stuck_boots=1.0))
    async with world.living(Life()) as daemon:
        (operation,) = await daemon.engine.submit(Kind.RESUME, ["c1"], asked_by="x")
        await until(lambda: daemon.parts.record.nodes["c1"].state is NodeState.JOINING)
        push(tmp_path / "boots", daemon.parts.record.nodes["c1"], "no munge", "munged: Error\n")
        world.cloud.faults = Faults(denied=True)
        found = await keep_log(Work(daemon.parts, operation, ("c1",)), ["c1"])
        assert found == {"c1": "its boot failed: no munge"}
        kept = (tmp_path / "boots" / "c1.1.log").read_text()
        assert kept.endswith("the node gave up: no munge\nmunged: Error")
        world.cloud.faults = Faults()
