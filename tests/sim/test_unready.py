"""Nodes that are closed to jobs until they are set up, when something else goes wrong meanwhile.

Slurm may forget the reason of any drain when a node registers that it did not ask for.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch.fake_records import FakeNode
from springtide.daemon import Daemon
from springtide.model import Kind, NodeState
from springtide.ports import OURS, Power, Unavailable
from springtide.steps import unready
from springtide.steps.work import Work
from tests.sim.test_repair import ids, made, state, until
from tests.sim.test_service import deployed, drained
from tests.sim.test_software import Hands, again
from tests.sim.world import Life, World

pytestmark = [pytest.mark.looptime, pytest.mark.accepts("E3")]


def forget(world: World, name: str = "c1") -> None:
    """What Slurm does with the reason of a drain when a node registers unasked."""
    (node,) = world.batch._named([name])
    if node.drained:
        node.owner, node.reason = "somebody", ""


async def at_work(world: World, daemon: Daemon, takes_s: float = 60) -> None:
    """c1 died, was made anew, has registered, and is being set up."""
    hands = daemon.parts.software = Hands(takes_s=takes_s)
    world.cloud.die(ids(world)[0])
    await until(lambda: hands.seen == ["c1"])
    await asyncio.sleep(20)
    assert (await world.batch.nodes(["c1"]))["c1"].registered


@pytest.mark.parametrize("forgets", [False, True])
async def test_a_node_whose_start_is_cancelled_amid_its_setting_up_is_removed(
    tmp_path: Path, forgets: bool
) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        await at_work(world, daemon, takes_s=300)
        generation = daemon.parts.record.nodes["c1"].generation
        if forgets:
            forget(world)
        job = world.batch.submit(1, 1)
        found = await daemon.parts.record.store.operations(unfinished=True)
        (id,) = [one.id for one in found if one.kind is Kind.ENLARGE]
        await daemon.engine.cancel(id, "ann")
        await until(lambda: state(daemon) is NodeState.OFF)
        (seen,) = (await world.batch.nodes(["c1"])).values()
        assert seen.power is not Power.UP
        told = await daemon.parts.record.store.events(node="c1")
        assert "instance spared" not in {one.what for one in told}
        await until(lambda: job.state == "COMPLETED", 1200)
        assert daemon.parts.record.nodes["c1"].generation > generation
        assert world.batch.killed_jobs == {}
        assert await drained(world) == set()


async def two(tmp_path: Path) -> World:
    world = made(tmp_path, nodes=2, min=2)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await until(lambda: {state(daemon, n) for n in ("c1", "c2")} == {NodeState.READY})
        await daemon.engine.idle()
    return world


async def works(daemon: Daemon) -> tuple[Work, Work]:
    """Two enlarges side by side."""
    daemon.parts.software = Hands()
    first, *_ = await daemon.parts.record.store.operations()
    asked = replace(first, kind=Kind.ENLARGE)
    return Work(daemon.parts, asked, ("c1",)), Work(daemon.parts, asked, ("c2",))


async def test_one_is_opened_while_another_is_closed(tmp_path: Path) -> None:
    world = await two(tmp_path)
    async with world.living(Life()) as daemon:
        one, other = await works(daemon)
        await unready.close(one, ["c1"])
        opened = unready.open_up(daemon.parts, ["c1"], 0)
        await asyncio.gather(opened, unready.close(other, ["c2"]))
        assert await drained(world) == {"c2"}
        forget(world, "c2")
        await unready.open_up(daemon.parts, ["c2"], 0)
        assert await drained(world) == set()


async def test_two_are_closed_at_once(tmp_path: Path) -> None:
    world = await two(tmp_path)
    async with world.living(Life()) as daemon:
        one, other = await works(daemon)
        await asyncio.gather(unready.close(one, ["c1"]), unready.close(other, ["c2"]))
        assert await drained(world) == {"c1", "c2"}
        for name in ("c1", "c2"):
            forget(world, name)
            await unready.open_up(daemon.parts, [name], 0)
        assert await drained(world) == set()


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_person_s_drain_stays_though_slurm_forgets_it(
    tmp_path: Path, by_hand: bool
) -> None:
    """Made while the node boots, with our command or with Slurm's own."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: state(daemon) is NodeState.BOOTING)
        drain = world.batch.drain if by_hand else daemon.people.drain
        await drain(["c1"], "a broken disk", "ada")
        await until(lambda: hands.seen == ["c1"])
        await asyncio.sleep(20)
        forget(world)
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == {"c1"}


def forgetful(world: World, patch: pytest.MonkeyPatch) -> None:
    """From now on the reason of a drain goes in the moment in which a node registers."""
    register = world.batch._register

    def forgets(node: FakeNode) -> None:
        register(node)
        forget(world, node.name)

    patch.setattr(world.batch, "_register", forgets)


