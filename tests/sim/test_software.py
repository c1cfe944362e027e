"""Nodes that something sets up over the network, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from springtide.configure.fake import FakeConfigurator
from springtide.daemon import Daemon
from springtide.model import Kind, Node, NodeState, Operation, OperationState
from springtide.ports import Configured, Site
from springtide.steps import unready
from tests.sim import asking
from tests.sim.test_repair import ids, made, state, until
from tests.sim.test_service import deployed, drained, ended, world_of
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime

CLOSED = "port 22 of 127.64.0.2 is closed"
WELL = ("configured", "node registered")
Tell = Callable[[str, str], Awaitable[None]]


@dataclass
class Hands:
    """Sets up all nodes but those that it is told to fail on."""

    groups: frozenset[str] = frozenset({"general"})
    fails: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    reached: bool = True
    takes_s: float = 0.0

    def serves(self, group: str) -> bool:
        return group in self.groups

    async def make_keys(self) -> None: ...

    async def kept_out(self, node: Node) -> str:
        return "" if self.reached else f"port 22 of {node.address} is closed"

    async def prepare(self, site: Site, tell: Tell) -> str:
        return ""

    async def configure(
        self, site: Site, nodes: Sequence[Node], addresses: Mapping[str, str], tell: Tell
    ) -> Configured:
        self.seen += [node.name for node in nodes]
        await tell("", "at it")
        await asyncio.sleep(self.takes_s)
        fallen = {n.name: self.fails[n.name] for n in nodes if n.name in self.fails}
        for name, why in fallen.items():
            await tell(name, f"failed: {why}")
        return Configured(fallen)


@pytest.mark.accepts("C28")
async def test_an_update_reboots_nobody_and_gives_all_back_also_where_it_failed(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        up = [n.name for n in daemon.parts.record.nodes.values() if n.state is NodeState.READY]
        hands = daemon.parts.software = Hands(fails={up[0]: "no room"})
        answer = await daemon.people.update(up, "root", {})
        (done,) = await ended(daemon, answer)
        assert done.state is OperationState.PARTLY
        assert done.fallen == {up[0]: "Ansible could not configure it: no room"}
        assert sorted(hands.seen) == sorted(up)
        assert world.cloud.calls["reboot"] == 0
        assert await drained(world) == set()
        assert {daemon.parts.record.nodes[name].state for name in up} == {NodeState.READY}


async def test_a_node_that_is_always_up_comes_back_by_an_enlarge_and_is_configured(
    tmp_path: Path,
) -> None:
    world = made(tmp_path, nodes=3, min=2)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands()
        await until(lambda: len(ids(world)) == 2)
        await daemon.engine.idle()
        assert sorted(hands.seen) == ["c1", "c2"]
        hands.seen.clear()
        world.cloud.die(ids(world)[0])
        await until(lambda: state(daemon, "c1") is NodeState.OFF)
        await until(lambda: state(daemon, "c1") is NodeState.READY)
        found = await daemon.parts.record.store.operations()
        started = [one.kind for one in found if one.reason == "to be always up"]
        assert set(started) == {Kind.ENLARGE}
        assert hands.seen == ["c1"]


@pytest.mark.accepts("E3")
@pytest.mark.parametrize("forgets", [False, True])
async def test_a_node_takes_no_job_before_it_is_set_up(tmp_path: Path, forgets: bool) -> None:
    """Its slurmd runs meanwhile. Slurm may forget whose drain it is when that registers."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: hands.seen == ["c1"])
        await asyncio.sleep(20)
        (seen,) = (await world.batch.nodes(["c1"])).values()
        assert seen.registered
        assert "Ansible has yet to set it up" in seen.reason
        if forgets:
            (node,) = world.batch._named(["c1"])
            node.owner, node.reason = "somebody", ""
        job = world.batch.submit(1, 1)
        await asyncio.sleep(20)
        assert job.state == "PENDING"
        await until(lambda: job.state == "COMPLETED", 60)
        events = [one.what for one in await daemon.parts.record.store.events(node="c1")]
        assert [what for what in events if what in WELL][-2:] == list(WELL)
        assert await drained(world) == set()


