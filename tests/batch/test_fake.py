"""The batch system of simulations that asks for nodes does what all do."""

import asyncio

import pytest

from springtide.batch.fake import FakeBatch
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import BatchWorld

pytestmark = pytest.mark.looptime

ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
LONG_S = 1e6


class TestFakeBatch(BatchConformance):
    @pytest.fixture
    async def world(self) -> BatchWorld:
        return make_world()


def make_world() -> BatchWorld:
    machines: dict[str, str] = {}
    batch = FakeBatch(ADDRESSES, machines.get)

    async def submit() -> str:
        id = batch.submit(1, LONG_S).id
        await asyncio.sleep(0)  # the scheduler has its turn
        return id

    async def boots(name: str) -> None:
        machines[ADDRESSES[name]] = name
        batch.boot_seen(name)

    async def dies(name: str) -> None:
        del machines[ADDRESSES[name]]
        batch.stop_seen(name, deleted=False)

    async def answers(yes: bool) -> None:
        batch.unavailable = not yes

    async def told(id: str) -> str:
        return "\n".join(text for jobs, text in batch.told if id in jobs.split(","))

    return BatchWorld(
        batch=batch,
        addresses=ADDRESSES,
        submit=submit,
        node_boots=boots,
        node_dies=dies,
        server_down=lambda: answers(False),
        server_up=lambda: answers(True),
        drain_by_hand=lambda name: batch.drain([name], "by hand", "root"),
        told=told,
    )