@pytest.mark.parametrize("takes_s", [0, 60])
async def test_a_drain_by_slurm_s_own_command_stays_though_the_node_was_to_register_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    """Made when the inventory is written and Ansible is at work, or even done."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=takes_s)
        forgetful(world, monkeypatch)
        monkeypatch.setattr(world.batch, "timing", replace(world.batch.timing, join_s=20))
        world.cloud.die(ids(world)[0])
        await until(lambda: hands.seen == ["c1"])
        await asyncio.sleep(1)
        (seen,) = (await world.batch.nodes(["c1"])).values()
        assert not seen.registered
        await world.batch.undrain(["c1"], OURS)
        await world.batch.drain(["c1"], "a broken disk", "ada")
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == {"c1"}


async def test_a_node_that_has_registered_says_again_why_it_takes_no_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a drain that a person makes after that is seen to be another."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        forgetful(world, monkeypatch)
        await at_work(world, daemon)
        (seen,) = (await world.batch.nodes(["c1"])).values()
        assert (seen.drained, seen.owner) == (True, OURS)
        assert "Ansible has yet to set it up" in seen.reason
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == set()


async def test_a_person_s_drain_outlasts_a_daemon_that_dies(tmp_path: Path) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: state(daemon) is NodeState.BOOTING)
        await daemon.people.drain(["c1"], "a broken disk", "ada")
    forget(world)
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(takes_s=60)
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == {"c1"}


async def test_a_drain_stays_that_had_no_owner_when_the_node_was_closed(tmp_path: Path) -> None:
    world = await two(tmp_path)
    async with world.living(Life()) as daemon:
        one, _ = await works(daemon)
        await world.batch.drain(["c1"], "a broken disk", "ada")
        forget(world)
        await unready.close(one, ["c1"])
        await unready.open_up(daemon.parts, ["c1"], 0)
        assert await drained(world) == {"c1"}


@pytest.mark.parametrize("away_s", [100, 1500])
async def test_a_node_is_not_ready_before_jobs_are_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    """Slurm refuses for a while; once longer than a node may take to start."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        await at_work(world, daemon)
        forget(world)

        async def refuse(*_: object) -> None:
            raise Unavailable("slurm_update error")

        with monkeypatch.context() as patched:
            patched.setattr(type(world.batch), "undrain", refuse)
            for _ in range(int(away_s)):
                await asyncio.sleep(1)
                assert state(daemon) is not NodeState.READY
        await until(lambda: state(daemon) is NodeState.READY, 3600)
        await daemon.engine.idle()
        assert await drained(world) == set()


async def test_a_node_that_is_off_is_opened_later_if_slurm_was_away(tmp_path: Path) -> None:
    """Whoever let it go could not open it."""
    world = made(tmp_path, nodes=2, min=1)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        _, work = await works(daemon)
        await unready.close(work, ["c2"])
        forget(world, "c2")
        await asyncio.sleep(3 * daemon.parts.spec.timing.reconcile)
        assert state(daemon, "c2") is NodeState.OFF
        assert await drained(world) == set()


async def test_a_deploy_sets_up_a_node_that_we_had_drained_ourselves(tmp_path: Path) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: state(daemon) is NodeState.OFF)
        await world.batch.drain(["c1"], "held back: its boots failed", OURS)
        await daemon.people.deploy("root")
        await until(lambda: hands.seen == ["c1"])
        await asyncio.sleep(20)
        forget(world)
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == set()


@pytest.mark.parametrize("kind", [Kind.ENLARGE, Kind.DEPLOY])
@pytest.mark.parametrize("failures", [1, 1000])
async def test_slurm_does_not_answer_when_a_node_is_to_be_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, failures: int
) -> None:
    """It is asked again for a while; what could not be closed is not made."""
    world = await two(tmp_path)
    async with world.living(Life()) as daemon:
        one, _ = await works(daemon)
        work, left = replace(one, operation=replace(one.operation, kind=kind)), [failures]
        drain = world.batch.drain

        async def slow(*words: str) -> None:
            left[0] -= 1
            if left[0] >= 0:
                raise Unavailable("timed out")
            await drain(*words)

        monkeypatch.setattr(world.batch, "drain", slow)
        monkeypatch.setattr(daemon.parts, "batch", world.batch)
        fallen = await unready.close(work, ["c1"])
        why = (
            "it was not made: jobs could not be kept from it until Ansible has set it up: timed out"
        )
        assert fallen == ({} if failures == 1 else {"c1": why})
        assert await drained(world) == ({"c1"} if failures == 1 else set())
