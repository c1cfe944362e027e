"""The fake batch system calls us, trusts us and punishes mistakes as Slurm does."""

import asyncio
from collections.abc import Sequence

import pytest

from springtide.batch.fake import FakeBatch, FakeJob, Timing
from springtide.ports import (
    OURS,
    BatchNode,
    BatchSystem,
    InstanceState,
    Job,
    Launch,
    Power,
    Site,
    Unavailable,
)
from springtide.providers.fake import FakeCloud, FakeProvider, Faults

pytestmark = pytest.mark.looptime

TIMING = Timing(
    join_s=2,
    idle_s=100,
    resume_timeout_s=50,
    suspend_timeout_s=30,
    slurmd_timeout_s=20,
    requeue_s=11,
)
NAMES = ("n1", "n2", "n3", "n4")


class Place:
    """A cloud and a batch system joined, and a daemon of two lines that a test can switch off."""

    def __init__(self, timing: Timing = TIMING, faults: Faults | None = None) -> None:
        self.cloud = FakeCloud(faults or Faults(boot_s=10, delete_s=5))
        self.provider = FakeProvider(self.cloud)
        self.batch = FakeBatch(NAMES, self.cloud.node_at, timing)
        self.resumed: list[tuple[list[str], list[Job]]] = []
        self.suspended: list[list[str]] = []
        self.obeys = True
        self._generation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cloud.on_running.append(lambda i: self.batch.boot_seen(i.node))
        self.cloud.on_stopped.append(
            lambda i: self.batch.stop_seen(i.node, deleted=i.state is InstanceState.DELETING)
        )
        self.batch.on_resume.append(self._on_resume)
        self.batch.on_suspend.append(self._on_suspend)

    def _on_resume(self, nodes: Sequence[str], jobs: Sequence[Job]) -> None:
        self.resumed.append((list(nodes), list(jobs)))
        if self.obeys:
            self._tasks.add(asyncio.create_task(self.make(*nodes)))

    def _on_suspend(self, nodes: Sequence[str]) -> None:
        self.suspended.append(list(nodes))
        if self.obeys:
            self._tasks.add(asyncio.create_task(self.delete(*nodes)))

    async def make(self, *nodes: str, tell: bool = True) -> None:
        self._generation += 1
        launches = [Launch("c", n, self._generation, "g", "base", "small") for n in nodes]
        await self.provider.create(launches)
        if tell:
            await self.batch.set_addresses(self.addresses(*nodes))

    def addresses(self, *nodes: str) -> dict[str, str]:
        return {i.node: i.address for i in self.cloud.alive() if i.node in nodes and i.address}

    async def delete(self, *nodes: str) -> None:
        await self.provider.delete([i for i in self.cloud.alive() if i.node in nodes])

    def die(self, node: str) -> None:
        [instance] = [i for i in self.cloud.alive() if i.node == node]
        self.cloud.die(instance.id)

    async def power(self) -> dict[str, Power]:
        return {name: node.power for name, node in (await self.batch.nodes()).items()}

    async def run(self, size: int, duration_s: float) -> FakeJob:
        """A job that runs on new nodes."""
        job = self.batch.submit(size, duration_s)
        await virtual(12)
        assert job.state == "RUNNING"
        return job


async def virtual(seconds: float) -> None:
    """Let virtual time pass; what is due at the last moment has happened."""
    await asyncio.sleep(seconds)
    await asyncio.sleep(0.001)


async def look(batch: BatchSystem, name: str) -> BatchNode:
    return (await batch.nodes([name]))[name]


# The good days