async def test_a_person_s_drain_outlasts_the_setting_up(tmp_path: Path) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: hands.seen == ["c1"])
        await world.batch.drain(["c1"], "a broken disk", "ada")
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == {"c1"}


async def test_a_node_that_could_not_be_set_up_is_free_for_jobs_once_it_is_off(
    tmp_path: Path,
) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(fails={"c1": "no room"}, takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: daemon.parts.holding.held_back(daemon.parts.spec))
        await daemon.engine.idle()
        assert not await unready.closed(daemon.parts, ["c1"])
        daemon.parts.software = None
        await daemon.parts.holding.open_node("c1")
        job = world.batch.submit(1, 1)
        await until(lambda: job.state == "COMPLETED")


async def test_a_daemon_that_dies_meanwhile_leaves_no_node_closed(tmp_path: Path) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        hands = daemon.parts.software = Hands(takes_s=60)
        world.cloud.die(ids(world)[0])
        await until(lambda: hands.seen == ["c1"])
        await asyncio.sleep(20)
        assert await drained(world) == {"c1"}
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands()
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert await drained(world) == set()


async def again(tmp_path: Path) -> World:
    """A cluster of one node that is always up, and was once before."""
    world = made(tmp_path, nodes=1, min=1)
    async with world.living(Life()) as daemon:
        await deployed(daemon)
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
    return world


async def test_a_failure_is_noted_for_its_node_as_soon_as_it_is_told(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2, min=1)
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(fails={"c1": "no room"})
        await until(lambda: daemon.parts.holding.held_back(daemon.parts.spec))
        events = await daemon.parts.record.store.events(node="c1")
        order = [(one.what, one.detail) for one in events if "no room" in one.detail]
        assert order[:2] == [("progress", "failed: no room"), ("not configured", "no room")]


@pytest.mark.parametrize(
    ("hands", "why"),
    [
        (Hands(reached=False), f"no login by ssh within 120 s (timing.start): {CLOSED}"),
        (Hands(fails={"c1": "no room"}, takes_s=60), "Ansible could not configure it: no room"),
    ],
)
async def test_a_new_node_that_is_not_configured_is_removed_though_it_has_registered(
    tmp_path: Path, hands: Hands, why: str
) -> None:
    world = made(tmp_path, nodes=2, min=1)
    async with world.living(Life()) as daemon:
        daemon.parts.software = hands
        await until(lambda: daemon.parts.holding.held_back(daemon.parts.spec))
        await daemon.engine.idle()
        assert ids(world) == []
        told = await daemon.parts.record.store.events(node="c1")
        assert any(one.detail.startswith(why) for one in told if one.what == "node failed")
        assert "node registered" not in {one.what for one in told}


async def test_a_node_whose_boot_failed_for_good_is_not_waited_for(tmp_path: Path) -> None:
    world = made(tmp_path, nodes=2, min=1)
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(reached=False)
        await until(lambda: state(daemon, "c1") is NodeState.BOOTING)
        daemon.parts.gave_up["c1"] = (daemon.parts.record.nodes["c1"].generation, "no slurmd")
        soon_s = daemon.parts.spec.timing.start / 4
        await until(lambda: state(daemon, "c1") is NodeState.OFF, soon_s)
        operation, *_ = await daemon.parts.record.store.operations()
        assert operation.fallen == {"c1": "its boot failed: no slurmd"}


async def updated_afresh(world: World, daemon: Daemon, hands: Hands) -> Operation:
    """An update of nodes in service that would boot otherwise by now, so they are rebooted."""
    daemon.parts.software = hands
    daemon.parts.configurator = FakeConfigurator("now with ssh")
    ready = [n.name for n in daemon.parts.record.nodes.values() if n.state is NodeState.READY]
    answer = await daemon.people.update(ready, "root", {})
    return answer.operations[0]


