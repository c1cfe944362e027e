"""The batch system of simulations does what all of them do."""

import pytest

from springtide.batch.fake_queue import FakeQueue
from springtide.ports import Member, Queue
from tests.batch.batch_conformance import BatchConformance
from tests.batch.batch_world import BatchWorld, polled
from tests.batch.conformance import Conformance
from tests.batch.world import Ask, World

pytestmark = pytest.mark.looptime

MEMBERS = [
    Member(name, f"10.0.0.{number}", 4, 4096, ("big",), ("cloud",))
    for number, name in enumerate(("n1", "n2", "n3", f"node-{'with-a-long-name-' * 3}4"), start=1)
]
PREMISES = Member("house1", "10.9.0.1", 4, 4096, (), ("house",))


class TestFakeQueue(Conformance):
    @pytest.fixture
    async def world(self) -> World:
        return make_world()


class TestPolledFake(BatchConformance):
    @pytest.fixture
    async def world(self) -> BatchWorld:
        return polled(make_world())


def make_world() -> World:
    machines: dict[str, str] = {}
    queue = FakeQueue(machines.get, premises=[PREMISES])

    async def submit(ask: Ask) -> str:
        return queue.submit(
            *ask.chunks,
            queues=ask.queue.split(","),
            tasks=ask.tasks,
            held=ask.held,
            after=ask.after,
        ).id

    async def boots(name: str) -> None:
        machines[_member(name).address] = name
        queue.boot_seen(name)

    async def dies(name: str) -> None:
        del machines[_member(name).address]
        queue.stop_seen(name, deleted=False)

    async def answers(yes: bool) -> None:
        queue.unavailable = not yes

    async def end(id: str) -> None:
        queue.finish(id)

    async def told(id: str) -> str:
        return "\n".join(text for job, text in queue.told if job == id)

    def powerless() -> Queue:
        other = FakeQueue(machines.get)
        other.__dict__.update(queue.__dict__)
        other.forbidden = True
        return other

    return World(
        queue=queue,
        members=MEMBERS,
        submit=submit,
        end=end,
        node_boots=boots,
        node_dies=dies,
        server_down=lambda: answers(False),
        server_up=lambda: answers(True),
        drain_by_hand=lambda name: queue.drain([name], "by hand"),
        drain_silently=lambda name: queue.drain([name], ""),
        told=told,
        premises=PREMISES.name,
        elsewhere="house",
        both_queues=True,
        feature="big",
        powerless=powerless,
        commands=queue.calls.total,
        silence_s=90,
    )


def _member(name: str) -> Member:
    return next(member for member in MEMBERS if member.name == name)
