"""Torque does what all of them do, as far as its stand-in is like it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import pytest

from springtide import compose_queue
from springtide.batch.marks import Book, Facts
from springtide.batch.polled import Polled
from springtide.batch.running import SlowError
from springtide.batch.torque import TorqueQueue
from springtide.batch.torque_commands import Commands
from springtide.ports import Chunk, Health, JobState, Power, Settings, Site, Unavailable
from springtide.spec import load
from tests.batch import batch_world
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import SITE, BatchWorld, polled
from tests.batch.conformance import Conformance
from tests.batch.torque_standin.server import opened
from tests.batch.torque_world import MEMBERS, PREMISES, Torque
from tests.batch.world import (
    REASON,
    Ask,
    World,
    heard,
    job,
    jobs,
    node,
    refused,
    running,
    started,
    stays,
    until,
    up,
)

pytestmark = pytest.mark.looptime


@pytest.fixture
async def torque(tmp_path: Path) -> Torque:
    torque = Torque(tmp_path)
    await torque.build()
    return torque


@pytest.mark.accepts("N1")
class TestTorque(Conformance):
    @pytest.fixture
    def world(self, torque: Torque) -> World:
        return torque.world()


@pytest.mark.accepts("N1")
class TestPolledTorque(BatchConformance):
    @pytest.fixture
    def world(self, torque: Torque) -> BatchWorld:
        return polled(torque.world())


# --- what is Torque's own ------------------------------------------------------------------------


async def test_jobs_of_several_nodes_are_accepted_from_zero_once_prepared(torque: Torque) -> None:
    """rule 3"""
    world = torque.world()
    ask = Ask("cloud", (Chunk(count=3, cores=2, features=frozenset({"big"})),))
    with pytest.raises(AssertionError, match="cannot locate feasible nodes"):
        await torque.submit(ask)
    await torque.queue.prepare(MEMBERS)
    found = await job(world, await torque.submit(ask))
    assert (found.state, found.chunks) == (JobState.WAITING, ask.chunks)


async def test_nodes_leave_without_being_deleted(torque: Torque) -> None:
    """rule 2: what Torque would do to the jobs of a deleted node is never risked."""
    world = torque.world()
    first, second = await up(world, 2)
    one = await running(world)
    torque.calls.clear()
    await torque.queue.drain([first.name, second.name], REASON)
    stay = await torque.queue.leave([first.name, second.name])
    assert stay == {one.nodes[0]: f"it has jobs: {one.id}"}
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []


async def test_dismantling_is_refused_while_there_are_jobs(torque: Torque) -> None:
    """rule 2"""
    world = torque.world()
    (member, *_) = await up(world)
    one = await running(world)
    torque.calls.clear()
    said = await refused(torque.queue.dismantle([m.name for m in MEMBERS]))
    assert f"{member.name}: it has jobs: {one.id}" in said
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []
    assert (await job(world, one.id)).nodes == one.nodes
    assert not (await node(world, member.name)).drained


async def test_a_deletion_that_is_not_answered_is_looked_after(torque: Torque) -> None:
    """rule 2: it may be done minutes later."""
    await torque.queue.prepare(MEMBERS[:1])

    def hang(command: Sequence[str]) -> None:
        if "delete" in " ".join(command):
            raise SlowError("it took too long")

    hasty = torque.client(torque.bin, before=hang)
    said = await refused(hasty.dismantle([MEMBERS[0].name]))
    assert said == (
        "Torque still has n1: it may delete them later; look with pbsnodes, and try again"
    )
    await torque.queue.dismantle([MEMBERS[0].name])
    assert MEMBERS[0].name not in (await torque.queue.read()).nodes


async def test_a_node_that_torque_still_believes_in_gets_no_job_when_it_joins(
    tmp_path: Path,
) -> None:
    """It takes Torque minutes to see that a machine is gone; a new one may start before."""
    torque = Torque(tmp_path, silence_s=1000)
    await torque.build()
    world = torque.world()
    (member,) = await up(world)
    await torque.dies(member.name)
    await torque.queue.drain([member.name], REASON)
    assert await torque.queue.leave([member.name]) == {}
    assert "down" not in (await node(world, member.name)).words
    await torque.queue.join([member])
    id = await torque.submit(Ask("cloud"))
    await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
    assert (await node(world, member.name)).health is Health.JOINING
    await torque.boots(member.name)
    await heard(world, member.name)
    assert (await started(world, id)).nodes == (member.name,)


async def test_new_nodes_are_offline_though_the_daemon_ended_before_they_took_that(
    torque: Torque,
) -> None:
    await torque.queue.prepare(MEMBERS)
    after = torque.client(torque.bin)
    await after.read()
    torque.later(1)
    seen = (await after.read()).nodes
    assert all("offline" in seen[member.name].words for member in MEMBERS)
    assert (await torque.run("pbsnodes", "-l", "-n")).count("springtide: off") == len(MEMBERS)


async def test_what_joins_after_the_daemon_was_started_again_is_not_put_off(
    torque: Torque,
) -> None:
    await torque.queue.prepare(MEMBERS)
    after = replace(torque.world(), queue=torque.client(torque.bin))
    await after.queue.read()
    (member,) = await up(after, prepared=True)
    assert (await running(after)).nodes == (member.name,)


async def test_a_restart_of_the_server_forgets_no_node(torque: Torque) -> None:
    """rule 5"""
    world = torque.world()
    (member,) = await up(world)
    await torque.dies(member.name)
    await torque.stop()
    await torque.start()
    assert (await node(world, member.name)).health is Health.DOWN
    await torque.boots(member.name)
    await heard(world, member.name)


def starts_before(torque: Torque, *words: str) -> TorqueQueue:
    """A client whose jobs start the moment before it runs such a command."""

    def before(command: Sequence[str]) -> None:
        if set(words) <= set(command):
            torque.schedule()

    torque.freeze(scheduling=False)
    return torque.client(torque.bin, before=before)


async def test_a_job_that_starts_while_its_node_leaves_goes_on(torque: Torque) -> None:
    """rule 2"""
    world = torque.world()
    (member,) = await up(world)
    fast = starts_before(torque, "pbsnodes", "-o")
    id = await torque.submit(Ask("cloud"))
    assert await fast.leave([member.name]) == {member.name: f"it has jobs: {id}"}
    seen = await node(world, member.name)
    assert (seen.health, seen.drained, seen.jobs) == (Health.UP, False, (id,))
    assert "offline" not in seen.words
    assert (await job(world, id)).nodes == (member.name,)


async def test_a_job_that_starts_while_its_node_is_dismantled_goes_on(torque: Torque) -> None:
    """rule 2"""
    world = torque.world()
    (member,) = await up(world)
    fast = starts_before(torque, "pbsnodes", "-o")
    id = await torque.submit(Ask("cloud"))
    torque.calls.clear()
    said = await refused(fast.dismantle([member.name]))
    assert said.endswith(f"{member.name}: it has jobs: {id}")
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []
    seen = await node(world, member.name)
    assert (seen.health, seen.drained, seen.jobs) == (Health.UP, False, (id,))
    assert "offline" not in seen.words


async def test_no_node_is_deleted_that_could_still_get_a_job(torque: Torque) -> None:
    """rule 2: new ones take no word, and open by themselves."""
    await torque.queue.prepare(MEMBERS[:1])
    await torque.boots("n1")
    words = []

    def before(command: Sequence[str]) -> None:
        if "delete node n1" in command:
            with opened(torque.state) as server:
                words.append(server.nodes["n1"]["words"])

    await torque.client(torque.bin, before=before).dismantle(["n1"])
    (last,) = words
    assert "offline" in last
    assert "MOM-list-not-sent" not in last


async def test_a_node_that_somebody_opens_meanwhile_is_not_deleted(torque: Torque) -> None:
    """rule 2"""
    (member,) = await up(torque.world())
    torque.calls.clear()

    def before(command: Sequence[str]) -> None:
        if command[0] == "qstat" and any("-o" in call for call in torque.calls):
            with opened(torque.state) as server:
                server.nodes[member.name]["words"].clear()

    said = await refused(torque.client(torque.bin, before=before).dismantle([member.name]))
    assert said == "Torque keeps open n1, against our command"
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []


async def test_a_job_that_starts_during_a_reading_runs(torque: Torque) -> None:
    """Or nodes would start for jobs that have theirs."""
    (member,) = await up(torque.world())
    fast = starts_before(torque, "pbsnodes", "-x")
    id = await torque.submit(Ask("cloud"))
    reading = await fast.read()
    assert jobs(reading, id)[0].nodes == (member.name,)
    assert reading.nodes[member.name].jobs == (id,)


async def test_whoever_is_cancelled_waits_for_the_command(torque: Torque) -> None:
    """Or a drain would come after its undoing."""
    world = torque.world()
    (member,) = await up(world)
    torque.calls.clear()
    slow = torque.client(torque.bin, before=lambda c: time.sleep(0.3 if "-o" in c else 0))
    draining = asyncio.create_task(slow.drain([member.name], REASON))
    while not any("-o" in call for call in torque.calls):
        await asyncio.sleep(0)
    draining.cancel()
    await asyncio.wait([draining])
    await torque.queue.undrain([member.name])
    await asyncio.to_thread(time.sleep, 0.4)
    assert not (await node(world, member.name)).drained


async def test_waking_does_not_start_a_scheduler_that_an_admin_stopped(torque: Torque) -> None:
    await torque.run("qmgr", "-c", "set server scheduling = false")
    await torque.queue.wake()
    assert "scheduling = False" in await torque.run("qmgr", "-c", "list server scheduling")


async def test_drains_of_nodes_of_others_are_left_alone(torque: Torque) -> None:
    await torque.run("pbsnodes", "-o", "-N", "ticket 7", PREMISES)
    before = await torque.run("pbsnodes", "-x", PREMISES)
    for doing in (torque.queue.undrain([PREMISES]), torque.queue.drain([PREMISES], REASON)):
        said = await refused(doing)
        assert said.startswith("Torque has house1 already, without the property springtide")
    assert await torque.run("pbsnodes", "-x", PREMISES) == before


async def test_commands_that_fail_without_a_word_have_failed(torque: Torque) -> None:
    (torque.bin / "qrerun").write_text("#!/bin/sh\nexit 3\n")
    assert await refused(torque.queue.requeue(["1.trqsrv"])) == (
        "`%s -f 1.trqsrv` failed: exit code 3" % (torque.bin / "qrerun")
    )


async def test_a_note_that_an_admin_wrote_over_does_not_turn_a_node_off(torque: Torque) -> None:
    world = torque.world()
    (member,) = await up(world)
    await torque.run("pbsnodes", "-o", "-N", "by hand", member.name)
    await torque.queue.undrain([member.name])
    await torque.dies(member.name)
    await torque.stop()
    await torque.start()
    assert (await node(world, member.name)).health is not Health.ABSENT


async def test_nodes_that_are_off_are_offline_once_they_take_notes(torque: Torque) -> None:
    world = torque.world()
    await torque.queue.prepare(MEMBERS[:1])
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n1"].words)
    await torque.boots("n1")
    id = await torque.submit(Ask("cloud"))
    await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
    seen = await node(world, "n1")
    assert (seen.health, seen.drained) == (Health.ABSENT, False)
    assert "offline" in seen.words


async def test_nodes_that_are_shown_with_their_domain_are_ours(torque: Torque) -> None:
    world = torque.world()
    name = "n1.example.org"
    await torque.run("qmgr", "-c", f'create node {name} np=4,properties="springtide,cloud"')
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n1"].words)
    assert await torque.queue.prepare([MEMBERS[0]]) == "changed n1"
    await torque.queue.join([replace(MEMBERS[0], address="")])
    await torque.boots(name)
    await heard(world, "n1")
    one = await running(world)
    assert one.nodes == ("n1",)
    assert (await node(world, "n1")).jobs == (one.id,)
    await torque.queue.drain(["n1"], REASON)
    assert await torque.queue.leave(["n1"]) == {"n1": f"it has jobs: {one.id}"}
    await torque.end(one.id)
    assert await torque.queue.leave(["n1"]) == {}
    await torque.queue.dismantle(["n1"])
    assert set((await torque.queue.read()).nodes) == {PREMISES}


def test_other_systems_commands_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "qstat").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "qstat").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Commands().run("qstat").returncode == 0
    with pytest.raises(Unavailable, match="qstat not found"):
        Commands(tmp_path / "none").run("qstat")


async def test_nodes_of_others_with_our_names_are_left_alone(torque: Torque) -> None:
    await torque.run("qmgr", "-c", "create node n2 np=8,properties=theirs")
    world = torque.world()
    for act in (torque.queue.prepare, torque.queue.join):
        said = await refused(act(MEMBERS))
        assert said.startswith("Torque has n2 already, without the property springtide: give")
    assert "n1" not in (await torque.queue.read()).nodes
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n2"].words)
    await torque.boots("n2")
    await heard(world, "n2")
    stay = await torque.queue.leave(["n2"])
    assert stay == {"n2": "it has no property springtide, so it is not ours"}
    await torque.queue.dismantle(["n2"])
    assert (await node(world, "n2")).health is Health.UP


async def test_nodes_that_are_off_become_what_the_file_says(torque: Torque) -> None:
    world = torque.world()
    assert await torque.queue.prepare(MEMBERS[:2]) == "created n[1-2]"
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n2"].words)
    larger = [replace(member, cores=8, features=("huge",)) for member in MEMBERS[:2]]
    assert await torque.queue.prepare(larger) == "changed n[1-2]"
    assert await torque.queue.prepare(larger) == ""
    id = await torque.submit(Ask("cloud", (Chunk(2, 8, features=frozenset({"huge"})),)))
    await torque.queue.join(larger)
    for member in larger:
        await torque.boots(member.name)
    await heard(world, "n1", "n2")
    assert await torque.queue.prepare(MEMBERS[:2]) == "", "they serve"
    await until(world, lambda seen: len(jobs(seen, id)[0].nodes) == 2)


async def test_a_node_that_comes_from_another_address_is_created_anew(torque: Torque) -> None:
    """Torque trusts the address that its name had when it was created."""
    world = torque.world()
    torque.resolve(n1="198.18.0.1")
    await torque.queue.prepare(MEMBERS[:1])
    for address in ("10.0.0.1", "10.0.0.9"):
        torque.resolve(n1=address)
        await torque.queue.join([replace(MEMBERS[0], address=address)])
        await torque.boots("n1")
        await heard(world, "n1")
        await torque.queue.drain(["n1"], REASON)
        assert await torque.queue.leave(["n1"]) == {}
        await torque.dies("n1")
    torque.calls.clear()
    await torque.queue.join([replace(MEMBERS[0], address="10.0.0.9")])
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []


EVERYWHERE = {member.name: member.address for member in MEMBERS}


def deletions(torque: Torque) -> list[str]:
    return [call[-1] for call in torque.calls if "delete" in call[-1]]


async def restarted(torque: Torque, **hosts: str) -> None:
    """pbs_server starts while names have these addresses."""
    torque.resolve(**EVERYWHERE | hosts)
    await torque.stop()
    await torque.start()


async def leaves(torque: Torque, name: str) -> None:
    await torque.queue.drain([name], REASON)
    assert await torque.queue.leave([name]) == {}
    await torque.dies(name)


@pytest.mark.accepts("N12")
async def test_a_node_that_was_off_when_the_server_started_joins_all_the_same(
    tmp_path: Path,
) -> None:
    """Torque has resolved its name anew, to what nobody has; its note tells of before."""
    torque = Torque(tmp_path, settle_s=20, report_s=45, refused_s=45)
    world = torque.world()
    torque.resolve(**EVERYWHERE)
    await up(world)
    await leaves(torque, "n1")
    await restarted(torque, n1="198.18.0.1")
    torque.resolve(**EVERYWHERE)
    id = await torque.submit(Ask("cloud"))
    await torque.queue.join(MEMBERS[:1])
    await torque.boots("n1")
    began = asyncio.get_running_loop().time()
    await heard(world, "n1")
    assert asyncio.get_running_loop().time() - began < 60 + 20 + 45 + 5
    assert (await started(world, id)).nodes == ("n1",)


async def test_a_node_whose_name_kept_its_address_is_heard_at_once_after_a_restart(
    tmp_path: Path,
) -> None:
    torque = Torque(tmp_path, report_s=45, refused_s=45)
    world = torque.world()
    torque.resolve(**EVERYWHERE)
    await up(world)
    await leaves(torque, "n1")
    await restarted(torque, n1="10.0.0.1")
    torque.calls.clear()
    await torque.queue.join(MEMBERS[:1])
    await torque.boots("n1")
    began = asyncio.get_running_loop().time()
    await heard(world, "n1")
    assert asyncio.get_running_loop().time() - began < 2
    assert deletions(torque) == []


async def test_a_node_that_was_prepared_with_its_address_is_not_created_anew(
    torque: Torque,
) -> None:
    world = torque.world()
    torque.resolve(n1="10.0.0.1")
    await torque.queue.prepare(MEMBERS[:1])
    await until(world, lambda seen: "offline" in seen.nodes["n1"].words)
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n1"].words)
    torque.calls.clear()
    await torque.queue.join(MEMBERS[:1])
    await torque.boots("n1")
    await heard(world, "n1")
    assert deletions(torque) == []


async def test_a_slow_machine_is_not_created_anew_again_and_again(torque: Torque) -> None:
    world = torque.world()
    await torque.queue.prepare(MEMBERS[:1])
    torque.calls.clear()
    await torque.queue.join(MEMBERS[:1])
    first = len(deletions(torque))
    for _ in range(600):
        await torque.queue.read()
        await asyncio.sleep(1)
    assert len(deletions(torque)) - first <= 4
    await torque.boots("n1")
    await heard(world, "n1")


async def test_a_drain_of_a_node_that_is_not_heard_stays(torque: Torque) -> None:
    world = torque.world()
    await torque.queue.join(MEMBERS[:1])
    await torque.queue.drain(["n1"], REASON)
    torque.calls.clear()
    for _ in range(200):
        await torque.queue.read()
        await asyncio.sleep(1)
    assert deletions(torque) == []
    assert (await node(world, "n1")).reason == REASON


async def test_a_node_that_cannot_be_created_anew_keeps_nobody_from_reading(
    torque: Torque,
) -> None:
    world = torque.world()
    torque.resolve(n1="10.0.0.1")
    await torque.queue.join(MEMBERS[:1])
    torque.resolve()
    await until(world, lambda seen: "n1" not in seen.nodes)
    torque.resolve(n1="10.0.0.1")
    await torque.queue.join(MEMBERS[:1])
    await torque.boots("n1")
    await heard(world, "n1")


async def test_a_busy_node_that_moved_keeps_its_jobs(torque: Torque) -> None:
    """rule 2"""
    world = torque.world()
    (member,) = await up(world)
    one = await running(world)
    torque.calls.clear()
    said = await refused(torque.queue.join([replace(member, address="10.0.0.9")]))
    assert said == f"Torque must not delete n1; let the jobs end first: n1: it has jobs: {one.id}"
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []
    assert (await job(world, one.id)).nodes == (member.name,)


async def test_a_node_that_has_a_job_before_it_joins_keeps_it(torque: Torque) -> None:
    """rule 2: a machine may be faster than we are."""
    world = torque.world()
    await torque.queue.prepare(MEMBERS[:1])
    await torque.boots("n1")
    id = await torque.submit(Ask("cloud"))
    await asyncio.sleep(5)
    assert "offline" not in await torque.run("pbsnodes", "-x", "n1")
    torque.schedule()
    assert (await job(world, id)).nodes == ("n1",)
    await torque.queue.join(MEMBERS[:1])
    await heard(world, "n1")
    assert (await job(world, id)).nodes == ("n1",)


async def test_a_node_that_is_there_before_it_joins_gets_no_job_until_it_has(
    torque: Torque,
) -> None:
    """Or nobody would have noted where it is, and it would be created anew when it comes again."""
    world = torque.world()
    await torque.queue.prepare(MEMBERS[:1])
    await until(world, lambda seen: "MOM-list-not-sent" not in seen.nodes["n1"].words)
    await torque.boots("n1")
    id = await torque.submit(Ask("cloud"))
    await stays(world, lambda seen: jobs(seen, id)[0].state is JobState.WAITING)
    await torque.queue.join(MEMBERS[:1])
    await started(world, id)
    await torque.end(id)
    assert await torque.queue.leave(["n1"]) == {}
    assert "springtide: off (at 10.0.0.1)" in await torque.run("pbsnodes", "-x", "n1")
    torque.calls.clear()
    await torque.queue.join(MEMBERS[:1])
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []


async def test_new_nodes_are_not_waited_for_when_they_join(tmp_path: Path) -> None:
    """Torque takes no change of them for seconds, in which others are to come and go."""
    torque = Torque(tmp_path, settle_s=20)
    world = torque.world()
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        await torque.queue.join(MEMBERS[:1])
        assert (await node(world, "n1")).health is Health.JOINING
    assert asyncio.get_running_loop().time() - began < 1
    assert [call for call in torque.calls if "delete" in " ".join(call)] == []
    await torque.boots("n1")
    await heard(world, "n1")
    assert "springtide: joined 0 at 10.0.0.1" in await torque.run("pbsnodes", "-x", "n1")


async def test_a_new_node_that_is_drained_and_leaves_at_once_is_offline(tmp_path: Path) -> None:
    torque = Torque(tmp_path, settle_s=5)
    world = torque.world()
    await torque.queue.join(MEMBERS[:2])
    await torque.queue.drain(["n2"], REASON)
    seen = await node(world, "n2")
    assert (seen.health, seen.drained, seen.reason) == (Health.JOINING, True, REASON)
    assert await torque.queue.leave(["n1"]) == {}
    seen = await node(world, "n1")
    assert seen.health is Health.ABSENT
    assert "offline" in seen.words


async def test_a_new_node_that_is_heard_while_others_are_created_joins(tmp_path: Path) -> None:
    torque = Torque(tmp_path, settle_s=3)
    await torque.queue.prepare(MEMBERS[:1])
    await torque.boots("n1")

    def slowly(command: Sequence[str]) -> None:
        if command[-1].startswith("create node n2"):
            torque.later(6)

    queue = torque.client(torque.bin, before=slowly)
    await queue.join(MEMBERS[:2])
    await queue.read()  # has it get its note, and count as down until it is heard from again
    torque.later(60)
    assert (await queue.read()).nodes["n1"].health is Health.UP


async def test_new_nodes_that_are_off_get_their_notes_with_one_command(tmp_path: Path) -> None:
    torque = Torque(tmp_path, settle_s=3)
    await torque.queue.prepare(MEMBERS)
    torque.later(6)
    torque.calls.clear()
    found = (await torque.queue.read()).nodes
    assert all("offline" in found[member.name].words for member in MEMBERS)
    assert [call[:2] for call in torque.calls].count(("pbsnodes", "-o")) == 1


async def test_a_note_that_is_refused_keeps_neither_others_nor_the_reading(tmp_path: Path) -> None:
    torque, refusing = Torque(tmp_path, settle_s=3), True

    def refuse(command: Sequence[str]) -> None:
        if refusing and command[:2] == ("pbsnodes", "-o") and "n1" in command:
            raise Unavailable("updated okclients list hasn't been sent")

    queue = torque.client(torque.bin, before=refuse)
    await queue.prepare(MEMBERS)
    torque.later(6)
    found = (await queue.read()).nodes
    assert [m.name for m in MEMBERS if "offline" not in found[m.name].words] == ["n1"]
    refusing = False
    assert "offline" in (await queue.read()).nodes["n1"].words


async def test_names_that_nobody_knows_are_named(torque: Torque) -> None:
    torque.resolve(n1="10.0.0.1")
    said = await refused(torque.queue.prepare(MEMBERS[:2]))
    assert said.startswith("Torque finds no address of n2: have its name resolve on the server's")


async def test_rights_that_are_missing_are_named(torque: Torque) -> None:
    """rule 7: pbsnodes exits with 0."""
    (member,) = await up(torque.world())
    said = await refused(torque.client(torque.user_bin).drain([member.name], REASON))
    assert "Unauthorized Request" in said
    assert said.endswith("qmgr -c 'set server managers += USER@HOST'")


async def test_rights_that_are_missing_are_named_before_anything_is_made(torque: Torque) -> None:
    """`tide check` and `tide deploy` ask for it."""
    said = await refused(torque.client(torque.user_bin).require(MEMBERS))
    assert said == (
        "we are no manager of Torque, and cannot change its nodes; make the user of the daemon a "
        "manager: qmgr -c 'set server managers += USER@HOST'"
    )
    before = await torque.run("pbsnodes", "-x")
    await torque.queue.require(MEMBERS)
    assert await torque.run("pbsnodes", "-x") == before


async def test_a_server_that_is_away_is_named(torque: Torque) -> None:
    """rule 1"""
    await torque.stop()
    said = await refused(torque.queue.read())
    assert said == (
        "`qstat -t -x` failed: qstat: Error (111 - Connection refused); is pbs_server running, "
        "and trqauthd on this machine?"
    )


async def test_a_server_without_any_node_has_none(tmp_path: Path) -> None:
    """rule 1: pbsnodes fails then, and in other words than without a server."""
    torque = Torque(tmp_path)
    reading = await torque.queue.read()
    assert (dict(reading.nodes), list(reading.jobs)) == ({}, [])


async def test_a_server_that_hangs_is_given_up(torque: Torque) -> None:
    (torque.bin / "pbsnodes").write_text("#!/bin/sh\nexec sleep 600\n")
    said = await refused(torque.client(torque.bin, timeout_s=0.3).read())
    assert said == "`pbsnodes -x` took longer than 0.3 s; look at pbs_server"


async def test_new_nodes_that_never_settle_are_named(tmp_path: Path) -> None:
    """Torque waits with them for all nodes that it takes for present."""
    torque = Torque(tmp_path, settle_s=1000)
    hasty = torque.client(torque.bin, settle_s=0.5)
    await hasty.join(MEMBERS[:1])
    said = await refused(hasty.leave(["n1"]))
    assert said.startswith("Torque has not told its nodes of n1 in 0.5 s; does it wait for a node")


async def test_jobs_in_a_queue_that_leads_to_ours_may_run_in_ours(torque: Torque) -> None:
    await torque.queue.prepare(MEMBERS)
    await torque.run("qmgr", "-c", "create queue entrance route_destinations=cloud")
    found = await job(torque.world(), await torque.submit(Ask("entrance")))
    assert (found.state, found.queues) == (JobState.WAITING, ("entrance", "cloud"))


async def test_jobs_of_a_queue_that_is_stopped_are_held_until_it_is_started(
    torque: Torque,
) -> None:
    world = torque.world()
    (member,) = await up(world)
    await torque.run("qmgr", "-c", "set queue cloud started = False")
    ids = [await torque.submit(Ask("cloud", tasks=tasks)) for tasks in (1, 3)]
    await torque.queue.wake()
    found = (await torque.queue.read()).jobs
    assert [(one.state, one.tasks) for one in found] == [(JobState.HELD, 1), (JobState.HELD, 3)]
    assert {one.reason for one in found} == {"queue cloud is not started"}
    await torque.run("qmgr", "-c", "set queue cloud started = True")
    await torque.queue.wake()
    assert (await started(world, ids[0])).nodes == (member.name,)


async def test_a_job_that_may_run_but_once_keeps_its_dead_node(torque: Torque) -> None:
    world = torque.world()
    (member,) = await up(world)
    options = ["-q", "cloud", "-r", "n", "-l", "nodes=1:cloud"]
    id = (await torque.run("qsub", *options, bin=torque.user_bin)).strip()
    await torque.queue.wake()
    await started(world, id)
    await torque.dies(member.name)
    await torque.queue.drain([member.name], REASON)
    await torque.queue.requeue([id])
    assert await torque.queue.leave([member.name]) == {member.name: f"it has jobs: {id}"}


def test_properties_that_torque_cannot_have_are_refused_at_once(torque: Torque) -> None:
    member = replace(MEMBERS[0], features=('a" np=9',))
    said = asyncio.run(refused(torque.queue.prepare([member])))
    assert said == "n1: 'a\" np=9' cannot be a property in Torque"


def test_a_node_runs_pbs_mom_for_the_server(torque: Torque) -> None:
    queue = TorqueQueue(Commands(server="head.example"), shared=[Path("/home")])
    entry = queue.entry("n1")
    assert entry.command[:2] == ("pbs_mom", "-F")
    assert list(entry.files.values()) == ["head.example\n"]
    assert list(entry.settings.values()) == [
        Settings(("$pbsserver head.example",), ("$usecp *:/home /home",))
    ]
    assert torque.queue.entry("n1").command[0] == str(torque.bin / "pbs_mom")


def test_names_of_nodes_that_are_off_resolve_to_addresses_that_nobody_has(tmp_path: Path) -> None:
    """rule 3: Torque creates no node whose name has no address."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    file = tmp_path / "cluster.yaml"
    file.write_text(
        f"cluster: torq\nstate: {tmp_path}/s\nbatch: {{kind: torque, hosts: {hosts}}}\n"
        'groups: {general: {nodes: "tq[1-2]"}}\npartitions: {cloud: {groups: [general]}}\n'
    )
    book = Book(cast(Facts, None))  # nothing is kept
    (block,) = compose_queue.wired(load(file), book, lambda: 0.0).served
    block.serve(Site("10.0.0.254"), {"tq2": "10.0.0.2"})
    named = dict(line.split()[1::-1] for line in hosts.read_text().splitlines() if line[0] != "#")
    assert ip_address(named.pop("tq1")) in compose_queue.UNUSED
    assert named == {"tq2": "10.0.0.2", "localhost": "127.0.0.1"}