async def test_a_job_brings_nodes_up_runs_and_lets_them_go() -> None:
    place = Place()
    job = place.batch.submit(2, duration_s=60)
    await virtual(1)
    assert place.resumed == [
        (["n1", "n2"], [Job("1", "CONFIGURING", nodes="n[1-2]", node_count=2)])
    ]
    assert [shown.configuring for shown in await place.batch.jobs()] == [True]
    await virtual(11)
    assert job.state == "RUNNING"
    assert (await place.power())["n1"] is Power.UP
    await virtual(60)
    assert job.state == "COMPLETED"
    assert await place.batch.jobs() == []
    await virtual(100)
    assert place.suspended == [["n1", "n2"]]
    await virtual(30)
    assert set((await place.power()).values()) == {Power.DOWN}
    assert place.cloud.alive() == []
    assert place.batch.killed_jobs == {}


async def test_a_job_waits_until_the_last_of_its_nodes_has_registered() -> None:
    place = Place()
    place.obeys = False
    job = place.batch.submit(2, duration_s=60)
    await virtual(0)
    await place.make("n1")
    await virtual(20)
    assert (await look(place.batch, "n1")).registered
    assert job.state == "CONFIGURING"
    await place.make("n2")
    await virtual(12)
    assert job.state == "RUNNING"


async def test_jobs_of_one_moment_cost_one_call() -> None:
    place = Place()
    for _ in range(3):
        place.batch.submit(1, duration_s=60)
    await virtual(0)
    [(nodes, jobs)] = place.resumed
    assert nodes == ["n1", "n2", "n3"]
    assert [(job.id, job.nodes) for job in jobs] == [("1", "n1"), ("2", "n2"), ("3", "n3")]


async def test_a_job_starts_at_once_on_nodes_that_are_idle() -> None:
    place = Place()
    await place.batch.power_up(["n3"])
    await virtual(12)
    job = place.batch.submit(1, duration_s=10)
    await virtual(0)
    assert (job.state, job.nodes) == ("RUNNING", ("n3",))
    assert len(place.resumed) == 1


async def test_jobs_wait_their_turn_when_all_nodes_are_taken() -> None:
    place = Place()
    first = await place.run(4, duration_s=60)
    second = place.batch.submit(4, duration_s=60)
    await virtual(59)
    assert second.state == "PENDING"
    await virtual(1)
    assert (first.state, second.state) == ("COMPLETED", "RUNNING")
    assert [job.id for job in place.batch.finished] == ["1"]


async def test_a_job_that_can_never_run_is_refused() -> None:
    with pytest.raises(ValueError, match="never fits"):
        Place().batch.submit(5, duration_s=1)


# Commands


async def test_an_admin_can_power_nodes_up_and_down() -> None:
    place = Place()
    await place.batch.power_up(["n3"])
    await virtual(12)
    assert place.resumed == [(["n3"], [])]
    assert (await place.power())["n3"] is Power.UP
    await place.batch.power_down(["n3"])
    await virtual(0)
    assert place.suspended == [["n3"]]


async def test_power_down_waits_for_the_job() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    await place.batch.power_down(["n1"])
    await virtual(50)
    assert (job.state, place.suspended) == ("RUNNING", [])
    await virtual(10)
    assert (job.state, place.suspended) == ("COMPLETED", [["n1"]])


async def test_a_node_asked_for_while_it_goes_down_comes_up_after() -> None:
    place = Place()
    await place.run(1, duration_s=1)
    await virtual(1)
    await place.batch.power_down(["n1"])
    await place.batch.power_up(["n1"])
    assert (await place.power())["n1"] is Power.GOING_DOWN
    await virtual(30)
    assert (await place.power())["n1"] is Power.GOING_UP


async def test_a_released_node_can_be_used_before_the_suspend_timeout() -> None:
    place = Place()
    await place.run(4, duration_s=1)
    await virtual(1)
    await place.batch.power_down(NAMES)
    job = place.batch.submit(1, duration_s=60)
    await virtual(5)
    assert job.state == "PENDING"
    await place.batch.release(NAMES)
    await virtual(12)
    assert job.state == "RUNNING"


