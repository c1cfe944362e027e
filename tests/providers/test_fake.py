"""The fake cloud goes wrong exactly as it was told to, and keeps its promises all the same."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import pytest

from springtide.ports import (
    CloudError,
    Denied,
    Instance,
    InstanceState,
    Launch,
    NoCapacity,
    Provider,
    QuotaExceeded,
    Rejected,
    Throttled,
    Transient,
)
from springtide.providers.fake import FakeCloud, FakeProvider, Faults
from tests.providers.conformance import Conformance
from tests.providers.conformance_refusals import CLASSES
from tests.providers.world import BLUE, World

pytestmark = pytest.mark.looptime

CLUSTER = "blue"


@dataclass
class OnceBroken(FakeCloud):
    """Does wrong what it is told to, once, and is well again."""

    refusal: type[CloudError] | None = None
    throttling: bool = False
    losing: bool = False

    def admit(self, kind: str) -> None:
        super().admit(kind)
        throttling, self.throttling = self.throttling, False
        if throttling:
            raise Throttled(f"{kind} was throttled, as it was told to be")

    def launch(self, launch: Launch) -> Instance:
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal(f"{launch.node} was refused, as it was told to be")
        return super().launch(launch)

    def reply(self, kind: str) -> None:
        super().reply(kind)
        losing, self.losing = self.losing, False
        if losing:
            raise Transient(f"the reply to {kind} was lost, as it was told to be")


class TestConformance(Conformance):
    @pytest.fixture(params=[0, 0.005], ids=["at once", "slow"])
    def world(self, request: pytest.FixtureRequest) -> World:
        latency_s: float = request.param
        faults = Faults(before_s=latency_s, after_s=latency_s, boot_s=0.2, delete_s=0.2)
        cloud = OnceBroken(faults)

        def spoil(launch: Launch) -> Launch:
            cloud.faults.refused_nodes[launch.node] = Rejected(f"no image {launch.image}")
            return launch

        def said(node: str) -> str | None:
            running = (one for one in cloud.alive(BLUE) if one.state is InstanceState.RUNNING)
            return next((cloud.user_data(one.id) for one in running if one.node == node), None)

        return World(
            open=lambda cluster: FakeProvider(cloud),
            spoil=spoil,
            says=lambda node, word: word,
            said=said,
            kill=lambda one: cloud.die(one.id, InstanceState.STOPPED),
            snapshots=True,
            refuse=lambda kind: setattr(cloud, "refusal", kind),
            refusals=CLASSES,
            lose_reply=lambda: setattr(cloud, "losing", True),
            calls=cloud.calls.total,
            many=1000,
            batch=1000,
            throttle=lambda: setattr(cloud, "throttling", True),
        )


def launches(*nodes: str, generation: int = 1, zone: str | None = None) -> list[Launch]:
    return [Launch(CLUSTER, node, generation, "general", "base", "small", zone) for node in nodes]


async def virtual(seconds: float) -> None:
    """Let virtual time pass; what is due at the last moment has happened."""
    await asyncio.sleep(seconds)


async def create(provider: Provider, *nodes: str, generation: int = 1) -> list[Instance]:
    answers = await provider.create(launches(*nodes, generation=generation))
    return [made(answers[node]) for node in nodes]


def made(answer: Instance | CloudError) -> Instance:
    assert isinstance(answer, Instance), answer
    return answer


def states(instances: Sequence[Instance]) -> dict[str, str]:
    return {instance.node: instance.state for instance in instances}


# Life of an instance


async def test_an_instance_is_pending_then_running_then_deleting_then_gone() -> None:
    cloud = FakeCloud(Faults(boot_s=30, delete_s=10))
    provider = FakeProvider(cloud)
    [instance] = await create(provider, "n1")
    assert instance.state is InstanceState.PENDING
    await virtual(29)
    assert states(await provider.list(CLUSTER)) == {"n1": "pending"}
    await virtual(1)
    assert states(await provider.list(CLUSTER)) == {"n1": "running"}
    assert await provider.delete([instance]) == {}
    assert states(await provider.list(CLUSTER)) == {"n1": "deleting"}
    await virtual(10)
    assert await provider.list(CLUSTER) == []


async def test_an_instance_carries_its_tags_place_and_address() -> None:
    provider = FakeProvider(FakeCloud())
    [launch] = launches("n1", generation=7, zone="east")
    instance = made((await provider.create([launch]))["n1"])
    key = (instance.cluster, instance.node, instance.generation)
    assert key == (CLUSTER, "n1", 7)
    assert (instance.image, instance.flavor, instance.zone) == ("base", "small", "east")
    assert instance.address is not None


async def test_the_world_reports_what_runs_what_stops_and_what_is_gone() -> None:
    cloud = FakeCloud(Faults(boot_s=5, delete_s=5))
    heard: list[tuple[str, str, str]] = []
    cloud.on_running.append(lambda i: heard.append(("runs", i.node, i.state)))
    cloud.on_stopped.append(lambda i: heard.append(("stopped", i.node, i.state)))
    cloud.on_gone.append(lambda i: heard.append(("gone", i.node, i.state)))
    deleted, dead = await create(FakeProvider(cloud), "n1", "n2")
    await virtual(5)
    await FakeProvider(cloud).delete([deleted])
    cloud.die(dead.id)
    await virtual(5)
    assert heard == [
        ("runs", "n1", "running"),
        ("runs", "n2", "running"),
        ("stopped", "n1", "deleting"),
        ("stopped", "n2", "broken"),
        ("gone", "n2", "broken"),
        ("gone", "n1", "deleting"),
    ]


async def test_clusters_do_not_see_each_other() -> None:
    cloud = FakeCloud()
    provider = FakeProvider(cloud)
    await create(provider, "n1")
    await provider.create([Launch("red", "n1", 1, "general", "base", "small")])
    assert [i.cluster for i in await provider.list("red")] == ["red"]
    await provider.remove("red")
    assert [i.cluster for i in cloud.alive()] == [CLUSTER]


async def test_a_site_is_made_once_and_removed_with_all_that_carries_the_tag() -> None:
    cloud = FakeCloud()
    provider = FakeProvider(cloud)
    assert await provider.prepare(CLUSTER) is await provider.prepare(CLUSTER)
    await create(provider, "n1", "n2")
    await provider.remove(CLUSTER)
    assert cloud.sites == {}
    assert cloud.alive() == []
    await provider.remove(CLUSTER)


async def test_a_removal_that_is_not_over_says_so() -> None:
    cloud = FakeCloud(Faults(delete_s=inf))
    provider = FakeProvider(cloud)
    await provider.prepare(CLUSTER)
    await create(provider, "n1")
    with pytest.raises(Transient, match="remove it again"):
        await provider.remove(CLUSTER)
    assert CLUSTER in cloud.sites


# One instance for one key


async def test_the_same_launch_again_finds_the_same_instance() -> None:
    cloud = FakeCloud()
    first = await create(FakeProvider(cloud), "n1")
    second = await create(FakeProvider(cloud), "n1")
    assert first == second
    assert len(cloud.alive(CLUSTER)) == 1


async def test_no_second_instance_after_a_lost_reply_even_when_lists_are_stale() -> None:
    cloud = FakeCloud(Faults(lost_replies=1, stale_s=60))
    provider = FakeProvider(cloud)
    answers = await provider.create(launches("n1"))
    assert isinstance(answers["n1"], Transient)
    cloud.faults.lost_replies = 0
    assert await provider.list(CLUSTER) == []
    [instance] = await create(provider, "n1")
    assert cloud.alive(CLUSTER) == [instance]
    assert cloud.duplicates() == []


async def test_racing_launches_of_one_key_make_one_instance() -> None:
    cloud = FakeCloud(Faults(before_s=1, after_s=1))
    provider = FakeProvider(cloud)
    both = await asyncio.gather(create(provider, "n1"), create(provider, "n1"))
    assert both[0] == both[1]
    assert cloud.duplicates() == []


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_node_is_not_launched_while_its_old_instance_is_terminating(
    generation: int,
) -> None:
    cloud = FakeCloud(Faults(delete_s=10))
    provider = FakeProvider(cloud)
    await provider.delete(await create(provider, "n1", generation=1))
    answers = await provider.create(launches("n1", generation=generation))
    assert isinstance(answers["n1"], Transient)
    assert "still terminating" in str(answers["n1"])
    await virtual(10)
    await create(provider, "n1", generation=generation)
    assert cloud.duplicates() == []


async def test_a_node_is_not_launched_while_another_generation_runs() -> None:
    provider = FakeProvider(FakeCloud(Faults(boot_s=1)))
    await create(provider, "n1", generation=1)
    await virtual(1)
    answers = await provider.create(launches("n1", generation=2))
    assert isinstance(answers["n1"], Transient)
    assert "generation 1, is still running" in str(answers["n1"])


async def test_twins_are_found_even_when_they_are_gone() -> None:
    cloud = FakeCloud()
    [launch] = launches("n1")
    cloud.start(launch)
    twin = cloud.start(launch)
    cloud.die(twin.id)
    assert cloud.duplicates() == [twin]


async def test_a_freed_address_is_given_to_the_next_node() -> None:
    cloud = FakeCloud(Faults(boot_s=1, delete_s=1))
    provider = FakeProvider(cloud)
    [old] = await create(provider, "n1")
    await provider.delete([old])
    await virtual(1)
    [new] = await create(provider, "n2")
    assert new.address == old.address
    assert new.id != old.id
    await virtual(1)
    assert cloud.node_at(str(new.address)) == "n2"


# What goes wrong


async def test_a_stale_list_shows_the_past() -> None:
    cloud = FakeCloud(Faults(boot_s=1, delete_s=1, stale_s=5))
    provider = FakeProvider(cloud)
    instances = await create(provider, "n1")
    assert await provider.list(CLUSTER) == []
    await virtual(5)
    assert states(await provider.list(CLUSTER)) == {"n1": "pending"}
    await provider.delete(instances)
    await virtual(2)
    assert cloud.alive(CLUSTER) == []
    assert states(await provider.list(CLUSTER)) == {"n1": "running"}
    await virtual(4)
    assert await provider.list(CLUSTER) == []


async def test_an_address_may_come_late() -> None:
    provider = FakeProvider(FakeCloud(Faults(address_s=5)))
    [instance] = await create(provider, "n1")
    assert instance.address is None
    await virtual(5)
    [listed] = await provider.list(CLUSTER)
    assert listed.address is not None


async def test_a_full_zone_refuses_and_others_go_on() -> None:
    cloud = FakeCloud(capacity={("east", "small"): 1})
    provider = FakeProvider(cloud)
    answers = await provider.create(launches("n1", "n2", zone="east"))
    made(answers["n1"])
    assert isinstance(answers["n2"], NoCapacity)
    answers = await provider.create(launches("n2", zone="west"))
    assert made(answers["n2"]).zone == "west"


async def test_a_launch_that_names_no_zone_goes_where_there_is_room() -> None:
    cloud = FakeCloud(zones=("east", "west"), capacity={("east", "small"): 1})
    instances = await create(FakeProvider(cloud), "n1", "n2")
    assert [i.zone for i in instances] == ["east", "west"]


async def test_capacity_comes_back_only_when_an_instance_is_gone() -> None:
    cloud = FakeCloud(Faults(delete_s=10), capacity={("zone-1", "small"): 1})
    provider = FakeProvider(cloud)
    await provider.delete(await create(provider, "n1"))
    assert isinstance((await provider.create(launches("n2")))["n2"], NoCapacity)
    await virtual(10)
    await create(provider, "n2")


async def test_a_quota_counts_all_clusters() -> None:
    cloud = FakeCloud(quota=2)
    cloud.start(Launch("red", "n1", 1, "general", "base", "small"))
    answers = await FakeProvider(cloud).create(launches("n1", "n2"))
    made(answers["n1"])
    assert isinstance(answers["n2"], QuotaExceeded)


async def test_chosen_nodes_are_refused_and_the_rest_are_made() -> None:
    cloud = FakeCloud(Faults(refused_nodes={"n2": Rejected("no such image")}))
    answers = await FakeProvider(cloud).create(launches("n1", "n2", "n3"))
    assert isinstance(answers["n2"], Rejected)
    assert sorted(states(cloud.alive(CLUSTER))) == ["n1", "n3"]


async def test_chance_refuses_some_and_the_same_seed_refuses_the_same() -> None:
    async def refused(seed: int) -> list[str]:
        faults = Faults(seed=seed, refusals={NoCapacity: 0.2, Transient: 0.2})
        answers = await FakeProvider(FakeCloud(faults)).create(launches(*names))
        return [f"{n} {type(a).__name__}" for n, a in answers.items() if isinstance(a, CloudError)]

    names = [f"n{number}" for number in range(100)]
    first = await refused(seed=1)
    assert 20 < len(first) < 60
    assert first == await refused(seed=1)
    assert first != await refused(seed=2)


async def test_every_nth_call_is_throttled_without_effect() -> None:
    cloud = FakeCloud(Faults(throttle_every=2))
    provider = FakeProvider(cloud)
    await provider.list(CLUSTER)
    assert isinstance((await provider.create(launches("n1")))["n1"], Transient)
    assert cloud.alive() == []
    await create(provider, "n1")
    with pytest.raises(Transient, match="throttled"):
        await provider.list(CLUSTER)
    assert cloud.calls == {"list": 2, "create": 2}


async def test_throttling_for_a_period_ends() -> None:
    provider = FakeProvider(FakeCloud(Faults(throttled_until=60)))
    with pytest.raises(Transient, match="throttled"):
        await provider.list(CLUSTER)
    await virtual(60)
    assert await provider.list(CLUSTER) == []


async def test_revoked_credentials_deny_everything_and_change_nothing() -> None:
    cloud = FakeCloud()
    provider = FakeProvider(cloud)
    [instance] = await create(provider, "n1")
    cloud.faults.denied = True
    assert isinstance((await provider.create(launches("n2")))["n2"], Denied)
    assert isinstance((await provider.delete([instance]))[instance.id], Denied)
    for call in (provider.list, provider.prepare, provider.remove):
        with pytest.raises(Denied):
            await call(CLUSTER)
    assert cloud.alive() == [instance]


async def test_a_lost_reply_to_a_delete_still_deletes() -> None:
    cloud = FakeCloud(Faults(delete_s=5))
    provider = FakeProvider(cloud)
    [instance] = await create(provider, "n1")
    cloud.faults.lost_replies = 1
    assert isinstance((await provider.delete([instance]))[instance.id], Transient)
    await virtual(5)
    assert cloud.alive() == []


async def test_a_delete_may_be_refused_or_forgotten_and_works_when_repeated() -> None:
    cloud = FakeCloud(Faults(refused_deletes=1))
    provider = FakeProvider(cloud)
    [instance] = await create(provider, "n1")
    assert isinstance((await provider.delete([instance]))[instance.id], Transient)
    cloud.faults.refused_deletes, cloud.faults.ignored_deletes = 0, 1
    assert await provider.delete([instance]) == {}
    assert states(cloud.alive()) == {"n1": "pending"}
    cloud.faults.ignored_deletes = 0
    assert await provider.delete([instance, instance]) == {}
    await virtual(10)
    assert await provider.delete([instance]) == {}
    assert cloud.alive() == []


async def test_some_instances_never_boot() -> None:
    provider = FakeProvider(FakeCloud(Faults(boot_s=30, stuck_boots=1)))
    await create(provider, "n1")
    await virtual(100_000)
    assert states(await provider.list(CLUSTER)) == {"n1": "pending"}


@pytest.mark.parametrize("leaves", [None, InstanceState.BROKEN, InstanceState.STOPPED])
async def test_some_instances_die_by_themselves(leaves: InstanceState | None) -> None:
    cloud = FakeCloud(Faults(boot_s=1, deaths=1, death_after_s=60, dies_as=leaves))
    [instance] = await create(FakeProvider(cloud), "n1")
    await virtual(60)
    assert cloud.node_at(str(instance.address)) == "n1"
    await virtual(1)
    assert states(cloud.alive()) == ({"n1": leaves} if leaves else {})
    assert cloud.node_at(str(instance.address)) is None


async def test_a_deleted_instance_does_not_wake_up_again() -> None:
    cloud = FakeCloud(Faults(boot_s=5, delete_s=60))
    provider = FakeProvider(cloud)
    await provider.delete(await create(provider, "n1"))
    await virtual(30)
    assert states(cloud.alive()) == {"n1": "deleting"}


# Killed clients


async def test_a_severed_client_has_no_effect_and_gets_no_answer() -> None:
    cloud = FakeCloud()
    provider = FakeProvider(cloud)
    [instance] = await create(provider, "n1")
    provider.sever()
    before = dict(cloud.calls)
    for call in (
        provider.list(CLUSTER),
        provider.prepare(CLUSTER),
        provider.remove(CLUSTER),
        provider.create(launches("n2")),
        provider.delete([instance]),
    ):
        with pytest.raises(RuntimeError, match="severed"):
            await call
    assert cloud.alive() == [instance]
    assert (cloud.calls, cloud.sites) == (before, {})


@pytest.mark.parametrize(("at_s", "effect"), [(1, 0), (3, 1)])
async def test_a_call_in_flight_keeps_the_effect_it_had_and_gets_no_other(
    at_s: float, effect: int
) -> None:
    cloud = FakeCloud(Faults(before_s=2, after_s=2))
    provider = FakeProvider(cloud)
    call = asyncio.create_task(provider.create(launches("n1")))
    await virtual(at_s)
    provider.sever()
    with pytest.raises(RuntimeError, match="severed"):
        await call
    assert len(cloud.alive()) == effect


async def test_a_kill_can_land_before_between_and_after_the_effects() -> None:
    seen = set()
    for awaits in range(1, 6):
        cloud = FakeCloud()
        provider = FakeProvider(cloud)
        task = asyncio.create_task(provider.create(launches("n1", "n2", "n3")))
        for _ in range(awaits):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        provider.sever()
        await asyncio.wait([task])
        seen.add(len(cloud.alive()))
        await create(FakeProvider(cloud), "n1", "n2", "n3")
        assert len(cloud.alive()) == 3
        assert cloud.duplicates() == []
    assert seen == {0, 1, 2, 3}


async def test_the_world_goes_on_when_all_tasks_of_a_daemon_are_killed() -> None:
    cloud = FakeCloud(Faults(boot_s=30, after_s=60))
    task = asyncio.create_task(FakeProvider(cloud).create(launches("n1")))
    await virtual(1)
    task.cancel()
    await virtual(30)
    assert states(cloud.alive()) == {"n1": "running"}
