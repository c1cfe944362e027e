"""Images of machines in service, on a fake cloud in virtual time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from springtide.configure.anonymise import LAG_S, anonymise, done, failed
from springtide.daemon import Daemon
from springtide.engine import Refused
from springtide.model import Kind, MadeImage, NodeState
from springtide.ports import CloudImage, InstanceState
from springtide.shots import Shot
from springtide.spec import Cluster, parse
from springtide.workshop import UNSEEN_S, NotMadeError
from tests.sim.test_builds import OFF_S, TEXT, events, in_service, obeys, world_of
from tests.sim.test_engine import states, until
from tests.sim.world import Life, World

LABEL = "soft-2-x86-64"
"""Of the image that is made of c1."""

pytestmark = [pytest.mark.looptime, pytest.mark.usefixtures("few_looks_into_the_spool")]


@dataclass
class Wire:
    """A way to nodes that are reached, or not, and say this to whatever they are handed.

    What is told so switches itself off a while later, if it did what it was told.
    """

    world: World
    says: str = f"{done(LABEL)}\n"
    missed: list[str] = field(default_factory=list)
    """Why it is not reached, from the first time that it is asked."""
    broken: Exception | None = None
    handed: list[str] = field(default_factory=list)
    off_s: float = 40.0

    async def ask(self, addresses: Mapping[str, str]) -> dict[str, str]:
        missed = self.missed.pop(0) if self.missed else ""
        return dict.fromkeys(addresses, missed) if missed else {}

    async def hand(self, name: str, address: str, script: str, last: Sequence[str]) -> str:
        self.handed.append(f"{name} {address} {script == anonymise(LABEL)}")
        if self.broken:
            raise self.broken
        if done(LABEL) in self.says:
            (id,) = [one.id for one in self.world.cloud.alive() if one.node == name]
            loop = asyncio.get_running_loop()
            loop.call_later(self.off_s, self.world.cloud.die, id, InstanceState.STOPPED)
        return self.says


@dataclass
class Witness(Wire):
    """Notes of nodes that are told to forget who they were whether jobs could hit them.

    An admin resumes them so often while it is seen whether they are reached.
    """

    resumed: int = 0
    at_risk: list[bool] = field(default_factory=list)
    asked: int = 0

    async def ask(self, addresses: Mapping[str, str]) -> dict[str, str]:
        self.asked += 1
        await asyncio.sleep(30)
        if 1 < self.asked <= 1 + self.resumed:
            await self.world.batch.undrain(addresses, None)
        return await Wire.ask(self, addresses)

    async def hand(self, name: str, address: str, script: str, last: Sequence[str]) -> str:
        seen = (await self.world.batch.nodes([name]))[name]
        self.at_risk.append(seen.busy or not seen.drained)
        return await Wire.hand(self, name, address, script, last)


def shot_of(daemon: Daemon, image: MadeImage, wire: Wire) -> Shot:
    return Shot(daemon.parts, daemon.people, image, lambda text: None, wire)


async def told_over_ssh(world: World, daemon: Daemon) -> MadeImage:
    """An image of c1, which has nothing of it on its console and gets no new script at a reboot."""
    await in_service(world, daemon)
    image = await daemon.builds.plan_snapshot("c1", None, "ann")
    world.cloud.renews = False
    return image


@pytest.mark.accepts("E22")
async def test_a_machine_leaves_service_to_forget_who_it_was_and_comes_back(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        obeys(world)
        before = daemon.parts.record.nodes["c1"].generation
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        taken = await shot_of(daemon, image, Wire(world)).of_remote()
        assert taken.name == "soft-2-x86-64"
        await until(lambda: daemon.parts.record.nodes["c1"].generation > before, 300)
        await until(lambda: states(world)["c1"] is NodeState.READY, 300)
        seen = await world.batch.nodes(["c1"])
        assert not seen["c1"].drained


@pytest.mark.accepts("E22")
async def test_a_machine_that_gets_no_new_script_is_told_over_ssh(tmp_path: Path) -> None:
    """And its disk is copied when it is off, not before."""
    world = world_of(tmp_path)
    wire = Wire(world)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        before, reboots = daemon.parts.record.nodes["c1"], world.cloud.calls["reboot"]
        told_at = world.cloud.now()
        taken = await shot_of(daemon, image, wire).of_remote()
        assert taken.name == "soft-2-x86-64"
        assert taken.created_at >= told_at + wire.off_s
        assert wire.handed == [f"c1 {before.address} True"]
        assert world.cloud.calls["reboot"] == reboots
        generation = before.generation
        await until(lambda: daemon.parts.record.nodes["c1"].generation > generation, 300)
        await until(lambda: states(world)["c1"] is NodeState.READY, 300)


@pytest.mark.accepts("E22")
async def test_a_machine_that_is_powered_down_while_its_image_is_made_stays_for_it(
    tmp_path: Path,
) -> None:
    """Slurm does so with what has been idle for long, drained or not."""
    world = world_of(tmp_path)
    wire = Wire(world)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        taking = asyncio.create_task(shot_of(daemon, image, wire).of_remote())
        await until(lambda: bool(wire.handed), 300)
        await world.batch.power_down(["c1"])
        assert (await taking).name == "soft-2-x86-64"
        operations = await daemon.parts.record.store.operations()
        assert Kind.SUSPEND in [one.kind for one in operations]
        await until(lambda: states(world)["c1"] in (NodeState.OFF, NodeState.READY), 600)


async def is_drained(world: World) -> bool:
    return (await world.batch.nodes(["c1"]))["c1"].drained


@pytest.mark.accepts("E22")
async def test_a_machine_that_is_resumed_while_its_jobs_end_is_drained_again(
    tmp_path: Path,
) -> None:
    """By an admin, or by an operation that gives back what it drained."""
    world = world_of(tmp_path)
    wire = Witness(world)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        await world.batch.drain(["c2", "c3"], "not these", "bob")
        jobs = [world.batch.submit(1, 100), world.batch.submit(1, 100)]
        await until(lambda: jobs[0].state == "RUNNING", 60)
        taking = asyncio.create_task(shot_of(daemon, image, wire).of_remote())
        while not await is_drained(world):
            await asyncio.sleep(1)
        await world.batch.undrain(["c1"], None)
        assert (await taking).name == LABEL
        assert wire.at_risk == [False]
        await until(lambda: jobs[1].state == "COMPLETED", 600)
        assert [job.requeues for job in jobs] == [0, 0]


@pytest.mark.accepts("E22")
@pytest.mark.parametrize("resumed", [1, 3])
async def test_a_machine_that_is_resumed_just_before_it_is_told_is_waited_for_again(
    tmp_path: Path, resumed: int
) -> None:
    world = world_of(tmp_path)
    wire = Witness(world, resumed=resumed)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        assert (await shot_of(daemon, image, wire).of_remote()).name == LABEL
        assert wire.at_risk == [False]


async def test_a_machine_that_is_resumed_again_and_again_stays_in_service(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    wire = Witness(world, resumed=10**6)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        why = "^c1 was undrained meanwhile, so it was given back$"
        with pytest.raises(NotMadeError, match=why):
            await shot_of(daemon, image, wire).of_remote()
        assert wire.handed == []
        assert states(world)["c1"] is NodeState.READY
        assert not await is_drained(world)


@pytest.mark.accepts("E22")
async def test_what_people_ask_for_a_machine_is_refused_while_its_image_is_made(
    tmp_path: Path,
) -> None:
    """What the batch system asks for is not: it would never ask again."""
    world = world_of(tmp_path)
    wire = Wire(world)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        await daemon.parts.gallery.keep(daemon.parts.record.store, image)
        before = daemon.parts.record.nodes["c1"].generation
        taking = asyncio.create_task(shot_of(daemon, image, wire).of_remote())
        await until(lambda: bool(wire.handed), 300)
        why = r"^soft@2 is being made of c1: leave it out, or wait for its end, see `tide image"
        with pytest.raises(Refused, match=why):
            await daemon.people.rebuild(["c1"], "bob", {"force": True})
        with pytest.raises(Refused, match=why):
            await daemon.people.update(["c1", "c2"], "bob", {})
        job = world.batch.submit(1, 10)
        await until(lambda: job.state == "COMPLETED", 30)
        assert (await taking).name == LABEL
        await anew(world, daemon, before)
        await daemon.people.update(["c1"], "bob", {})


def without_c1() -> Cluster:
    return parse(TEXT.replace("c[1-3]", "c[2-3]"), "sim.yaml")


@pytest.mark.accepts("E22")
async def test_a_machine_is_neither_killed_nor_sent_away_while_its_image_is_made(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    wire = Wire(world)
    kept: list[str] = []
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        await daemon.parts.gallery.keep(daemon.parts.record.store, image)
        before = daemon.parts.record.nodes["c1"].generation
        taking = asyncio.create_task(shot_of(daemon, image, wire).of_remote())
        await until(lambda: bool(wire.handed), 300)
        with pytest.raises(Refused, match=r"^soft@2 is being made of c1: leave it out, or wait"):
            await daemon.people.kill(["c1", "c2"], "bob")
        why = r"^soft@2 is being made of c1: keep it, or wait for its end, see `tide image list`$"
        with pytest.raises(Refused, match=why):
            await daemon.people.foresee(without_c1())
        with pytest.raises(Refused, match=why):
            await daemon.people.apply(without_c1(), "bob", lambda: kept.append("file"))
        assert not kept
        assert (await taking).name == LABEL
        await anew(world, daemon, before)
        await daemon.engine.idle()
        await daemon.people.kill(["c1"], "bob")
        await until(lambda: states(world)["c1"] is NodeState.OFF, 300)
        await daemon.people.apply(without_c1(), "bob", lambda: kept.append("file"))
        assert kept


async def test_no_image_is_made_of_a_machine_that_a_file_is_just_sending_away(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        shot = shot_of(daemon, image, Wire(world))
        async with daemon.people.applying:
            taking = asyncio.create_task(shot.of_remote())
            await asyncio.sleep(1)
            await daemon.people.apply(without_c1(), "bob", lambda: None)
        with pytest.raises(NotMadeError, match=r"^an operation drains c1: try again when"):
            await taking


async def test_no_image_is_made_of_a_machine_that_an_operation_drains(tmp_path: Path) -> None:
    """It may have begun after the image was asked for."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        await daemon.people.rebuild(["c1"], "bob", {"force": True})
        with pytest.raises(NotMadeError, match=r"^an operation drains c1: try again when"):
            await shot_of(daemon, image, Wire(world)).of_remote()
        assert not daemon.parts.gallery.claimed