async def test_a_node_that_joined_before_a_restart_of_the_daemon_is_told_of_again(
    tmp_path: Path,
) -> None:
    """That it joined is noted with Torque only when it is heard from."""
    torque, facts = Torque(tmp_path), batch_world.Facts()
    await torque.build()
    members = {member.name: replace(member, address="") for member in MEMBERS}

    def daemon() -> Polled:
        clock = asyncio.get_running_loop().time
        return Polled(torque.client(torque.bin), members, Book(facts), clock)

    first = daemon()
    await first.reload(SITE)
    await first.power_up(["n1"])
    await first.set_addresses({"n1": "10.0.0.1"})
    second = daemon()
    torque.later(60)
    assert (await second.nodes(["n1"]))["n1"].address is None
    await second.set_addresses({"n1": "10.0.0.1"})
    assert (await second.nodes(["n1"]))["n1"].address == "10.0.0.1"
    await torque.boots("n1")
    torque.later(60)
    assert (await second.nodes(["n1"]))["n1"].power is Power.GOING_UP
    torque.later(60)
    assert (await second.nodes(["n1"]))["n1"].registered


async def test_a_node_that_lies_about_when_it_was_heard_keeps_no_other_from_joining(
    torque: Torque,
) -> None:
    """A pbs_mom says what it likes; pbs_server puts the time behind that."""
    world = torque.world()
    liar, other = await up(world, 2)
    for member in (liar, other):
        await torque.dies(member.name)
    with opened(torque.state) as server:
        said = server.nodes[liar.name]["status"]
        server.nodes[liar.name]["status"] = f"rectime=999999999999999999,{said}"
    await torque.queue.drain([liar.name, other.name], REASON)
    assert await torque.queue.leave([liar.name, other.name]) == {}
    torque.later(2)
    await torque.queue.join([liar, other])
    for member in (liar, other):
        await torque.boots(member.name)
        await heard(world, member.name)