async def test_a_node_that_is_given_back_requeues_its_job_and_is_suspended() -> None:
    place = Place()
    place.obeys = False
    job = place.batch.submit(2, duration_s=60)
    await virtual(1)
    await place.batch.give_back(["n1"], "the provider is full")
    await virtual(0)
    assert (job.state, job.requeues) == ("PENDING", 1)
    assert [shown.reason for shown in await place.batch.jobs()] == ["BeginTime"]
    node = await look(place.batch, "n1")
    assert (node.power, node.reason) == (Power.GOING_DOWN, "the provider is full")
    assert place.suspended == [["n1"]]
    place.obeys = True
    await virtual(11)
    assert (job.state, job.nodes) == ("CONFIGURING", ("n3", "n4"))
    assert place.batch.killed_jobs == {}


async def test_what_is_told_to_jobs_and_configured_is_recorded() -> None:
    batch = Place().batch
    site = Site("10.0.0.1")
    await batch.tell("7", "your nodes are coming")
    await batch.reload(site)
    assert (batch.told, batch.site) == ([("7", "your nodes are coming")], site)
    await batch.stop()
    assert batch.site is None
    assert batch.calls == {"tell": 1, "reload": 1, "stop": 1}


async def test_one_wrong_name_spoils_a_command() -> None:
    place = Place()
    with pytest.raises(Unavailable, match="n9"):
        await place.batch.power_up(["n1", "n9"])
    assert (await place.power())["n1"] is Power.DOWN


async def test_an_unavailable_batch_system_answers_nothing_but_goes_on() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    place.batch.unavailable = True
    for call in (place.batch.version(), place.batch.nodes(), place.batch.jobs()):
        with pytest.raises(Unavailable):
            await call
    with pytest.raises(Unavailable):
        await place.batch.give_back(["n1"], "never arrives")
    await virtual(60)
    assert job.state == "COMPLETED"


async def test_a_command_can_be_interrupted_before_and_after_its_effect() -> None:
    for at_s, power in ((0.5, Power.DOWN), (1.5, Power.GOING_UP)):
        place = Place(Timing(latency_s=1))
        place.obeys = False
        task = asyncio.create_task(place.batch.power_up(["n1"]))
        await virtual(at_s)
        task.cancel()
        await asyncio.wait([task])
        assert (await place.power())["n1"] is power


# The bad days


async def test_a_node_that_does_not_register_in_time_is_down_and_its_job_requeued() -> None:
    place = Place()
    place.obeys = False
    failed: list[Sequence[str]] = []
    place.batch.on_resume_fail.append(failed.append)
    job = place.batch.submit(2, duration_s=60)
    await virtual(50)
    node = await look(place.batch, "n1")
    assert (node.state, node.power, node.reason) == ("DOWN", Power.DOWN, "ResumeTimeout reached")
    assert failed == [["n1", "n2"]]
    await virtual(11)
    assert job.nodes == ("n3", "n4")
    await place.batch.release(["n1"])
    assert (await look(place.batch, "n1")).state == "IDLE"


async def test_a_late_node_returns_to_service() -> None:
    place = Place(faults=Faults(boot_s=55))
    await place.batch.power_up(["n1"])
    await virtual(52)
    assert (await look(place.batch, "n1")).state == "DOWN"
    await virtual(5)
    node = await look(place.batch, "n1")
    assert (node.state, node.power, node.registered) == ("IDLE", Power.UP, True)


async def test_an_instance_that_nobody_asked_for_joins_as_with_slurm() -> None:
    place = Place()
    await place.make("n1")
    await virtual(20)
    assert (await look(place.batch, "n1")).registered


async def test_an_instance_deleted_while_it_joins_does_not_register() -> None:
    place = Place()
    await place.batch.power_up(["n1"])
    await virtual(11)
    await place.delete("n1")
    await virtual(5)
    assert not (await look(place.batch, "n1")).registered


async def test_a_job_does_not_run_where_no_address_was_told() -> None:
    place = Place()
    place.obeys = False
    job = place.batch.submit(1, duration_s=60)
    await virtual(0)
    await place.make("n1", tell=False)
    await virtual(15)
    assert (await look(place.batch, "n1")).registered
    assert job.state == "CONFIGURING"
    await place.batch.set_addresses(place.addresses("n1"))
    assert job.state == "RUNNING"