@pytest.mark.accepts("C28")
@pytest.mark.parametrize(
    ("hands", "why"),
    [
        (Hands(reached=False), f"no login by ssh within 120 s (timing.start): {CLOSED}"),
        (Hands(fails={"c1": "no room"}), "Ansible could not configure it: no room"),
    ],
)
async def test_an_update_loses_no_node_that_ansible_cannot_configure_though_it_was_rebooted(
    tmp_path: Path, hands: Hands, why: str
) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        parts, before = daemon.parts, ids(world)
        asked = await updated_afresh(world, daemon, hands)
        done = await daemon.engine.wait(asked.id)
        assert world.cloud.calls["reboot"] == 1
        assert done is not None
        assert (done.state, done.fallen) == (OperationState.FAILED, {"c1": why})
        assert ids(world) == before
        assert (state(daemon), parts.record.nodes["c1"].reason) == (NodeState.READY, why)
        assert await drained(world) == set()
        assert not parts.holding.held_back(parts.spec)
        told = await asking.why(daemon, "c1")
        assert "c1 is in service" in told["now"]
        assert f"but not as it should be: {why}" in told["now"]
        assert told["do"] == "when the cause is gone, `tide update c1` configures it"
        job = world.batch.submit(1, 1)
        await until(lambda: job.state == "COMPLETED")


async def test_a_node_of_an_update_that_neither_lets_in_nor_registers_is_given_up(
    tmp_path: Path,
) -> None:
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        world.cloud.faults.stuck_boots = 1.0
        asked = await updated_afresh(world, daemon, Hands(reached=False))
        done = await daemon.engine.wait(asked.id)
        assert done is not None
        assert done.fallen["c1"].startswith("it did not register within 120 s (timing.start)")
        assert state(daemon) is NodeState.OFF


async def test_why_tells_that_ansible_waits_to_log_in(tmp_path: Path) -> None:
    """Also what becomes of the node if that fails: a new one goes, one that served stays."""
    world = await again(tmp_path)
    async with world.living(Life()) as daemon:
        await updated_afresh(world, daemon, Hands(reached=False))
        await until(lambda: "c1" in daemon.parts.kept_out)
        told = await asking.why(daemon, "c1")
        assert f"Ansible waits to log in to it by ssh: {CLOSED}" in told["now"]
        assert "(timing.start), it goes back to service as it is" in told["next"]
        assert "`tide log c1` shows what it said while it booted" in told["do"]
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert daemon.parts.kept_out == {}
        world.cloud.die(ids(world)[0])
        await until(lambda: "c1" in daemon.parts.kept_out)
        told = await asking.why(daemon, "c1")
        assert "(timing.start), it is removed, and tried again later" in told["next"]


async def test_a_daemon_that_dies_while_nobody_can_log_in_loses_no_node_of_an_update(
    tmp_path: Path,
) -> None:
    world, life = await again(tmp_path), Life()
    before = ids(world)
    async with world.living(life) as daemon:
        await updated_afresh(world, daemon, Hands(reached=False))
        await until(lambda: "c1" in daemon.parts.kept_out)
        life.over.set()
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(reached=False)
        await until(lambda: state(daemon) is NodeState.READY)
        await daemon.engine.idle()
        assert ids(world) == before
        assert await drained(world) == set()
        assert "no login by ssh" in daemon.parts.record.nodes["c1"].reason


async def test_what_a_new_node_said_of_its_sshd_is_told_and_nothing_of_its_slurmd(
    tmp_path: Path,
) -> None:
    """Slurm has heard from it: it was not given up for that."""
    world = made(tmp_path, nodes=2, min=1)
    world.cloud.said["c1"] = (
        "the image has no /usr/sbin/sshd: Ansible cannot log in\n"
        "slurmd: error: Unable to register: Unable to contact slurm controller\n"
    )
    async with world.living(Life()) as daemon:
        daemon.parts.software = Hands(reached=False)
        await until(lambda: daemon.parts.holding.held_back(daemon.parts.spec))
        await daemon.engine.idle()
        told = await daemon.parts.record.store.events(node="c1")
        (why,) = {one.detail for one in told if one.what == "node failed"}
        assert why.startswith("no login by ssh within 120 s (timing.start): port 22 of ")
        assert why.endswith(" is closed; its instance runs: the image has no /usr/sbin/sshd")