@pytest.mark.parametrize("asked", [0, 1])
async def test_a_machine_that_is_not_reached_over_ssh_stays_in_service(
    tmp_path: Path, asked: int
) -> None:
    """Neither before its jobs have ended nor after, which may be a day later."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        wire = Wire(world, missed=[*([""] * asked), "Connection refused"])
        with pytest.raises(NotMadeError, match=r"cannot be told over ssh .* Connection refused"):
            await shot_of(daemon, image, wire).of_remote()
        assert states(world)["c1"] is NodeState.READY
        assert not (await world.batch.nodes(["c1"]))["c1"].drained
        assert wire.handed == []


async def test_a_machine_that_says_over_ssh_that_it_could_not_is_made_anew(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        before = daemon.parts.record.nodes["c1"].generation
        wire = Wire(world, f"\n{failed(LABEL)}shared files stay\n")
        with pytest.raises(NotMadeError, match=r"who it was: shared files stay$"):
            await shot_of(daemon, image, wire).of_remote()
        await until(lambda: daemon.parts.record.nodes["c1"].generation > before, 300)
        assert [one.name for one in world.cloud.snapshots.values()] == ["soft-1-x86-64"]


@pytest.mark.parametrize("refused_s", [20, 600])
async def test_a_machine_that_forgot_who_it_was_is_not_rebooted_in_its_place(
    tmp_path: Path, refused_s: float
) -> None:
    """Its cloud refuses to delete it, for a while or for longer than anybody waits."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        before, reboots = daemon.parts.record.nodes["c1"].generation, world.cloud.calls["reboot"]
        world.cloud.faults.refused_deletes = 1.0
        wire = Wire(world, broken=TimeoutError("no last word"))
        shot = asyncio.create_task(shot_of(daemon, image, wire).of_remote())
        await asyncio.sleep(refused_s)
        world.cloud.faults.refused_deletes = 0.0
        with pytest.raises(NotMadeError):
            await shot
        assert ("node not made anew" in await events(daemon)) == (refused_s == 600)
        await asyncio.sleep(600)
        assert world.cloud.calls["reboot"] == reboots
        anew = daemon.parts.record.nodes["c1"].generation > before
        assert anew == (refused_s == 20)