async def test_a_node_reached_at_the_wrong_address_goes_down() -> None:
    place = Place()
    place.obeys = False
    job = place.batch.submit(1, duration_s=60)
    await virtual(0)
    await place.make("n1", "n2", tell=False)
    await place.batch.set_addresses({"n1": place.addresses("n2")["n2"]})
    await virtual(12 + 20)
    node = await look(place.batch, "n1")
    assert (node.state, node.reason) == ("DOWN", "Not responding")
    assert (job.state, job.requeues) == ("PENDING", 1)


async def test_a_job_whose_instance_is_deleted_is_recorded_as_killed() -> None:
    place = Place()
    job = await place.run(2, duration_s=60)
    await place.delete("n2")
    assert place.batch.killed_jobs == {"1": "the instance of n2 was deleted"}
    await virtual(20)
    assert (job.state, job.requeues) == ("PENDING", 1)
    assert (await look(place.batch, "n2")).state == "DOWN"


async def test_a_running_job_on_a_node_that_is_given_back_is_recorded_as_killed() -> None:
    place = Place()
    await place.run(1, duration_s=60)
    await place.batch.give_back(["n1"], "by mistake")
    assert place.batch.killed_jobs == {"1": "n1 was given back: by mistake"}


async def test_a_job_whose_instance_dies_by_itself_is_requeued_and_nobody_is_blamed() -> None:
    place = Place()
    job = await place.run(1, duration_s=15)  # it would have ended before the death is noticed
    place.die("n1")
    await virtual(20)
    assert (job.state, job.requeues) == ("PENDING", 1)
    await virtual(11 + 12)
    assert (job.state, job.nodes) == ("RUNNING", ("n2",))
    assert place.batch.killed_jobs == {}


async def test_giving_back_a_node_whose_instance_died_kills_nothing() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    place.die("n1")
    await place.batch.give_back(["n1"], "its instance died")
    assert (job.state, job.requeues) == ("PENDING", 1)
    assert place.batch.killed_jobs == {}


async def test_deleting_a_stray_twin_harms_nobody() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    twin = place.cloud.start(Launch("c", "n1", 99, "g", "base", "small"))
    await place.provider.delete([twin])
    await virtual(60)
    assert job.state == "COMPLETED"
    assert place.batch.killed_jobs == {}


async def test_a_node_whose_instance_was_replaced_unexpectedly_serves_again() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    place.die("n1")
    await place.make("n1")
    await virtual(12)
    assert (job.state, job.requeues) == ("PENDING", 1)
    node = await look(place.batch, "n1")
    assert (node.state, node.registered) == ("IDLE", True)
    await virtual(11)
    assert job.state == "RUNNING"


async def test_a_leaving_node_whose_instance_dies_still_leaves() -> None:
    place = Place()
    await place.run(1, duration_s=60)
    await place.batch.power_down(["n1"])
    place.die("n1")
    await virtual(20)
    assert place.suspended == [["n1"]]
    await virtual(30)
    assert (await place.power())["n1"] is Power.DOWN


# Drains, and whose they are


def wish(node: BatchNode) -> tuple[bool, str | None, str]:
    return node.drained, node.owner, node.reason


async def up(place: Place, *names: str) -> None:
    await place.batch.power_up(names)
    await virtual(12)


async def test_only_its_owner_ends_a_drain() -> None:
    batch = Place().batch
    await batch.drain(["n1", "n2"], "shrink")
    await batch.drain(["n2"], "disk", "alice")
    await batch.drain(["n2"], "fan", "bob")
    assert wish(await look(batch, "n1")) == (True, OURS, "springtide: shrink")
    assert wish(await look(batch, "n2")) == (True, "alice", "disk"), "a person takes over ours"
    for by, left in (("bob", {"n1", "n2"}), (OURS, {"n2"}), (None, set())):
        await batch.undrain(NAMES, by)
        assert {name for name, n in (await batch.nodes()).items() if n.drained} == left


