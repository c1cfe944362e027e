"""Instances that died under nodes in service, and a deploy that puts that right."""

from dataclasses import replace
from pathlib import Path

import pytest

from springtide.batch.fake import Timing
from springtide.decide import haunted
from springtide.model import Kind, NodeState
from springtide.ports import Instance, InstanceState, Job
from springtide.providers.fake import FakeCloud
from tests.sim.test_engine import states, until
from tests.sim.world import Life, World

pytestmark = pytest.mark.looptime


async def test_a_deploy_makes_nodes_anew_that_died_and_gives_their_jobs_back(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, nodes=3, timing=Timing(idle_s=9999, slurmd_timeout_s=9999))
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 500)
        await until(lambda: NodeState.READY in states(world).values())
        (busy,) = [name for name, state in states(world).items() if state is NodeState.READY]
        (up,) = await daemon.engine.submit(Kind.RESUME, ["c2", "c3"], asked_by="x")
        await daemon.engine.wait(up.id)
        for instance in world.cloud.alive():
            if instance.node != "c3":
                world.cloud.die(instance.id)

        plan = await daemon.people.planner.plan(Kind.DEPLOY, (), {})
        assert sorted(plan.names) == ["c1", "c2"]
        (deploy,) = (await daemon.people.deploy("root")).operations
        ended = await daemon.engine.wait(deploy.id)
        assert ended is not None
        assert ended.fallen == {}
        assert set(states(world).values()) == {NodeState.READY}
        generations = {n.name: n.generation for n in daemon.parts.record.nodes.values()}
        assert generations == {"c1": 2, "c2": 2, "c3": 1}
        events = await daemon.parts.record.store.events(operation=deploy.id)
        given_back = [event.node for event in events if event.what == "jobs given back"]
        assert given_back == [busy]
        assert job.requeues == 1

        (again,) = (await daemon.people.deploy("root")).operations
        await daemon.engine.wait(again.id)
        events = await daemon.parts.record.store.events(operation=again.id)
        assert not [event for event in events if event.node]
        await until(lambda: job.ended_at is not None, 2000)


def test_a_job_that_still_waits_for_its_nodes_is_not_lost_with_them() -> None:
    jobs = [
        Job("1", "RUNNING", nodes="c[1-2]"),
        Job("2", "CONFIGURING", nodes="c3"),
        Job("3", "PENDING"),
        Job("4", "COMPLETING", nodes="c4"),
    ]
    assert haunted(["c1", "c3", "c4", "c5"], jobs) == ["c1", "c4"]


async def test_a_deploy_leaves_a_node_alone_with_whose_machine_the_cloud_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some show a machine as not running that they move, or take an image of."""
    world = World(tmp_path, nodes=1, timing=Timing(idle_s=9999))
    async with world.living(Life()) as daemon:
        job = world.batch.submit(1, 60)
        await until(lambda: states(world)["c1"] is NodeState.READY)
        listed = FakeCloud.listed

        def moved(self: FakeCloud, cluster: str) -> list[Instance]:
            return [replace(one, state=InstanceState.PENDING) for one in listed(self, cluster)]

        monkeypatch.setattr(FakeCloud, "listed", moved)
        (deploy,) = (await daemon.people.deploy("root")).operations
        await daemon.engine.wait(deploy.id)
        await until(lambda: job.state == "COMPLETED")
    assert job.requeues == 0
    assert world.batch.killed_jobs == {}