async def test_a_node_that_could_not_forget_who_it_was_is_left_in_service(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cloud.renews = False
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        with pytest.raises(Refused, match="use `tide image build`"):
            await daemon.builds.snapshot("c1", None, "ann")
        assert states(world)["c1"] is NodeState.READY


async def test_an_image_that_was_taken_stays_though_its_node_cannot_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        obeys(world)
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        shot = shot_of(daemon, image, Wire(world))
        monkeypatch.setattr("springtide.shots.AGAIN", {"image": "nowhere"})
        taken = await shot.of_remote()
        assert taken.name == "soft-2-x86-64"
        assert "node not made anew" in await events(daemon)


async def test_a_node_that_did_not_forget_who_it_was_is_made_anew_at_once(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        said = f"[  15.1] cloud-init[7]: {failed(LABEL)}shared files stay\nmore\n"
        world.cloud.said["c1"] = said
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        before = daemon.parts.record.nodes["c1"].generation
        with pytest.raises(NotMadeError, match=r"^c1: shared files stay$"):
            await shot_of(daemon, image, Wire(world)).of_remote()
        await until(lambda: daemon.parts.record.nodes["c1"].generation > before, 300)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (TimeoutError("no last word within 300 s"), "not told over ssh: no last word within 300 s"),
        (FileNotFoundError(2, "No such file"), "not told over ssh: No such file"),
        (ValueError("nobody thought of it"), "nobody thought of it"),
    ],
)
async def test_a_machine_that_breaks_off_is_made_anew_for_it_may_have_forgotten_who_it_was(
    tmp_path: Path, broken: Exception, why: str
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        before = daemon.parts.record.nodes["c1"].generation
        with pytest.raises((NotMadeError, ValueError), match=f"{why}$"):
            await shot_of(daemon, image, Wire(world, broken=broken)).of_remote()
        await until(lambda: daemon.parts.record.nodes["c1"].generation > before, 300)


@pytest.mark.accepts("E22")
@pytest.mark.parametrize("words", [done, failed])
async def test_what_a_machine_said_for_an_earlier_image_counts_for_no_other(
    tmp_path: Path, words: Callable[[str], str]
) -> None:
    """A console may outlive reboots and rebuilds."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        obeys(world, says_s=20)
        world.cloud.said["c1"] = f"{words('soft-1-x86-64')}why\n"
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        told_at = world.cloud.now()
        taken = await shot_of(daemon, image, Wire(world)).of_remote()
        assert taken.name == LABEL
        assert taken.created_at >= told_at + OFF_S


async def test_a_second_image_of_a_machine_is_one_of_a_machine_that_forgot_again(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        obeys(world)
        for name in ("one", "two"):
            image = await daemon.builds.plan_snapshot("c1", name, "ann")
            told_at, before = world.cloud.now(), daemon.parts.record.nodes["c1"].generation
            taken = await shot_of(daemon, image, Wire(world)).of_remote()
            assert taken.created_at >= told_at + OFF_S
            await anew(world, daemon, before)


async def anew(world: World, daemon: Daemon, before: int) -> None:
    await until(lambda: daemon.parts.record.nodes["c1"].generation > before, 300)
    await until(lambda: states(world)["c1"] is NodeState.READY, 300)


async def switched_off(world: World, image: MadeImage, daemon: Daemon) -> asyncio.Task[CloudImage]:
    """Something else switches c1 off while it forgets who it was."""
    reboots = world.cloud.calls["reboot"]
    taking = asyncio.create_task(shot_of(daemon, image, Wire(world)).of_remote())
    await until(lambda: world.cloud.calls["reboot"] > reboots, 300)
    await asyncio.sleep(10)
    (id,) = [one.id for one in world.cloud.alive() if one.node == "c1"]
    world.cloud.die(id, InstanceState.STOPPED)
    return taking


@pytest.mark.parametrize("before", ["c1 booted", done("soft-1-x86-64")])
async def test_a_machine_that_is_off_and_never_said_that_it_forgot_gives_no_image(
    tmp_path: Path, before: str
) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        world.cloud.said["c1"] = f"{before}\n"
        generation = daemon.parts.record.nodes["c1"].generation
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        taking = await switched_off(world, image, daemon)
        with pytest.raises(NotMadeError, match=r"^c1: the machine is off .* try again$"):
            await taking
        assert [one.name for one in world.cloud.snapshots.values()] == ["soft-1-x86-64"]
        await anew(world, daemon, generation)


async def test_a_console_may_tell_later_what_a_machine_said_that_is_off(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        taking = await switched_off(world, image, daemon)
        await asyncio.sleep(LAG_S - 30)
        world.cloud.said["c1"] = f"c1 booted\n{done(LABEL)}\n"
        assert (await taking).name == LABEL


async def test_a_machine_of_which_nothing_is_heard_has_forgotten_if_it_stays_off(
    tmp_path: Path,
) -> None:
    """A list that lags may show it off only because it was rebooted."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        await in_service(world, daemon)
        world.cloud.said["c1"] = ""
        image = await daemon.builds.plan_snapshot("c1", None, "ann")
        taking = await switched_off(world, image, daemon)
        off_at = world.cloud.now()
        assert (await taking).created_at >= off_at + UNSEEN_S - 1


async def test_a_daemon_that_stops_does_not_wait_for_a_cloud_that_is_away(tmp_path: Path) -> None:
    """The next one finds a node whose machine is off, and repairs it."""
    world = world_of(tmp_path)
    async with world.living(Life()) as daemon:
        image = await told_over_ssh(world, daemon)
        world.cloud.faults.image_s = 7200
        task = asyncio.create_task(shot_of(daemon, image, Wire(world)).of_remote())
        await until(lambda: len(world.cloud.images("sim")) == 2, 600)
        world.cloud.faults.throttled_until = asyncio.get_running_loop().time() + 7200
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        world.cloud.faults.throttled_until = 0
    async with world.living(Life()) as daemon:
        before = daemon.parts.record.nodes["c1"].generation
        await until(lambda: states(world)["c1"] is NodeState.OFF, 600)
        job = world.batch.submit(1, 5)
        await until(lambda: job.state == "COMPLETED", 600)
        assert daemon.parts.record.nodes["c1"].generation > before