async def test_a_drained_node_finishes_its_job_and_takes_no_other() -> None:
    place = Place()
    job = await place.run(1, duration_s=60)
    await place.batch.drain(["n1"], "shrink")
    assert (await look(place.batch, "n1")).busy
    await virtual(60)
    assert (job.state, (await look(place.batch, "n1")).busy) == ("COMPLETED", False)
    other = place.batch.submit(4, duration_s=60)
    await virtual(20)
    assert other.state == "PENDING"
    await place.batch.undrain(["n1"])
    await virtual(12)
    assert other.state == "RUNNING"


async def test_a_persons_drain_outlives_idleness_power_downs_and_being_given_back() -> None:
    place = Place()
    await up(place, "n1", "n2", "n3")
    await place.batch.drain(["n1", "n2", "n3"], "disk", "alice")
    await place.batch.power_down(["n1"])
    await place.batch.give_back(["n2"], "it died")
    await virtual(0)
    assert not (await look(place.batch, "n1")).drained, "as with Slurm"
    await virtual(101)
    assert (await place.power())["n3"] is Power.GOING_DOWN
    await place.batch.release(["n1", "n2", "n3"])
    await virtual(31)
    for name in ("n1", "n2", "n3"):
        assert wish(await look(place.batch, name)) == (True, "alice", "disk")
    job = place.batch.submit(2, duration_s=1)
    await virtual(60)
    assert job.state == "PENDING"


async def test_our_drain_ends_when_the_node_is_powered_down() -> None:
    place = Place()
    await up(place, "n1")
    await place.batch.drain(["n1"], "shrink")
    await place.batch.power_down(["n1"])
    await place.batch.release(["n1"])
    await virtual(1)
    node = await look(place.batch, "n1")
    assert (node.power, wish(node)) == (Power.DOWN, (False, None, ""))


# Fresh starts


async def test_a_reboot_waits_for_the_job_and_keeps_every_drain_but_ours() -> None:
    place = Place()
    called: list[Sequence[str]] = []
    place.batch.on_reboot.append(called.append)
    job = await place.run(1, duration_s=60)
    await up(place, "n2")
    await place.batch.drain(["n2"], "disk", "alice")
    await place.batch.reboot(["n1", "n2", "n3"], "rebuild")
    await virtual(0)
    assert called == [["n2"]]
    assert "REBOOT_REQUESTED" in (await look(place.batch, "n1")).flags
    node = await look(place.batch, "n2")
    assert (node.state, node.power, node.registered) == ("DOWN", Power.GOING_UP, False)
    place.batch.boot_seen("n2")
    await virtual(60)
    assert (job.state, called) == ("COMPLETED", [["n2"], ["n1"]])
    place.batch.boot_seen("n1")
    await virtual(2)
    assert wish(await look(place.batch, "n1")) == (True, OURS, "springtide: rebuild")
    await place.batch.undrain(["n1", "n2"])
    assert (await look(place.batch, "n1")).state == "IDLE"
    assert wish(await look(place.batch, "n2")) == (True, "alice", "disk")


async def test_a_reboot_that_is_called_off_does_not_happen() -> None:
    place = Place()
    await place.run(1, duration_s=60)
    await place.batch.reboot(["n1"], "rebuild")
    await place.batch.undrain(["n1"])
    await virtual(60)
    node = await look(place.batch, "n1")
    assert (node.state, node.registered) == ("IDLE", True)


async def test_a_reboot_that_never_ends_leaves_the_node_down() -> None:
    place = Place()
    await up(place, "n1")
    await place.batch.reboot(["n1"], "rebuild")
    await virtual(50)
    node = await look(place.batch, "n1")
    assert (node.state, node.reason) == ("DOWN", "springtide: rebuild : reboot timed out")


async def test_nodes_that_start_afresh_are_down_until_heard_from() -> None:
    place = Place()
    await up(place, "n1", "n2")
    await place.batch.drain(["n2"], "disk", "alice")
    await place.batch.expect(["n1", "n2", "n3"])
    assert (await look(place.batch, "n3")).state == "IDLE"
    for name in ("n1", "n2"):
        node = await look(place.batch, name)
        assert (node.state, node.registered) == ("DOWN", False)
        place.batch.boot_seen(name)
    await virtual(2)
    assert wish(await look(place.batch, "n1")) == (False, None, "")
    assert wish(await look(place.batch, "n2")) == (True, "alice", "disk")
    assert (await look(place.batch, "n1")).registered


async def test_a_node_that_failed_says_so_and_kills_what_still_runs() -> None:
    place = Place()
    job = await place.run(2, duration_s=60)
    await place.batch.drain(["n2"], "disk", "alice")
    await place.batch.fail(["n1", "n2"], "it did not come back")
    assert (job.state, set(place.batch.killed_jobs)) == ("PENDING", {job.id})
    first, second = await look(place.batch, "n1"), await look(place.batch, "n2")
    assert (first.state, first.reason) == ("DOWN", "springtide: it did not come back")
    assert (second.state, wish(second)) == ("DOWN", (True, "alice", "disk"))


# Rebuilds by jobs, and closed queues


async def test_a_rebuild_job_goes_before_all_others_and_waits_for_its_prolog() -> None:
    place = Place()
    prologs: list[FakeJob] = []
    place.batch.on_prolog.append(prologs.append)
    running = await place.run(4, duration_s=60)
    waiting = place.batch.submit(4, duration_s=60)
    ids = await place.batch.submit_rebuilds(["n2"], None)
    assert await place.batch.submit_rebuilds(["n2"], None) == ids
    await virtual(63)
    assert running.state == "COMPLETED"
    (rebuild,) = prologs
    assert (rebuild.id, rebuild.state, rebuild.nodes) == (ids["n2"], "CONFIGURING", ("n2",))
    place.batch.prolog_ended(rebuild, 0)
    await virtual(1)
    assert [job.id for job in place.batch.finished] == [running.id, ids["n2"]]
    assert waiting.state != "PENDING"


async def test_a_rebuild_job_whose_prolog_fails_is_put_back_and_tried_again() -> None:
    place = Place()
    prologs: list[FakeJob] = []
    place.batch.on_prolog.append(prologs.append)
    await up(place, "n1")
    await place.batch.submit_rebuilds(["n1"], None)
    await virtual(1)
    place.batch.prolog_ended(prologs[0], 1)
    assert (prologs[0].state, prologs[0].requeues) == ("PENDING", 1)
    await virtual(20)
    place.batch.prolog_ended(prologs[1], 0)
    await virtual(1)
    assert prologs[0] is prologs[1]
    assert prologs[0].state == "COMPLETED"


async def test_a_trial_whose_node_fails_is_over() -> None:
    place = Place()
    place.obeys = False
    await place.batch.submit_rebuilds(["n1"], "uptime")
    await virtual(51)
    assert [job.state for job in place.batch.finished] == ["NODE_FAIL"]
    assert await place.batch.jobs() == []


async def test_a_rebuild_job_with_a_command_leaves_its_node_as_it_is() -> None:
    place = Place()
    await up(place, "n1")
    await place.batch.submit_rebuilds(["n1"], "uptime")
    await virtual(1)
    assert [job.state for job in place.batch.finished] == ["COMPLETED"]
    assert (await look(place.batch, "n1")).power is Power.UP


async def test_a_closed_queue_takes_jobs_and_starts_them_after_the_next_start() -> None:
    place = Place()
    await place.batch.reload(Site("10.0.0.1"))
    await place.batch.close()
    job = place.batch.submit(1, duration_s=1)
    await place.batch.reload(Site("10.0.0.1"))
    await virtual(20)
    assert job.state == "PENDING"
    await place.batch.stop()
    await place.batch.reload(Site("10.0.0.1"))
    await virtual(0)
    assert job.state == "CONFIGURING"
